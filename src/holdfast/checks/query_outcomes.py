"""Run queries against one gallery: what each query finds, whether it is right, and its score.

A hit is right if it has the query's class, or if a list of relevant pairs contains it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from holdfast.checks.scores import Score, average_precisions
from holdfast.core.errors import HoldfastError
from holdfast.metrics import pair_scores, verification_pairs
from holdfast.vectors import nearest
from holdfast.vectors.feature_set import FeatureSet
from holdfast.vectors.lengths import unit
from holdfast.vectors.search import Progress, VectorProblems, class_templates, float32, search_blocks, unit_blocks


class GroundTruth(Protocol):
    """Which of the N rows of a gallery are right for each of Q queries."""

    def right(self, queries: np.ndarray, hits: np.ndarray) -> np.ndarray:
        """Whether gallery rows ``hits`` (n x k, -1 for none) are right for ``queries`` (n numbers): n x k."""

    def has_answer(self) -> np.ndarray:
        """Which queries count in a score (Q, boolean)."""

    def count_right(self) -> np.ndarray:
        """The number of right gallery rows for each query (Q)."""

    def size(self) -> int:
        """The number of gallery rows, N."""

    def pairs(self, wanted: int, usable: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Up to ``wanted`` pairs (query, gallery row) among ``usable`` rows, half of them right; and which are right.

        If one kind does not exist, all pairs are of the other kind, or there are none.
        """


@dataclass(frozen=True)
class ClassGroundTruth:
    """A hit is right if it has the query's class. Classes are numbers 0 .. C-1 in the order of their labels.

    own: the gallery row that each query is itself, which it may not find; None if no query is in the gallery. A query
        without another row of its class then has no answer.
    """

    query: np.ndarray
    gallery: np.ndarray
    own: np.ndarray | None = None

    def right(self, queries: np.ndarray, hits: np.ndarray) -> np.ndarray:
        same: np.ndarray = (self.gallery[hits] == self.query[queries][:, None]) & (hits >= 0)
        return same if self.own is None else same & (hits != self.own[queries][:, None])

    def has_answer(self) -> np.ndarray:
        return np.ones(len(self.query), dtype=bool) if self.own is None else self.count_right() > 0

    def count_right(self) -> np.ndarray:
        counts = np.bincount(self.gallery, minlength=int(self.query.max()) + 1)[self.query]
        return counts if self.own is None else counts - 1

    def size(self) -> int:
        return len(self.gallery) - (self.own is not None)

    def pairs(self, wanted: int, usable: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        pairs, same = self._all_pairs(wanted, usable)
        if self.own is None or not len(pairs):
            return pairs, same
        others = pairs[:, 1] != self.own[pairs[:, 0]]
        return pairs[others], same[others]

    def _all_pairs(self, wanted: int, usable: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        labels = self.gallery[usable]
        same_class = int(ClassGroundTruth(self.query, labels).count_right().sum())
        different = len(self.query) * len(labels) - same_class
        if not same_class or not different:
            return np.zeros((0, 2), dtype=np.int64), np.zeros(0, dtype=bool)
        count = max(2, min(wanted, 2 * same_class, 2 * different))
        pairs, same = verification_pairs(self.query, labels, count, seed=0)
        return np.stack([pairs[:, 0], usable[pairs[:, 1]]], axis=1), same


@dataclass(frozen=True)
class RelevanceGroundTruth:
    """A hit is right if the pair is listed. keys: query * N + gallery row of every relevant pair, ascending.

    grades: of every pair, above 0; None: 1 for each.
    """

    keys: np.ndarray
    queries: int
    gallery_rows: int
    grades: np.ndarray | None = None

    @classmethod
    def of_hits(cls, hits: np.ndarray, answered: np.ndarray, gallery_rows: int) -> "RelevanceGroundTruth":
        """The hits of another search are right. hits: Q x k gallery rows. answered: queries that count (Q, boolean)."""
        keys = (np.arange(len(hits))[:, None] * gallery_rows + hits)[answered]
        return cls(np.sort(keys.ravel()), len(hits), gallery_rows)

    def right(self, queries: np.ndarray, hits: np.ndarray) -> np.ndarray:
        wanted = queries[:, None] * self.gallery_rows + hits
        place = np.searchsorted(self.keys, wanted).clip(max=len(self.keys) - 1)
        return (self.keys[place] == wanted) & (hits >= 0)

    def has_answer(self) -> np.ndarray:
        return self.count_right() > 0

    def count_right(self) -> np.ndarray:
        return np.bincount(self.keys // self.gallery_rows, minlength=self.queries)

    def size(self) -> int:
        return self.gallery_rows

    def pairs(self, wanted: int, usable: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        draw = np.random.default_rng(0)
        query, row = np.divmod(self.keys, self.gallery_rows)
        found = np.isin(row, usable)
        relevant = np.stack([query[found], row[found]], axis=1)
        if len(relevant) > wanted // 2:
            relevant = relevant[np.sort(draw.choice(len(relevant), wanted // 2, replace=False))]
        # Random pairs are rarely relevant: those that are, and duplicates, are dropped and not drawn again.
        random_pairs = draw.choice(np.flatnonzero(self.has_answer()), wanted // 2) * self.gallery_rows
        random_pairs = np.unique(random_pairs + draw.choice(usable, wanted // 2))
        random_pairs = random_pairs[~np.isin(random_pairs, self.keys)]
        pairs = np.concatenate([relevant, np.stack(np.divmod(random_pairs, self.gallery_rows), axis=1)])
        return pairs, np.arange(len(pairs)) < len(relevant)


def class_codes(query_labels: np.ndarray, *galleries: FeatureSet) -> tuple[np.ndarray, list[np.ndarray], np.ndarray]:
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
    ends = np.cumsum([len(part) for part in parts])
    query, *rest = np.split(codes, ends[:-1])
    if not np.isin(query, rest[0]).any():
        raise HoldfastError(
            f"{galleries[0].name}: none of the queries' classes is in it; are the labels the same names?"
        )
    return query, rest, classes


THRESHOLD_PAIRS = 200_000
"""Pairs drawn to estimate a false-accept rate, half of them wrong."""
_PAIRS_AT_ONCE = 1 << 14


@dataclass(frozen=True)
class Pairs:
    """Drawn pairs of a query and a gallery row. query: the query's number; same: whether the pair is right."""

    query: np.ndarray
    same: np.ndarray


@dataclass(frozen=True)
class QueryOutcomes:
    """Results of Q queries on one gallery.

    hits: Q x k gallery rows, or class numbers under the template protocol; -1 for none.
    right: whether each hit is right, Q x k.
    values: the score of each query; NaN if it does not count.
    compared: the cosine of each pair drawn to examine a threshold.
    """

    hits: np.ndarray
    right: np.ndarray
    values: np.ndarray
    compared: np.ndarray


@dataclass(frozen=True)
class GalleryOutcomes:
    """Results of several sets of queries on one gallery.

    truth: the right answers under the protocol.
    outcomes: one for each set of queries.
    threshold_pairs: pairs drawn to examine a threshold.
    problems: unusable or rescaled vectors of the gallery.
    """

    truth: GroundTruth
    outcomes: list[QueryOutcomes]
    threshold_pairs: Pairs
    problems: VectorProblems


def run_queries(
    gallery: FeatureSet,
    truth: GroundTruth,
    query_sets: Sequence[np.ndarray],
    score: Score,
    *,
    protocol: str,
    device: Any = "cpu",
    progress: Progress = lambda stage, done, total: None,
) -> GalleryOutcomes:
    """Search the gallery once with every set of unit queries (each Q x d).

    protocol: "template" searches one mean vector per class, "instance" single rows.
    """
    problems = VectorProblems(gallery.name, len(gallery))
    blocks = unit_blocks(gallery, problems, progress)
    k = min(score.k, truth.size())
    own = truth.own if isinstance(truth, ClassGroundTruth) else None
    if protocol == "template":
        if own is not None:
            raise HoldfastError("protocol template: a class's mean would contain the query; use the instance protocol")
        if not isinstance(truth, ClassGroundTruth):
            raise HoldfastError("protocol template averages classes, and there are none; use the instance protocol")
        vectors, classes, rows_used = class_templates(blocks, truth.gallery, gallery.dim)
        if len(rows_used) == 0:
            raise HoldfastError(f"{gallery.name}: holds no usable vector; all are zero or not finite")
        truth, rows_used = ClassGroundTruth(truth.query, classes), np.arange(len(classes))
        found = [nearest(queries, vectors, k, device=device) for queries in query_sets]
    else:
        vectors = None
        found, rows_used = search_blocks(blocks, query_sets, k + (own is not None), gallery.name, device)

    def read(rows: np.ndarray) -> np.ndarray:
        return unit(float32(gallery.rows.take(rows))) if vectors is None else vectors[rows]

    drawn, same = truth.pairs(THRESHOLD_PAIRS, rows_used)
    compared = _pair_scores(drawn, query_sets, read)
    outcomes: list[QueryOutcomes] = []
    for i, queries in enumerate(query_sets):
        unusable = ~usable(queries)
        hits = np.where(unusable[:, None], -1, without_own(found[i].indices, own)[:, :k])
        right = truth.right(np.arange(len(hits)), hits)
        values = np.asarray(right.any(1), dtype=np.float64)
        if score.kind == "overlap":
            values = right.sum(1) / truth.count_right().clip(1, k)
        elif score.kind == "mAP":
            values = _average_precisions(queries, rows_used, read, truth, gallery.name, progress, device)
            values[unusable | np.isnan(values)] = 0.0  # NaN: every right vector of the gallery is zero or not finite
        values[~truth.has_answer()] = np.nan
        outcomes.append(QueryOutcomes(hits, right, values, compared[i]))
    return GalleryOutcomes(truth, outcomes, Pairs(drawn[:, 0], same), problems)


def usable(queries: np.ndarray) -> np.ndarray:
    """Which unit queries can be compared (Q, boolean); the others are zeros."""
    return np.asarray(queries.any(1))


def without_own(hits: np.ndarray, own: np.ndarray | None) -> np.ndarray:
    """Ranked gallery rows (Q x k) with each query's own row (Q, -1 for none) moved to the end."""
    if own is None:
        return hits
    order = np.argsort(hits == own[:, None], axis=1, kind="stable")
    return np.take_along_axis(hits, order, axis=1)


def _average_precisions(
    queries: np.ndarray,
    usable: np.ndarray,
    read: Callable[[np.ndarray], np.ndarray],
    truth: GroundTruth,
    name: str,
    progress: Progress,
    device: Any,
) -> np.ndarray:
    """Average precision of every query. It needs every rank, so the whole usable gallery is in memory."""
    rows = np.concatenate([read(part) for part in np.array_split(usable, max(1, len(usable) // _PAIRS_AT_ONCE))])
    done = 0
    own = truth.own if isinstance(truth, ClassGroundTruth) else None

    def is_right(start: int, ranked: np.ndarray) -> np.ndarray:
        numbers = np.arange(start, start + len(ranked))
        hits = without_own(usable[ranked], None if own is None else own[numbers])
        return truth.right(numbers, hits)

    def report(more: int) -> None:
        nonlocal done
        done += more
        progress(f"ranking {name}", done, len(queries))

    return average_precisions(queries, rows, is_right, report, device=device)


def _pair_scores(
    pairs: np.ndarray, query_sets: Sequence[np.ndarray], read: Callable[[np.ndarray], np.ndarray]
) -> list[np.ndarray]:
    """The cosine of every pair for every set of queries; gallery rows are read once, in order."""
    order = np.argsort(pairs[:, 1], kind="stable")
    scores = [np.full(len(pairs), -1.0, dtype=np.float32) for _ in query_sets]
    for start in range(0, len(order), _PAIRS_AT_ONCE):
        chunk = order[start : start + _PAIRS_AT_ONCE]
        rows = read(pairs[chunk, 1])
        for found, queries in zip(scores, query_sets, strict=True):
            vectors = queries[pairs[chunk, 0]]
            products = pair_scores(vectors, rows, np.stack([np.arange(len(chunk))] * 2, axis=1))
            # The pairs of an unusable query get the lowest cosine, so they are never accepted.
            found[chunk] = np.where(vectors.any(1), products, -1.0)
    return scores
