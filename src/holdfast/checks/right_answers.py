"""Which items of an index are right for which query, from classes or from a list of judged pairs.

Every query has the number of its row, 0 .. Q-1, and every item that of its row in the index, 0 .. N-1. A query without
a right item has no score and is left out.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from holdfast.checks.judgements import read_judgements
from holdfast.core.errors import HoldfastError
from holdfast.core.wording import are, counted, have
from holdfast.metrics.intervals import same_answers
from holdfast.vectors.feature_set import FeatureSet, shorten

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Relevance = str | Path | Mapping[str, Mapping[str, float]] | Sequence[tuple[Any, ...]]
"""A file of judgements, ``{query: {item: grade}}``, or (query id, item id[, grade]) of every right pair."""


class RightItems(NamedTuple):
    """Right items, one entry for each group of equal ones: number of the query, grade, how many there are.

    present: whether they are in the index.
    """

    query: Ints
    grade: Floats
    amount: Ints
    present: NDArray[np.bool_]


class RightPairs(NamedTuple):
    """Right pairs: number of the query, row of the item (-1: not in the index), grade."""

    query: Ints
    item: Ints
    grade: Floats


@dataclass(frozen=True)
class ClassAnswers:
    """Right is what has the query's class.

    query, gallery: the class number of every query and item.
    own: the row that each query is itself, which it must not find (-1: none); None if no query is an item.
    """

    query: Ints
    gallery: Ints
    own: Ints | None = None

    @property
    def items(self) -> int:
        """How many items a query can find."""
        return len(self.gallery) - (self.own is not None)

    def grades(self, hits: Ints) -> Floats:
        """The grade of each hit (Q x k rows of items, -1 for none): 0 if it is not right."""
        same = (self.gallery[hits] == self.query[:, None]) & (hits >= 0)
        return (same if self.own is None else same & (hits != self.own[:, None])).astype(np.float64)

    def counts(self) -> Ints:
        """The number of right items of each query."""
        size = max(int(self.query.max(initial=0)), int(self.gallery.max(initial=0))) + 1
        counts = np.bincount(self.gallery, minlength=size)[self.query]
        return counts if self.own is None else counts - (self.own >= 0)

    def right_items(self) -> RightItems:
        counts = self.counts()
        rows = np.flatnonzero(counts)
        return RightItems(rows, np.ones(len(rows)), counts[rows], np.ones(len(rows), dtype=bool))

    def pairs(self) -> RightPairs:
        order = np.argsort(self.gallery, kind="stable")
        first, last = (np.searchsorted(self.gallery[order], self.query, side) for side in ("left", "right"))
        counts = last - first
        query = np.repeat(np.arange(len(counts)), counts)
        item = order[np.arange(len(query)) - np.repeat(np.cumsum(counts) - counts - first, counts)]
        if self.own is not None:
            others = item != self.own[query]
            query, item = query[others], item[others]
        return RightPairs(query, item, np.ones(len(query)))

    def of(self, rows: Ints) -> "ClassAnswers":
        """Those of some queries, numbered anew."""
        return replace(self, query=self.query[rows], own=None if self.own is None else self.own[rows])

    def groups(self) -> Ints:
        """Queries that gain and lose together."""
        return self.query


@dataclass(frozen=True)
class ListedAnswers:
    """Right is what a list says. query, item, grade: as of ``RightPairs``, in any order, each pair once."""

    queries: int
    items: int
    query: Ints
    item: Ints
    grade: Floats
    own: None = None
    _keys: Ints = field(init=False, repr=False)

    def __post_init__(self) -> None:
        order = np.lexsort((self.item, self.query))
        for name in ("query", "item", "grade"):
            object.__setattr__(self, name, getattr(self, name)[order])
        object.__setattr__(self, "_keys", self.query * (self.items + 1) + self.item)

    @classmethod
    def of_hits(cls, hits: Ints, answered: NDArray[np.bool_], items: int) -> "ListedAnswers":
        """The hits of another search are right. hits: Q x k rows. answered: queries that count (Q, boolean)."""
        query = np.repeat(np.flatnonzero(answered), hits.shape[1])
        return cls(len(hits), items, query, hits[answered].ravel(), np.ones(len(query)))

    def grades(self, hits: Ints) -> Floats:
        wanted = np.arange(len(hits))[:, None] * (self.items + 1) + hits
        place = np.searchsorted(self._keys, wanted).clip(max=len(self._keys) - 1)
        return np.where((self._keys[place] == wanted) & (hits >= 0), self.grade[place], 0.0)

    def counts(self) -> Ints:
        return np.bincount(self.query, minlength=self.queries)

    def right_items(self) -> RightItems:
        return RightItems(self.query, self.grade, np.ones(len(self.query), np.int64), self.item >= 0)

    def pairs(self) -> RightPairs:
        return RightPairs(self.query, self.item, self.grade)

    def of(self, rows: Ints) -> "ListedAnswers":
        place = np.full(self.queries, -1)
        place[rows] = np.arange(len(rows))
        kept = place[self.query] >= 0
        return ListedAnswers(len(rows), self.items, place[self.query[kept]], self.item[kept], self.grade[kept])

    def groups(self) -> Ints:
        return same_answers(self.query, self.item, self.queries)


RightAnswers = ClassAnswers | ListedAnswers


@dataclass(frozen=True)
class Judgement:
    """What is right in each of several galleries.

    per_gallery: the right answers in each. notes: for the reader of the result.
    classes: the label of each class number; None for listed pairs.
    """

    per_gallery: list[RightAnswers]
    notes: list[str]
    classes: NDArray[Any] | None = None

    @property
    def answers(self) -> RightAnswers:
        """Those of the first gallery, which decide which queries count."""
        return self.per_gallery[0]


def judgement(
    galleries: Sequence[FeatureSet],
    names: NDArray[Any],
    labels: NDArray[Any] | None,
    relevance: Relevance | None,
    own: Sequence[Ints | None] | None = None,
) -> Judgement | None:
    """The right answers in each gallery: by judged pairs if they are given, else by classes; None without either.

    names, labels: of every query; labels may be None.
    own: for each gallery the row that each query is itself, for answers by classes; see ``ClassAnswers``.
    """
    if relevance is not None:
        pairs = graded_pairs(relevance)
        listed = [_listed_answers(pairs, names, gallery) for gallery in galleries]
        return Judgement([answers for answers, _ in listed], _with_unanswered(listed[0], len(names)))
    if labels is None:
        return None
    codes, gallery_codes, classes = class_codes(labels, *galleries)
    answers = [ClassAnswers(codes, part, mine) for part, mine in zip(gallery_codes, own or [None] * len(galleries))]
    queries, notes = counted(len(codes), "query"), []
    absent = int((~np.isin(codes, gallery_codes[0])).sum())
    if absent:
        notes.append(f"{absent:,} of {queries} {have(absent)} a class that is not in {galleries[0].name}; left out")
    single = int((answers[0].counts() == 0).sum()) - absent
    if single:
        notes.append(f"{single:,} of {queries} {are(single)} the only one of the class; left out")
    return Judgement(list(answers), notes, classes)


def class_codes(query_labels: NDArray[Any], *galleries: FeatureSet) -> tuple[Ints, list[Ints], NDArray[Any]]:
    """The labels as numbers 0 .. C-1: those of the queries, those of each gallery, and the label of each number."""
    parts = [query_labels]
    for gallery in galleries:
        if gallery.labels is None:
            raise HoldfastError(
                f"{gallery.name}: has no labels, and the queries have; give labels to all files, or to none"
            )
        if gallery.labels.dtype.kind != query_labels.dtype.kind:
            raise HoldfastError(f"{gallery.name}: labels are not of the queries' kind (one is numbers, one is text)")
        parts.append(gallery.labels)
    classes, codes = np.unique(np.concatenate(parts), return_inverse=True)
    query, *rest = np.split(codes, np.cumsum([len(part) for part in parts])[:-1])
    if not np.isin(query, rest[0]).any():
        raise HoldfastError(
            f"{galleries[0].name}: none of the queries' classes is in it; are the labels the same names?"
        )
    return query, rest, classes


def graded_pairs(relevance: Relevance) -> dict[tuple[str, str], float]:
    """The grade of every relevant pair (query id, item id)."""
    if isinstance(relevance, str | Path):
        relevance = read_judgements(relevance)
    if isinstance(relevance, Mapping):
        triples = [(query, item, grade) for query, items in relevance.items() for item, grade in items.items()]
    else:
        triples = [(pair[0], pair[1], pair[2] if len(pair) > 2 else 1.0) for pair in relevance]
    return {(str(query), str(item)): float(grade) for query, item, grade in triples if grade > 0}


def _listed_answers(
    pairs: Mapping[tuple[str, str], float], query_names: NDArray[Any], gallery: FeatureSet
) -> tuple[ListedAnswers, list[str]]:
    """The pairs as row numbers, and a note on right items that the gallery lacks."""
    query_of = {str(name): number for number, name in enumerate(query_names)}
    row_of = {str(name): row for row, name in enumerate(gallery.names())}
    asked = [(query_of[q], row_of.get(item, -1 - i), grade, q, item)
             for i, ((q, item), grade) in enumerate(pairs.items()) if q in query_of]  # fmt: skip
    answered = {query for query, row, *_ in asked if row >= 0}
    if not answered:
        called = f"queries are called {shorten(query_names, 2)}, gallery items {shorten(gallery.names(), 2)}"
        raise HoldfastError(f"relevance: none of {len(pairs)} pairs has ids of the features; {called}")
    asked = [pair for pair in asked if pair[0] in answered]
    notes = []
    absent = [f"{q} - {item}" for _, row, _, q, item in asked if row < 0]
    if absent:
        share = f"{len(absent):,} of {counted(len(asked), 'right item')}"
        notes.append(f"relevance: {share} {are(len(absent))} not in {gallery.name} ({shorten(absent)}): never found")
    query, item = (np.array([pair[i] for pair in asked], np.int64) for i in (0, 1))
    grade = np.array([pair[2] for pair in asked], np.float64)
    return ListedAnswers(len(query_names), len(gallery), query, item.clip(min=-1), grade), notes


def _with_unanswered(listed: tuple[ListedAnswers, list[str]], count: int) -> list[str]:
    unanswered = int((listed[0].counts() == 0).sum())
    queries = counted(count, "query")
    told = f"relevance: {unanswered:,} of {queries} {have(unanswered)} no relevant item in the gallery; left out"
    return [*listed[1], *([told] if unanswered else [])]
