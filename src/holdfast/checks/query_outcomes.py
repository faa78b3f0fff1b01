"""Run queries against one gallery: the first hit of each query, and its score."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.checks.right_answers import ClassAnswers, Floats, Ints, RightAnswers
from holdfast.checks.scores import Blocks, depth, query_values
from holdfast.core.errors import HoldfastError
from holdfast.metrics.ranking import RankingScore
from holdfast.vectors import nearest
from holdfast.vectors.feature_set import FeatureSet
from holdfast.vectors.search import Progress, VectorProblems, class_templates, search_blocks, unit_blocks

ROWS_AT_ONCE = 4096


@dataclass(frozen=True)
class QueryOutcomes:
    """Results of Q queries on one gallery.

    hits: the row of the first hit, or its class number under the template protocol; -1 for none.
    values: the score of each query; NaN if it has no right item.
    """

    hits: Ints
    values: Floats


@dataclass(frozen=True)
class GalleryOutcomes:
    """Results of several sets of queries on one gallery.

    answers: the right answers under the protocol. outcomes: one for each set of queries.
    items: how many vectors were searched. problems: unusable or rescaled vectors of the gallery.
    """

    answers: RightAnswers
    outcomes: list[QueryOutcomes]
    items: int
    problems: VectorProblems


def run_queries(
    gallery: FeatureSet,
    answers: RightAnswers,
    query_sets: Sequence[NDArray[np.float32]],
    score: RankingScore,
    *,
    protocol: str = "instance",
    device: Any = "cpu",
    progress: Progress = lambda stage, done, total: None,
) -> GalleryOutcomes:
    """Search the gallery once with every set of unit queries (each Q x d).

    protocol: "template" searches one mean vector per class, "instance" single rows.
    """
    problems = VectorProblems(gallery.name, len(gallery))
    read = unit_blocks(gallery, problems, progress)
    if protocol == "template":
        if not isinstance(answers, ClassAnswers):
            raise HoldfastError("protocol template averages classes, and there are none; use the instance protocol")
        vectors, classes, _ = class_templates(read, answers.gallery, gallery.dim)
        if len(vectors) == 0:
            raise HoldfastError(f"{gallery.name}: holds no usable vector; all are zero or not finite")
        answers, items = ClassAnswers(answers.query, classes), len(classes)
        found = [nearest(queries, vectors, depth(score, items), device=device) for queries in query_sets]
        blocks = [memory_blocks(vectors, queries) for queries in query_sets]
    else:
        found, rows = search_blocks(read, query_sets, depth(score, len(gallery)), gallery.name, device)
        items = len(rows)
        blocks = [_file_blocks(gallery, queries) for queries in query_sets]
    outcomes = []
    for queries, hits, scores in zip(query_sets, found, blocks, strict=True):
        nothing = ~usable(queries)[:, None]
        rows, cosines = np.where(nothing, -1, hits.indices), np.where(nothing, np.float32(-np.inf), hits.scores)
        first = rows[:, 0]
        if answers.own is not None and rows.shape[1] > 1:
            first = np.where(first == answers.own, rows[:, 1], first)
        outcomes.append(QueryOutcomes(first, query_values(score, answers, rows, cosines, scores, items)))
    return GalleryOutcomes(answers, outcomes, items, problems)


def usable(queries: NDArray[np.float32]) -> NDArray[np.bool_]:
    """Which unit queries can be compared (Q, boolean); the others are zeros."""
    return np.asarray(queries.any(1))


def memory_blocks(vectors: NDArray[np.float32], queries: NDArray[np.float32], numbers: Ints | None = None) -> Blocks:
    """The scores of unit vectors in memory, block by block. numbers: of their rows; None: 0, 1, .."""
    items = np.arange(len(vectors)) if numbers is None else numbers

    def blocks(rows: Ints) -> Iterator[tuple[Ints, NDArray[np.float32]]]:
        asked = queries[rows]
        for start in range(0, len(vectors), ROWS_AT_ONCE):
            part = vectors[start : start + ROWS_AT_ONCE]
            yield items[start : start + len(part)], asked @ part.T

    return blocks


def _file_blocks(gallery: FeatureSet, queries: NDArray[np.float32]) -> Blocks:
    def blocks(rows: Ints) -> Iterator[tuple[Ints, NDArray[np.float32]]]:
        problems = VectorProblems(gallery.name, len(gallery))  # they were recorded by the search
        for numbers, vectors in unit_blocks(gallery, problems, lambda stage, done, total: None):
            yield from memory_blocks(vectors, queries, numbers)(rows)

    return blocks
