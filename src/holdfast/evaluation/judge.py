"""What each query finds in one gallery, and how right it is.

What counts as a right hit: the query's class, or a list of relevant pairs.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from holdfast.errors import HoldfastError
from holdfast.evaluation.feature_set import FeatureSet
from holdfast.evaluation.protocols import VERIFICATION_PAIRS, average_precisions, pairs_to_draw
from holdfast.evaluation.scores import Score
from holdfast.evaluation.search import Condition, Progress, class_templates, float32, search_blocks, unit_blocks
from holdfast.geometry import nearest, unit
from holdfast.metrics import pair_scores, verification_pairs


class Truth(Protocol):
    """Answers for Q queries in one gallery of N rows."""

    def right(self, queries: np.ndarray, hits: np.ndarray) -> np.ndarray:
        """Whether gallery rows ``hits`` (n x k, -1 for none) are right for ``queries`` (n numbers): n x k."""

    def judged(self) -> np.ndarray:
        """Which queries count at all (Q, boolean)."""

    def count_right(self) -> np.ndarray:
        """How many gallery rows are right for each query (Q)."""

    def size(self) -> int:
        """How many gallery rows there are: N."""

    def pairs(self, wanted: int, usable: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Up to ``wanted`` (query, gallery row) pairs among ``usable`` rows, half of them right; and which are.

        Pairs of one kind, or none, where there are none of the other.
        """


@dataclass(frozen=True)
class ClassTruth:
    """Right is what has the query's class. Classes are numbers 0 .. C-1 in the order of their labels."""

    query: np.ndarray
    gallery: np.ndarray

    def right(self, queries: np.ndarray, hits: np.ndarray) -> np.ndarray:
        return (self.gallery[hits] == self.query[queries][:, None]) & (hits >= 0)

    def judged(self) -> np.ndarray:
        return np.ones(len(self.query), dtype=bool)

    def count_right(self) -> np.ndarray:
        return np.bincount(self.gallery, minlength=int(self.query.max()) + 1)[self.query]

    def size(self) -> int:
        return len(self.gallery)

    def pairs(self, wanted: int, usable: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        labels = self.gallery[usable]
        same_class = ClassTruth(self.query, labels).count_right().sum()
        if same_class in (0, len(self.query) * len(labels)):
            return np.zeros((0, 2), dtype=np.int64), np.zeros(0, dtype=bool)
        pairs, same = verification_pairs(self.query, labels, pairs_to_draw(self.query, labels, wanted), seed=0)
        return np.stack([pairs[:, 0], usable[pairs[:, 1]]], axis=1), same


@dataclass(frozen=True)
class RelevanceTruth:
    """Right is what a list of pairs says. ``keys`` are query * N + gallery row of every relevant pair, ascending."""

    keys: np.ndarray
    queries: int
    gallery_rows: int

    def right(self, queries: np.ndarray, hits: np.ndarray) -> np.ndarray:
        wanted = queries[:, None] * self.gallery_rows + hits
        place = np.searchsorted(self.keys, wanted).clip(max=len(self.keys) - 1)
        return (self.keys[place] == wanted) & (hits >= 0)

    def judged(self) -> np.ndarray:
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
        # Chance pairs are seldom relevant: those that are, or that come twice, are dropped instead of drawn again.
        blind = draw.choice(np.flatnonzero(self.judged()), wanted // 2) * self.gallery_rows
        blind = np.unique(blind + draw.choice(usable, wanted // 2))
        blind = blind[~np.isin(blind, self.keys)]
        pairs = np.concatenate([relevant, np.stack(np.divmod(blind, self.gallery_rows), axis=1)])
        return pairs, np.arange(len(pairs)) < len(relevant)


def class_codes(query_labels: np.ndarray, *galleries: FeatureSet) -> tuple[np.ndarray, list[np.ndarray], np.ndarray]:
    """The labels as numbers 0 .. C-1: of the queries, of each gallery; and the label that each number stands for."""
    parts = [query_labels]
    for gallery in galleries:
        if gallery.labels is None:
            raise HoldfastError(f"{gallery.name}: has no labels; the queries have. Give labels, or --relevance")
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
"""Pairs drawn to see a false-accept rate, half of them false."""
_PAIRS_AT_ONCE = 1 << 14


@dataclass(frozen=True)
class Pairs:
    """Drawn pairs: the number of the query of each, whether it is a right one."""

    query: np.ndarray
    same: np.ndarray


@dataclass(frozen=True)
class Judgement:
    """One set of Q queries on one gallery. NaN in ``values`` for queries that do not count.

    hits: Q x k gallery rows, or class numbers under the template protocol; -1 for none. right: the same, Q x k.
    values: the score of each query; for scores of pairs whether its first hit is right. scored: one score for each
    drawn pair of the chosen score; compared: likewise for the pairs that thresholds are looked at with.
    """

    hits: np.ndarray
    right: np.ndarray
    values: np.ndarray
    scored: np.ndarray
    compared: np.ndarray


@dataclass(frozen=True)
class GalleryView:
    """A gallery under a protocol, ready to be judged: right answers, drawn pairs, and what was wrong with its rows."""

    truth: Truth
    judgements: list[Judgement]
    score_pairs: Pairs | None
    threshold_pairs: Pairs
    condition: Condition


def judge_gallery(
    gallery: FeatureSet,
    truth: Truth,
    query_sets: Sequence[Tensor],
    score: Score,
    *,
    protocol: str,
    pairs: int = VERIFICATION_PAIRS,
    device: torch.device | str = "cpu",
    progress: Progress = lambda stage, done, total: None,
) -> GalleryView:
    """Put every set of unit queries (each Q x d) through the gallery once."""
    condition = Condition(gallery.name, len(gallery))
    blocks = unit_blocks(gallery, condition, device, progress)
    k = min(score.k, len(gallery))
    if protocol == "template":
        if not isinstance(truth, ClassTruth):
            raise HoldfastError("protocol template averages classes, and there are none; use the instance protocol")
        vectors, classes, usable = class_templates(blocks, truth.gallery, gallery.dim, device)
        if len(usable) == 0:
            raise HoldfastError(f"{gallery.name}: holds no usable vector; all are zero or not finite")
        truth, usable = ClassTruth(truth.query, classes), np.arange(len(classes))
        found = [nearest(queries, vectors, k) for queries in query_sets]
    else:
        vectors = None
        found, usable = search_blocks(blocks, query_sets, k, gallery.name)

    def read(rows: np.ndarray) -> Tensor:
        return unit(float32(gallery.rows.take(rows), device)) if vectors is None else vectors[torch.from_numpy(rows)]

    drawn, same = truth.pairs(THRESHOLD_PAIRS, usable)
    score_drawn, score_same = truth.pairs(pairs, usable) if score.of_pairs else (drawn[:0], same[:0])
    if score.of_pairs and (score_same.all() or not score_same.any()):
        raise HoldfastError(f"{gallery.name}: {score.name} needs right and wrong pairs, but all are of one kind")
    compared = _pair_scores(drawn, query_sets, read)
    scored = _pair_scores(score_drawn, query_sets, read)
    judgements = []
    for i, queries in enumerate(query_sets):
        lost = ~queries.any(1).cpu().numpy()
        hits = np.where(lost[:, None], -1, found[i].indices.cpu().numpy())
        right = truth.right(np.arange(len(hits)), hits)
        values = np.asarray(right.any(1), dtype=np.float64)
        if score.kind == "mAP":
            values = _average_precisions(queries, usable, read, truth, gallery.name, progress)
            values[lost & ~np.isnan(values)] = 0.0
        values[~truth.judged()] = np.nan
        judgements.append(Judgement(hits, right, values, scored[i], compared[i]))
    score_pairs = Pairs(score_drawn[:, 0], score_same) if score.of_pairs else None
    return GalleryView(truth, judgements, score_pairs, Pairs(drawn[:, 0], same), condition)


def _average_precisions(
    queries: Tensor,
    usable: np.ndarray,
    read: Callable[[np.ndarray], Tensor],
    truth: Truth,
    name: str,
    progress: Progress,
) -> np.ndarray:
    """AP needs every rank, so the usable gallery is held as a whole."""
    rows = torch.cat([read(part) for part in np.array_split(usable, max(1, len(usable) // _PAIRS_AT_ONCE))])
    done = 0

    def is_right(start: int, ranked: Tensor) -> Tensor:
        numbers = np.arange(start, start + len(ranked))
        return torch.from_numpy(truth.right(numbers, usable[ranked.cpu().numpy()])).to(ranked.device)

    def tell(more: int) -> None:
        nonlocal done
        done += more
        progress(f"ranking {name}", done, len(queries))

    return average_precisions(queries, rows, is_right, tell).cpu().numpy()


def _pair_scores(
    pairs: np.ndarray, query_sets: Sequence[Tensor], read: Callable[[np.ndarray], Tensor]
) -> list[np.ndarray]:
    """The cosine of every pair for every set of queries; gallery rows are read once, in their order."""
    order = np.argsort(pairs[:, 1], kind="stable")
    scores = [np.full(len(pairs), -1.0, dtype=np.float32) for _ in query_sets]
    for start in range(0, len(order), _PAIRS_AT_ONCE):
        some = order[start : start + _PAIRS_AT_ONCE]
        rows = read(pairs[some, 1]).cpu().numpy()
        for found, queries in zip(scores, query_sets, strict=True):
            asked = queries[torch.from_numpy(pairs[some, 0]).to(queries.device)].cpu().numpy()
            products = pair_scores(asked, rows, np.stack([np.arange(len(some))] * 2, axis=1))
            # A query that is no vector is never accepted: its score stays below every cosine that decides.
            found[some] = np.where(asked.any(1), products, -1.0)
    return scores
