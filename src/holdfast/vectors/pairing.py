"""Open sets of vectors in the forms that users give, and pair the rows of two sets that are the same items."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from holdfast.core.errors import HoldfastError
from holdfast.core.wording import counted, have
from holdfast.vectors.feature_files import read_features
from holdfast.vectors.feature_set import FeatureSet, feature_set, shorten
from holdfast.vectors.vector_tables import BY_RULE, Columns

Source = str | Path | FeatureSet | tuple[ArrayLike | None, ...]


@dataclass(frozen=True)
class Pairing:
    """Row numbers of the same queries in the old and in the new set, their names and, if known, their labels."""

    old: np.ndarray
    new: np.ndarray
    names: np.ndarray
    labels: np.ndarray | None
    only_old: list[str]
    only_new: list[str]

    def __len__(self) -> int:
        return len(self.old)


def pair_queries(old: FeatureSet, new: FeatureSet, noun: str = "query") -> Pairing:
    """Pair queries by id if both sets have ids, in the order of the old set; else row by row.

    noun: what a row is called in messages, such as "item".
    Ids that only one set has are left out and listed. If both sets have labels, they must agree.
    """
    if old.ids is not None and new.ids is not None:
        # If ids are numbers in one set and text in the other, they are compared as text, as in relevance files.
        ids_old, ids_new = old.ids, new.ids
        if ids_old.dtype.kind != ids_new.dtype.kind:
            ids_old, ids_new = ids_old.astype(str), ids_new.astype(str)
        _, in_old, in_new = np.intersect1d(ids_old, ids_new, return_indices=True)
        if len(in_old) == 0:
            examples = f"{shorten(ids_old, 2)} and {shorten(ids_new, 2)}"
            raise HoldfastError(f"{old.name}, {new.name}: no id is in both ({examples}), so no {noun} can be paired")
        order = np.argsort(in_old)
        in_old, in_new = in_old[order], in_new[order]
        only_old, only_new = ids_old[~np.isin(ids_old, ids_new)], ids_new[~np.isin(ids_new, ids_old)]
    else:
        if len(old) != len(new):
            raise HoldfastError(
                f"{old.name} has {counted(len(old), noun)} and {new.name} has {len(new):,}; "
                "without ids in both they are paired row by row, so give ids or equal numbers"
            )
        in_old = in_new = np.arange(len(old))
        only_old = only_new = np.zeros(0, dtype=np.int64)
    names = old.names() if old.ids is not None or new.ids is None else new.ids
    return Pairing(
        in_old,
        in_new,
        names[in_old],
        _common_labels(old, new, in_old, in_new, noun),
        [str(name) for name in only_old],
        [str(name) for name in only_new],
    )


def _common_labels(
    old: FeatureSet, new: FeatureSet, in_old: np.ndarray, in_new: np.ndarray, noun: str
) -> np.ndarray | None:
    if old.labels is None or new.labels is None:
        known, rows = (old.labels, in_old) if new.labels is None else (new.labels, in_new)
        return None if known is None else known[rows]
    before, after = old.labels[in_old], new.labels[in_new]
    if before.dtype.kind != after.dtype.kind:
        raise HoldfastError(f"{old.name}, {new.name}: labels are numbers in one and text in the other")
    unequal = np.flatnonzero(before != after)
    if len(unequal):
        which = shorten(in_old[unequal])
        raise HoldfastError(
            f"{old.name}, {new.name}: {len(unequal)} of {counted(len(before), noun)} {have(len(unequal))} another "
            f"label in each (rows {which} of the first); are they the same images in the same order?"
        )
    return before


def open_features(source: Source | ArrayLike, name: str, role: str, columns: Columns = BY_RULE) -> FeatureSet:
    """``source`` as a FeatureSet.

    name: the name of arrays in messages. role: "query" or "gallery". columns: names in a file, as of ``read_features``.
    """
    if isinstance(source, FeatureSet):
        return source
    if isinstance(source, tuple):
        if not 1 <= len(source) <= 3 or source[0] is None:
            raise HoldfastError(f"{name}: give a file, (features, labels) or (features, labels, ids)")
        return feature_set(name, source[0], *source[1:])
    if isinstance(source, str | Path):
        return read_features(source, role, columns)
    return feature_set(name, source)
