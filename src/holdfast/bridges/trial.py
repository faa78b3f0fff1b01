"""Candidates for a bridge, fitted on some pairs and measured on the others.

Each held-out item queries the other held-out items: bridged, against old vectors. The result is compared with the same
search among new vectors. No labels are needed; with labels, the share of first hits of the right class is measured. If
the pairs are a large part of the gallery, the same share of the items searched are pairs that the map was fitted on.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.bridges.choice import (
    BEYOND_CHANCE,
    BRIDGES,
    FEWEST_PAIRS,
    NONE,
    Candidate,
    Measured,
    standard_error,
    unfairness,
)
from holdfast.bridges.maps import Matrix, Shared, mapped_queries
from holdfast.bridges.score_scale import BEST, SAME, ScoreScale, scale_of_best
from holdfast.metrics.exposure import EXPOSURE_AT, exposure_ratio
from holdfast.vectors.neighbours import best_columns

OVERLAP_FROM = 50
"""Held-out pairs from which on hits are compared; below, the rank of an item's own stored vector is."""
LABELS_FROM = 200
"""Held-out items that share a class with another one, from which on labels decide; with fewer, overlap varies less."""
HELD_OUT = 0.3
MOST_HELD_OUT = 1000
MOST_SEARCHED_BESIDE = 9000
FIRST = 10


class Trial:
    """Candidates fitted on some pairs and measured on the others.

    new, old: unit vectors of all pairs, N x d_new and N x d_old.
    labels: N class numbers, -1 for unknown; None measures overlap.
    split: which pairs are fitted, held out as queries, and searched.
    unbridged: N x d_old, the new items as queries without a bridge; None without such a form.

    ``raw_exposure`` is that of old items with queries and scores as they are, once "none" was measured; empty before
    that, and with few held-out pairs.
    """

    raw_exposure: dict[int, float]

    def __init__(
        self,
        new: Matrix,
        old: Matrix,
        labels: NDArray[np.int64] | None,
        split: "Split",
        unbridged: Matrix | None,
    ) -> None:
        held, searched = split.held, np.concatenate([split.held, split.also_searched])
        self._fit_new, self._fit_old = new[split.fitted], old[split.fitted]
        self._new, self._old = new[held], old[searched]  # the held-out items come first
        self._unbridged = None if unbridged is None else unbridged[held]
        self._mapped: dict[str, Matrix] = {}  # by kind, options and number of pairs: a fit can take a second
        self._shared: dict[int, Shared] = {}  # by number of pairs
        self._pairs = len(new)
        self._enough, self.raw_exposure = len(held) >= OVERLAP_FROM, {}
        self._first = min(FIRST, len(searched) - 1)
        self._best = min(split.best, self._first)
        self._wanted_scores = scores_of_items(self._new, new[searched])
        self._wanted = best_columns(self._wanted_scores, self._first)
        self.labels = None if labels is None else self._useful(_judgeable(labels[searched], len(held)))
        self.measure, self.chance = self._measure(len(searched))

    def _measure(self, count: int) -> tuple[str, float]:
        if self.labels is not None:
            return "top1", _chance(self.labels, len(self._new))
        if self._enough:
            return "overlap@10", min(1.0, FIRST / (count - 1))
        return "reciprocal rank", _chance_of_rank(count)

    def _useful(self, labels: NDArray[np.int64] | None) -> NDArray[np.int64] | None:
        """The labels, if first hits of a full re-embedding match them more often than random hits; None otherwise.

        A single class, or labels that say nothing about what is similar, could not tell a good bridge from a bad one.
        """
        if labels is None or not self._enough:
            return None
        right = _right(labels, self._wanted[:, 0])
        clear = BEYOND_CHANCE * standard_error(right)
        return labels if float(right.mean()) - _chance(labels, len(self._new)) > clear else None

    def measured(self, kind: str, options: Mapping[str, Any]) -> Measured:
        """The candidate of this kind, fitted and measured."""
        bridged = self._bridged(kind, options, len(self._fit_new))
        scores = scores_of_items(bridged, self._old)
        hits = best_columns(scores, self._first)
        values, first = self._values(bridged, hits), self._first_places(scores)
        scale = self._scale(scores, hits)
        exposure: dict[int, float] = {}
        if self._enough:
            exposure = self._exposure(scores, scale)
        if kind == NONE:  # scores stay as they are if old items are then shown about as often as they should be
            raw = self.raw_exposure = self._exposure(scores, SAME) if self._enough else {}
            if unfairness(raw) <= unfairness(exposure):
                scale, exposure = SAME, raw
        mean_first = float(first.mean()) if len(first) else float("nan")
        value, error = float(values.mean()), standard_error(values)
        candidate = Candidate(kind, dict(options), value, error, not scale.is_raw, exposure, mean_first)
        return Measured(candidate, values, first, scale)

    def beyond_chance(self, kind: str, options: Mapping[str, Any]) -> float:
        """How many standard errors the value lies above chance, without labels and among held-out items only.

        Chance is the overlap with the hits that other queries want, which can be larger than that of random hits: to a
        nearly collapsed model, the same few items are near to all queries. The standard error counts as at least 1e-6.
        """
        bridged, count = self._bridged(kind, options, len(self._fit_new)), len(self._new)
        if self._enough:
            wanted = best_columns(self._wanted_scores[:, :count], FIRST)
            hits = best_columns(scores_of_items(bridged, self._old[:count]), FIRST)
            gains = overlap(hits, wanted) - overlap_with_others(hits, wanted)
        else:
            gains = _ranks_of_own(bridged, self._old[:count]) - _chance_of_rank(count)
        return float(gains.mean()) / max(standard_error(gains), 1e-6)

    def curve(self, kind: str, options: Mapping[str, Any]) -> list[tuple[int, float]]:
        """The measure against the number of pairs, on nested subsets of the fitted pairs."""
        counts = [count for count in (len(self._fit_new) // part for part in (4, 2, 1)) if count >= FEWEST_PAIRS]
        values = []
        for count in counts:
            bridged = self._bridged(kind, options, count)
            hits = best_columns(scores_of_items(bridged, self._old), self._first)
            values.append(float(self._values(bridged, hits).mean()))
        return list(zip(counts, values, strict=True))

    def errors(self, kind: str, options: Mapping[str, Any]) -> tuple[Matrix, NDArray[np.float64]]:
        """Old vectors of the items searched, and how often each is wrongly shown or wrongly missing.

        That is the number of queries with the item among the ten nearest in one of both searches only, bridged or in
        the new space, on a scale on which its mean over the items is 1 - overlap@10. Items that are near many queries
        have more errors than others. The distance of an item from its own bridged query was tried instead: it is
        largest for items that are hardly ever near a query.
        """
        queries, items = self._wanted_scores.shape
        first = min(FIRST, max(1, queries // 5))  # with few items, ten would be most of them
        bridged = scores_of_items(self._bridged(kind, options, len(self._fit_new)), self._old)
        in_one_only = np.zeros((queries, items), dtype=bool)
        rows = np.arange(queries)[:, None]
        in_one_only[rows, best_columns(bridged, first)] = True
        in_one_only[rows, self._wanted[:, :first]] ^= True
        return self._old, in_one_only.sum(axis=0) * (items / (2 * first * queries))

    def _bridged(self, kind: str, options: Mapping[str, Any], count: int) -> Matrix:
        if kind == NONE:
            assert self._unbridged is not None
            return self._unbridged
        key = f"{kind} {dict(options)} {count}"
        if key not in self._mapped:
            shared = self._shared.setdefault(count, {})
            fitted = BRIDGES[kind].fit(self._fit_new[:count], self._fit_old[:count], shared, **options)
            self._mapped[key] = mapped_queries(fitted, self._new)
        return self._mapped[key]

    def _values(self, bridged: Matrix, hits: NDArray[np.int64]) -> NDArray[np.float64]:
        """One number in [0, 1] per held-out item that can be judged."""
        if self.labels is not None:
            return _right(self.labels, hits[:, 0])
        return overlap(hits, self._wanted) if self._enough else _ranks_of_own(bridged, self._old)

    def _first_places(self, scores: Matrix) -> NDArray[np.float64]:
        """Reciprocal rank of each item's nearest item in the new space among bridged hits; see ``Measured``."""
        if self.labels is not None or not self._enough:
            return np.zeros(0)
        ranks: NDArray[np.float64] = 1 / ((scores > np.take_along_axis(scores, self._wanted[:, :1], 1)).sum(axis=1) + 1)
        return ranks

    def _scale(self, scores: Matrix, hits: NDArray[np.int64]) -> ScoreScale:
        old, new = (
            np.take_along_axis(part, columns[:, : self._best], 1)
            for part, columns in ((scores, hits), (self._wanted_scores, self._wanted))
        )
        return scale_of_best(old, new, len(self._old), self._pairs)

    def _exposure(self, scores: Matrix, scale: Callable[[NDArray[Any]], NDArray[Any]]) -> dict[int, float]:
        """Exposure of old items in a gallery of both versions, half of the items each, by number of first places.

        Both halves take their turn as the old one, and the two results are averaged.
        """
        shown, fair = np.zeros(len(EXPOSURE_AT)), np.zeros(len(EXPOSURE_AT))
        scaled, items = scale(scores), np.arange(scores.shape[1])
        for is_old in (items % 2 == 0, items % 2 == 1):  # the items are in random order
            hits = best_columns(np.where(is_old, scaled, self._wanted_scores), FIRST)
            for total, rows in ((shown, hits), (fair, self._wanted)):
                total += [float(is_old[rows[:, :k]].mean()) / 2 for k in EXPOSURE_AT]
        return {k: exposure_ratio(*parts) for k, *parts in zip(EXPOSURE_AT, shown.tolist(), fair.tolist(), strict=True)}


@dataclass(frozen=True)
class Split:
    """Row numbers of pairs, in random order.

    fitted: the pairs that candidates are fitted on.
    held: the others; their items are the queries.
    also_searched: fitted pairs that are searched beside the held-out ones.
    best: scores of each query that the scale is measured on. In a gallery with twice the items, twice as many are
        above a given score, so that fewer of the scores among the pairs count.
    """

    fitted: NDArray[np.int64]
    held: NDArray[np.int64]
    also_searched: NDArray[np.int64]
    best: int = BEST


def split_pairs(count: int, seed: int, items: int | None = None) -> Split:
    """Hold out 30 % of ``count`` pairs, at most 1,000.

    items: number of items in the old gallery. Of the items searched, the share count / items are then fitted pairs, as
    in that gallery; at most 9,000. None: the gallery is taken to be much larger than the number of pairs.
    """
    order = np.random.default_rng(seed).permutation(count)
    held, fitted = np.split(order, [min(MOST_HELD_OUT, max(3, round(HELD_OUT * count)))])
    share = 0.0 if items is None else min(1.0, count / max(1, items))
    wanted = len(fitted) if share == 1 else round(len(held) * share / (1 - share))
    also = min(len(fitted), wanted, MOST_SEARCHED_BESIDE)
    best = BEST if items is None else max(1, min(BEST, round(BEST * (len(held) + also) / max(1, items))))
    return Split(fitted, held, fitted[:also], best)


def split_items(is_query: NDArray[np.bool_], seed: int, items: int | None = None) -> Split:
    """As ``split_pairs`` for the pairs that are items. Queries are among the fitted pairs, but are never searched."""
    rows = np.flatnonzero(~is_query)
    split = split_pairs(len(rows), seed, items)
    fitted = np.concatenate([rows[split.fitted], np.flatnonzero(is_query)])
    order = np.random.default_rng(seed).permutation(fitted)  # the first ones are a sample, for the curve
    return Split(order, rows[split.held], rows[split.also_searched], split.best)


def scores_of_items(queries: Matrix, items: Matrix) -> Matrix:
    """Inner products, Q x N. The first Q items are those of the queries; they do not find themselves (-inf)."""
    scores = queries @ items.T
    np.fill_diagonal(scores, -np.inf)
    return scores


def _ranks_of_own(queries: Matrix, items: Matrix) -> NDArray[np.float64]:
    """Reciprocal rank of each query's own item; of equal scores, half come first on average."""
    scores = queries @ items.T
    of_own = scores.diagonal()[:, None]
    ties = (scores == of_own).sum(axis=1) - 1
    ranks: NDArray[np.float64] = 1 / ((scores > of_own).sum(axis=1) + 1 + ties / 2)
    return ranks


def _chance_of_rank(count: int) -> float:
    """The mean reciprocal rank of a random order of so many items."""
    return float((1 / np.arange(1, count + 1)).mean())


def overlap(hits: NDArray[np.int64], wanted: NDArray[np.int64]) -> NDArray[np.float64]:
    """Share of ``wanted`` (Q x k) that is in ``hits``, per query."""
    shares: NDArray[np.float64] = (hits[:, :, None] == wanted[:, None, :]).any(axis=1).mean(axis=1)
    return shares


def overlap_with_others(hits: NDArray[np.int64], wanted: NDArray[np.int64]) -> NDArray[np.float64]:
    """Mean share of the items that the other queries want (Q x k) that is in ``hits``, per query."""
    times = np.bincount(wanted.ravel(), minlength=int(hits.max()) + 1)  # how many queries want each item
    queries, k = wanted.shape
    shares: NDArray[np.float64] = (times[hits].sum(axis=1) / k - overlap(hits, wanted)) / (queries - 1)
    return shares


def _judgeable(labels: NDArray[np.int64], queries: int) -> NDArray[np.int64] | None:
    """Labels with -1 for items with a class of their own; None if too few of the first ``queries`` are left."""
    _, code_of, counts = np.unique(labels, return_inverse=True, return_counts=True)
    repeated = np.where(counts[code_of] > 1, labels, -1)
    return repeated if int((repeated[:queries] >= 0).sum()) >= LABELS_FROM else None


def _right(labels: NDArray[np.int64], first: NDArray[np.int64]) -> NDArray[np.float64]:
    """Whether the first hit of each query with a label has the query's label, as 0 or 1.

    labels: of all items, the queries first. first: number of the first hit of each query.
    """
    asked = labels[: len(first)]
    return (labels[first] == asked)[asked >= 0].astype(np.float64)


def _chance(labels: NDArray[np.int64], queries: int) -> float:
    """How often a random other item has the label of one of the first ``queries`` items, if that has one."""
    asked = labels[:queries]
    same = np.bincount(labels[labels >= 0])[asked[asked >= 0]] - 1
    return float((same / (len(labels) - 1)).mean())
