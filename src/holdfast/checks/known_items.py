"""Known items: queries that were made from an item, whose right answer is that item; a stand-in for real queries."""

from pathlib import Path

import numpy as np

from holdfast.core.errors import HoldfastError
from holdfast.core.untrusted_files import open_npz
from holdfast.core.wording import printable
from holdfast.vectors.feature_set import FeatureSet, feature_set

STAND_IN = (
    "known items are a stand-in for real queries: they show whether a thing made from an item (its title, another "
    "view) finds that item. They mislead where people ask in other words than the items use, ask for many items at "
    "once, or ask for things that are not in the index"
)
_ARRAYS = ("old", "new", "item")


def read_known_items(path: Path | str) -> tuple[FeatureSet, FeatureSet, np.ndarray]:
    """Queries of the old and of the new model, and the id of the right item of each.

    path: an npz file with the arrays ``old`` (Q x d), ``new`` (Q x d') and ``item`` (Q ids).
    """
    path = Path(path)
    if path.suffix.lower() != ".npz":
        raise HoldfastError(f"{path}: known items are an .npz file with the arrays {', '.join(_ARRAYS)}")
    with open_npz(path) as pack:
        missing = [name for name in _ARRAYS if name not in pack.names]
        if missing:
            has = printable(", ".join(sorted(pack.names))) or "nothing"
            raise HoldfastError(f"{path}: no array {' and '.join(missing)}; it has {has}")
        old, new, item = (pack.array(name) for name in _ARRAYS)
    sets = [feature_set(f"{path} ({name})", rows) for name, rows in (("old", old), ("new", new))]
    if item.ndim != 1 or {len(part) for part in sets} != {len(item)}:
        shapes = ", ".join(f"{name} {array.shape}" for name, array in zip(_ARRAYS, (old, new, item)))
        raise HoldfastError(f"{path}: one row of old and of new and one item are needed for each query, but: {shapes}")
    return sets[0], sets[1], item


def known_pairs(names: np.ndarray, items: np.ndarray, count: int) -> list[tuple[str, str]]:
    """(query name, item id) of every query. names: of the queries, in the order of ``items``.

    count: of the queries that were given; they must be as many as items.
    """
    if len(items) != count or len(names) != count:
        raise HoldfastError(f"known items: {len(items)} items for {count} queries; give one for each, in their order")
    return [(str(name), str(item)) for name, item in zip(names, items)]
