"""Which row of the old queries and which row of the new ones are the same image."""

from dataclasses import dataclass

import numpy as np

from holdfast.checking.feature_set import FeatureSet, some
from holdfast.errors import HoldfastError
from holdfast.wording import counted, have


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


def pair_queries(old: FeatureSet, new: FeatureSet) -> Pairing:
    """Pair by id where both have ids, in the order of the old set; else row by row.

    Ids that only one of them has are left out and listed. Where both have labels, these must agree.
    """
    if old.ids is not None and new.ids is not None:
        # Exports disagree on whether an id is 7 or "7": then they are compared as text, as relevance files are.
        ids_old, ids_new = old.ids, new.ids
        if ids_old.dtype.kind != ids_new.dtype.kind:
            ids_old, ids_new = ids_old.astype(str), ids_new.astype(str)
        _, in_old, in_new = np.intersect1d(ids_old, ids_new, return_indices=True)
        if len(in_old) == 0:
            examples = f"{some(ids_old, 2)} and {some(ids_new, 2)}"
            raise HoldfastError(f"{old.name}, {new.name}: no id is in both ({examples}), so no query can be paired")
        order = np.argsort(in_old)
        in_old, in_new = in_old[order], in_new[order]
        only_old, only_new = ids_old[~np.isin(ids_old, ids_new)], ids_new[~np.isin(ids_new, ids_old)]
    else:
        if len(old) != len(new):
            raise HoldfastError(
                f"{old.name} has {len(old)} queries and {new.name} has {len(new)}; "
                "without ids in both they are paired row by row, so give ids or equal numbers"
            )
        in_old = in_new = np.arange(len(old))
        only_old = only_new = np.zeros(0, dtype=np.int64)
    names = old.names() if old.ids is not None or new.ids is None else new.ids
    return Pairing(
        in_old,
        in_new,
        names[in_old],
        _common_labels(old, new, in_old, in_new),
        [str(name) for name in only_old],
        [str(name) for name in only_new],
    )


def _common_labels(old: FeatureSet, new: FeatureSet, in_old: np.ndarray, in_new: np.ndarray) -> np.ndarray | None:
    if old.labels is None or new.labels is None:
        known, rows = (old.labels, in_old) if new.labels is None else (new.labels, in_new)
        return None if known is None else known[rows]
    before, after = old.labels[in_old], new.labels[in_new]
    if before.dtype.kind != after.dtype.kind:
        raise HoldfastError(f"{old.name}, {new.name}: labels are numbers in one and text in the other")
    unequal = np.flatnonzero(before != after)
    if len(unequal):
        which = some(in_old[unequal])
        queries = counted(len(before), "query")
        raise HoldfastError(
            f"{old.name}, {new.name}: {len(unequal)} of {queries} {have(len(unequal))} another label in each "
            f"(rows {which} of the first); are they the same images in the same order?"
        )
    return before
