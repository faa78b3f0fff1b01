"""Which queries are judged, which items are right for them, and the score of a ranking."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.checks.judgements import read_judgements
from holdfast.core.errors import HoldfastError
from holdfast.core.wording import are, counted
from holdfast.metrics.intervals import same_answers
from holdfast.metrics.ranking import RankingScore, places_of_hits
from holdfast.vectors.feature_set import FeatureSet

Relevance = str | Path | Mapping[str, Mapping[str, float]] | list[tuple[str, str]]
"""A file of BEIR or TREC, ``{query: {item: grade}}``, or (query id, item id) of every right pair."""


@dataclass(frozen=True)
class JudgedQueries:
    """The queries with a right answer in the index, and their answers.

    rows: numbers of these queries among all queries (Q). groups: which of them have the same answers (Q).
    query, item, grade: every right pair: the query's place in ``rows``, the item's row in the index (-1: not in the
    index), its grade.
    """

    rows: NDArray[np.int64]
    query: NDArray[np.int64]
    item: NDArray[np.int64]
    grade: NDArray[np.float64]
    groups: NDArray[np.int64]
    items: int
    notes: list[str]

    def values(self, score: RankingScore, items: NDArray[np.int64], scores: NDArray[np.float64]) -> Any:
        """The score of each query's hits (Q x k item rows and scores, best first)."""
        keys = self.query * (self.items + 1) + self.item
        order = np.argsort(keys)
        asked = np.arange(len(items))[:, None] * (self.items + 1) + items
        place = np.minimum(np.searchsorted(keys[order], asked), len(keys) - 1)
        grades = np.where(keys[order][place] == asked, self.grade[order][place], 0.0)
        return score(places_of_hits(scores, grades, self.query, self.grade))


def judged_queries(
    relevance: Relevance | None, names: NDArray[Any], labels: NDArray[Any] | None, index: FeatureSet
) -> JudgedQueries | None:
    """The judged queries among ``names`` (their ids); None if there is neither relevance nor classes on both sides."""
    if relevance is None:
        return None if labels is None or index.labels is None else _by_class(names, labels, index)
    grades = _as_grades(relevance)
    place = {str(name): number for number, name in enumerate(names)}
    row_of = {str(name): row for row, name in enumerate(index.names())}
    triples = [
        (place[query], row_of.get(item, -1), grade)
        for query, items in grades.items()
        if query in place
        for item, grade in items.items()
        if grade > 0
    ]
    notes = []
    answered = sorted({query for query, row, _ in triples if row >= 0})
    if not answered:
        shown = next(iter(grades), "nothing"), next(iter(place), "nothing")
        raise HoldfastError(
            f"relevance: no judged query has a right item in the index (it names query {shown[0]!r}, for example, "
            f"and the queries are called {shown[1]!r}); check the ids"
        )
    absent = sum(row < 0 for _, row, _ in triples)
    if absent:
        notes.append(f"{counted(absent, 'right item')} of the judgements {are(absent)} not in the index: never found")
    if len(answered) < len(place):
        notes.append(
            f"{len(answered):,} of {counted(len(place), 'query')} have a right item in the index; only they count"
        )
    position = {query: number for number, query in enumerate(answered)}
    kept = [(position[query], row, grade) for query, row, grade in triples if query in position]
    query, item = (np.array([triple[i] for triple in kept], np.int64) for i in (0, 1))
    groups = same_answers(query, item, len(answered))
    grade = np.array([triple[2] for triple in kept], np.float64)
    return JudgedQueries(np.array(answered, np.int64), query, item, grade, groups, len(index), notes)


def _by_class(names: NDArray[Any], labels: NDArray[Any], index: FeatureSet) -> JudgedQueries:
    """Every item of a query's class is right."""
    assert index.labels is not None
    stored = index.labels.astype(str)
    order = np.argsort(stored, kind="stable")
    first, last = (np.searchsorted(stored[order], labels.astype(str), side) for side in ("left", "right"))
    rows = np.flatnonzero(last > first)
    if not len(rows):
        raise HoldfastError(f"{index.name}: holds no item of a class that a query has; check the labels")
    counts = (last - first)[rows]
    query = np.repeat(np.arange(len(rows)), counts)
    within = np.arange(len(query)) - np.repeat(np.cumsum(counts) - counts, counts)
    item = order[first[rows][query] + within]
    _, groups = np.unique(labels[rows].astype(str), return_inverse=True)
    notes = [
        f"{len(rows):,} of {counted(len(names), 'query')} have an item of their class in the index; only they count"
    ]
    grade = np.ones(len(query))
    return JudgedQueries(
        rows, query, item.astype(np.int64), grade, groups, len(index), notes if len(rows) < len(names) else []
    )


def _as_grades(relevance: Relevance) -> Mapping[str, Mapping[str, float]]:
    if isinstance(relevance, Mapping):
        return relevance
    if isinstance(relevance, str | Path):
        return read_judgements(Path(relevance))
    grades: dict[str, dict[str, float]] = {}
    for pair in relevance:
        query, item = pair[0], pair[1]
        grades.setdefault(str(query), {})[str(item)] = 1.0
    return grades
