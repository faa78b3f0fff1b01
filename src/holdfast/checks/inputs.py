"""The inputs of a check: open feature sets, pair old and new queries, and read or compute the right answers."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from holdfast.checks.judgements import read_judgements
from holdfast.checks.query_outcomes import ClassGroundTruth, GroundTruth, RelevanceGroundTruth, class_codes, usable
from holdfast.checks.scores import OVERLAP
from holdfast.core.errors import HoldfastError
from holdfast.core.wording import are, counted, have
from holdfast.metrics.intervals import same_answers
from holdfast.vectors.feature_set import FeatureSet, find_rows, rows_of_ids, shorten
from holdfast.vectors.lengths import unit
from holdfast.vectors.pairing import Pairing
from holdfast.vectors.search import Progress, VectorProblems, float32, search_blocks, unit_blocks

Relevance = str | Path | Sequence[tuple[Any, ...]]
"""A file of judgements, or (query id, gallery id) of every relevant pair, perhaps with a grade above 0."""


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


@dataclass(frozen=True)
class GroundTruths:
    """The right answers.

    per_gallery: for the old gallery, and for the new one if it is given.
    notes: for the reader of the result.
    codes: the class number of each query; None without labels.
    classes: the label of each class number; None without labels.
    """

    per_gallery: list[GroundTruth]
    notes: list[str]
    codes: np.ndarray | None = None
    classes: np.ndarray | None = None

    def groups(self) -> np.ndarray:
        """Queries that gain and lose together: those of one class, or with the same right items."""
        if self.codes is not None:
            return self.codes
        truth = self.per_gallery[0]
        assert isinstance(truth, RelevanceGroundTruth)
        return same_answers(*np.divmod(truth.keys, truth.gallery_rows), truth.queries)


def ground_truths(
    galleries: Sequence[FeatureSet],
    names: np.ndarray,
    labels: np.ndarray | None,
    relevance: Relevance | None,
    *,
    leave_one_out: bool = False,
) -> GroundTruths | None:
    """The right answers of each gallery, from relevant pairs if they are given, else from labels; None without either.

    names, labels: of every query; labels may be None.
    leave_one_out: queries are items of the galleries, by id, and do not find themselves. Refused without labels.
    """
    if leave_one_out and (relevance is not None or labels is None):
        raise HoldfastError("leave-one-out needs labels, and no list of relevant pairs")
    if relevance is not None:
        pairs = graded_pairs(relevance)
        found = [relevance_ground_truth(pairs, names, gallery) for gallery in galleries]
        notes = found[0][1]
        unanswered = int((~found[0][0].has_answer()).sum())
        if unanswered:
            queries = counted(len(names), "query")
            notes = [*notes, f"relevance: {unanswered:,} of {queries} {have(unanswered)} no relevant item; left out"]
        return GroundTruths([truth for truth, _ in found], notes)
    if labels is None:
        return None
    codes, gallery_codes, classes = class_codes(labels, *galleries)
    unknown = int((~np.isin(codes, gallery_codes[0])).sum())
    notes = []
    if unknown:
        queries = counted(len(codes), "query")
        notes.append(f"{unknown:,} of {queries} {have(unknown)} a class that is not in {galleries[0].name}")
    own = [_own_rows(names, gallery) if leave_one_out else None for gallery in galleries]
    truths: list[GroundTruth] = [ClassGroundTruth(codes, part, row) for part, row in zip(gallery_codes, own)]
    single = int((~truths[0].has_answer()).sum())
    if single:
        queries = counted(len(codes), "query")
        notes.append(f"{single:,} of {queries} {are(single)} the only one of the class; left out")
    return GroundTruths(truths, notes, codes, classes)


def _own_rows(names: np.ndarray, gallery: FeatureSet) -> np.ndarray:
    """The gallery row that each query is."""
    if gallery.ids is None:
        raise HoldfastError(f"{gallery.name}: has no ids; leave-one-out finds each query in the gallery by its id")
    return rows_of_ids(names, gallery, "the queries")


def pairing_notes(inputs: CheckInputs, pairing: Pairing, *, ceiling: bool, leave_one_out: bool) -> list[str]:
    """Notes on how queries and galleries were paired. ceiling: whether the new gallery gives one."""
    found = []
    if (inputs.old.ids is None) != (inputs.new.ids is None):
        found.append("only one of the two query sets has ids, so queries were paired row by row")
    if ceiling and inputs.gallery_new is not None and not _same_items(inputs.gallery, inputs.gallery_new):
        found.append("the new gallery does not hold the items of the old one, so the ceiling is that of other items")
    stored = [] if leave_one_out else _stored_queries(inputs, pairing)
    if stored:
        found.append(f"queries are items of the gallery ({shorten(stored)}) and find themselves; use leave-one-out")
    for which, names in (("old", pairing.only_old), ("new", pairing.only_new)):
        if names:
            queries, were = counted(len(names), "query"), "was" if len(names) == 1 else "were"
            found.append(f"{queries} {are(len(names))} only in the {which} set and {were} left out: {shorten(names)}")
    return found


_QUERIES_LOOKED_UP = 1000
_SAME_VECTOR = 1e-4  # of the cosine, for vectors that were rounded


def _stored_queries(inputs: CheckInputs, pairing: Pairing) -> list[str]:
    """Ids of queries that are items of the gallery, with the same vector; of the first 1,000 with an id in both."""
    if inputs.old.ids is None or inputs.gallery.ids is None or inputs.old.dim != inputs.gallery.dim:
        return []  # numbers of rows are no ids
    number = {str(name): row for row, name in enumerate(pairing.names)}
    in_both = ((number[str(name)], row) for row, name in enumerate(inputs.gallery.ids) if str(name) in number)
    found = np.array(list(itertools.islice(in_both, _QUERIES_LOOKED_UP)))
    if not len(found):
        return []
    queries, items = (
        unit(float32(part.rows.take(chosen)))
        for part, chosen in ((inputs.old, pairing.old[found[:, 0]]), (inputs.gallery, found[:, 1]))
    )
    same = (queries * items).sum(1) > 1 - _SAME_VECTOR
    return [str(name) for name in pairing.names[found[same, 0]]]


def _same_items(first: FeatureSet, second: FeatureSet) -> bool:
    """Compared by ids, else by labels, else by number, in any order."""
    for one, other in ((first.ids, second.ids), (first.labels, second.labels)):
        if one is not None and other is not None:
            return bool(np.array_equal(np.sort(one.astype(str)), np.sort(other.astype(str))))
    return len(first) == len(second)


AGREEMENT = (
    "no labels and no relevance: what counts are the ten items that the new model shows when everything is "
    "re-embedded; whether people find more with these was not measured"
)


def reembedded_hits(
    gallery: FeatureSet,
    gallery_new: FeatureSet,
    queries: np.ndarray,
    device: Any = "cpu",
    progress: Progress = lambda stage, done, total: None,
) -> tuple[RelevanceGroundTruth, VectorProblems]:
    """The first ten hits of each query among the re-embedded items of ``gallery``, as rows of ``gallery``.

    gallery: the stored items. gallery_new: the same items embedded by the new model, matched by id, or row by row
        if one of the two has no ids. Items that only ``gallery_new`` holds are left out; see ``items_of_both`` for
        the others.
    queries: the new model's unit queries, Q x d_new; a query of zeros has no right answer.
    """
    row_of = _matching_rows(gallery, gallery_new)
    problems = VectorProblems(gallery_new.name, len(gallery_new))
    blocks = _known_only(unit_blocks(gallery_new, problems, progress), row_of)
    k = min(OVERLAP.k, int((row_of >= 0).sum()))
    (found,), _ = search_blocks(blocks, [queries], k, gallery_new.name, device)
    return RelevanceGroundTruth.of_hits(row_of[found.indices], usable(queries), len(gallery)), problems


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


def graded_pairs(relevance: Relevance) -> list[tuple[str, str, float]]:
    """(query id, gallery id, grade) of every relevant pair."""
    if isinstance(relevance, str | Path):
        judged = read_judgements(relevance)
        return [(query, item, grade) for query, grades in judged.items() for item, grade in grades.items() if grade > 0]
    pairs = [(str(pair[0]), str(pair[1]), float(pair[2]) if len(pair) > 2 else 1.0) for pair in relevance]
    return [pair for pair in pairs if pair[2] > 0]


def relevance_ground_truth(
    pairs: list[tuple[str, str, float]], query_names: np.ndarray, gallery: FeatureSet
) -> tuple[RelevanceGroundTruth, list[str]]:
    """The pairs as row numbers, and a note on pairs with unknown ids."""
    query_of = {str(name): i for i, name in enumerate(query_names)}
    row_of = {str(name): i for i, name in enumerate(gallery.names())}
    unknown = [pair for pair in pairs if pair[0] not in query_of or pair[1] not in row_of]
    grades = {query_of[q] * len(gallery) + row_of[g]: grade for q, g, grade in pairs if q in query_of and g in row_of}
    if not grades:
        known = f"queries are called {shorten(query_names, 2)}, gallery items {shorten(gallery.names(), 2)}"
        raise HoldfastError(f"relevance: none of {len(pairs)} pairs has ids of the features; {known}")
    notes = []
    if unknown:
        named = shorten([f"{q} - {g}" for q, g, _ in unknown])
        name = "names" if len(unknown) == 1 else "name"
        share = f"{len(unknown)} of {counted(len(pairs), 'pair')}"
        notes.append(f"relevance: {share} {name} an unknown query or item ({named}); ignored")
    keys = np.array(sorted(grades), dtype=np.int64)
    truth = RelevanceGroundTruth(keys, len(query_names), len(gallery), np.array([grades[key] for key in keys.tolist()]))
    return truth, notes
