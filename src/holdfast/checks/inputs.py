"""The inputs of a check: open feature sets, queries that are items, and what a re-embedding would show."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from holdfast.checks.query_outcomes import usable
from holdfast.checks.right_answers import Ints, ListedAnswers
from holdfast.checks.scores import OVERLAP_AT
from holdfast.core.errors import HoldfastError
from holdfast.core.wording import are, counted
from holdfast.vectors.feature_set import FeatureSet, find_rows, shorten
from holdfast.vectors.lengths import unit
from holdfast.vectors.pairing import Pairing
from holdfast.vectors.search import Progress, VectorProblems, float32, search_blocks, unit_blocks


@dataclass(frozen=True)
class CheckInputs:
    """The old gallery, old and new queries, and the gallery embedded by the new model, or None."""

    gallery: FeatureSet
    old: FeatureSet
    new: FeatureSet
    gallery_new: FeatureSet | None

    def __post_init__(self) -> None:
        if self.old.dim != self.gallery.dim:
            raise HoldfastError(
                f"{self.old.name}: {self.old.dim} numbers per query, but the old gallery has {self.gallery.dim}; "
                "both must come from the old model"
            )
        if self.gallery_new is not None and self.gallery_new.dim != self.new.dim:
            raise HoldfastError(
                f"{self.gallery_new.name}: {self.gallery_new.dim} numbers per vector, but the new queries have "
                f"{self.new.dim}; both must come from the new model"
            )

    @property
    def comparable(self) -> bool:
        """Whether new queries and the old gallery have vectors of the same size."""
        return self.new.dim == self.gallery.dim

    def galleries(self) -> list[FeatureSet]:
        return [self.gallery] + ([] if self.gallery_new is None else [self.gallery_new])

    def names(self) -> dict[str, str]:
        named = {"gallery": self.gallery.name, "queries_old": self.old.name, "queries_new": self.new.name}
        return named if self.gallery_new is None else {**named, "gallery_new": self.gallery_new.name}


def pairing_notes(inputs: CheckInputs, pairing: Pairing, *, ceiling: bool) -> list[str]:
    """Notes on how queries and galleries were paired. ceiling: whether the new gallery gives one."""
    notes = []
    if (inputs.old.ids is None) != (inputs.new.ids is None):
        notes.append("only one of the two query sets has ids, so queries were paired row by row")
    if ceiling and inputs.gallery_new is not None and not _same_items(inputs.gallery, inputs.gallery_new):
        notes.append("the new gallery does not hold the items of the old one, so the ceiling is that of other items")
    for which, names in (("old", pairing.only_old), ("new", pairing.only_new)):
        if names:
            queries, were = counted(len(names), "query"), "was" if len(names) == 1 else "were"
            notes.append(f"{queries} {are(len(names))} only in the {which} set and {were} left out: {shorten(names)}")
    return notes


_SAME_VECTOR = 1e-4  # of the cosine, for vectors that were rounded


def stored_queries(inputs: CheckInputs, pairing: Pairing) -> Ints | None:
    """The gallery row of each query that is an item of the gallery: of the same id, and the same vector; else -1.

    None if no query is one.
    """
    if inputs.old.ids is None or inputs.gallery.ids is None:
        return None  # numbers of rows are no ids
    rows = find_rows(pairing.names, inputs.gallery.ids)
    (with_id,) = np.nonzero(rows >= 0)
    queries, items = (
        unit(float32(part.rows.take(numbers)))
        for part, numbers in ((inputs.old, pairing.old[with_id]), (inputs.gallery, rows[with_id]))
    )
    same = (queries * items).sum(1) > 1 - _SAME_VECTOR
    rows[with_id[~same]] = -1
    return rows if same.any() else None


def own_rows(inputs: CheckInputs, pairing: Pairing, stored: Ints | None) -> list[Ints | None]:
    """For each gallery the row that each query is itself; of the new gallery by id, as ``stored_queries`` found."""
    if stored is None or inputs.gallery_new is None:
        return [stored, None]
    if inputs.gallery_new.ids is None:
        raise HoldfastError(f"{inputs.gallery_new.name}: has no ids; queries that are items are left out by their ids")
    return [stored, np.where(stored >= 0, find_rows(pairing.names, inputs.gallery_new.ids), -1)]


def _same_items(first: FeatureSet, second: FeatureSet) -> bool:
    """Compared by ids, else by labels, else by number, in any order."""
    for one, other in ((first.ids, second.ids), (first.labels, second.labels)):
        if one is not None and other is not None:
            return bool(np.array_equal(np.sort(one.astype(str)), np.sort(other.astype(str))))
    return len(first) == len(second)


def reembedded_hits(
    gallery: FeatureSet,
    gallery_new: FeatureSet,
    queries: np.ndarray,
    device: Any = "cpu",
    progress: Progress = lambda stage, done, total: None,
) -> tuple[ListedAnswers, VectorProblems]:
    """The first ten hits of each query among the re-embedded items of ``gallery``, as rows of ``gallery``.

    gallery: the stored items. gallery_new: the same items embedded by the new model, matched by id, or row by row
        if one of the two has no ids. Items that only ``gallery_new`` holds are left out; see ``items_of_both`` for
        the others.
    queries: the new model's unit queries, Q x d_new; a query of zeros has no right answer.
    """
    row_of = _matching_rows(gallery, gallery_new)
    problems = VectorProblems(gallery_new.name, len(gallery_new))
    blocks = _known_only(unit_blocks(gallery_new, problems, progress), row_of)
    k = min(OVERLAP_AT, int((row_of >= 0).sum()))
    (hits,), _ = search_blocks(blocks, [queries], k, gallery_new.name, device)
    return ListedAnswers.of_hits(row_of[hits.indices], usable(queries), len(gallery)), problems


def items_of_both(gallery: FeatureSet, gallery_new: FeatureSet) -> FeatureSet:
    """``gallery`` without the items that ``gallery_new`` does not hold, by id; these could only be wrong hits."""
    rows = _matching_rows(gallery, gallery_new)
    kept = np.sort(rows[rows >= 0])
    return gallery if len(kept) == len(gallery) else gallery.chosen(kept)


def _matching_rows(gallery: FeatureSet, gallery_new: FeatureSet) -> np.ndarray:
    """For each row of ``gallery_new`` the row of the same item in ``gallery``, -1 if it is not there."""
    if gallery.ids is None or gallery_new.ids is None:
        if len(gallery) != len(gallery_new):
            raise HoldfastError(
                f"{gallery_new.name}: {len(gallery_new):,} items, but {len(gallery):,} in {gallery.name}; without "
                "labels their items are compared, so give ids in both"
            )
        return np.arange(len(gallery))
    found = find_rows(gallery_new.ids, gallery.ids)
    if not (found >= 0).any():
        raise HoldfastError(f"{gallery_new.name}: has no id of {gallery.name}, so their items cannot be compared")
    return found


def _known_only(
    blocks: Iterator[tuple[np.ndarray, np.ndarray]], row_of: np.ndarray
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    for numbers, vectors in blocks:
        known = row_of[numbers] >= 0
        if known.any():
            yield numbers[known], vectors[known]
