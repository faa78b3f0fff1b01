"""Scores and gains with their intervals, for scores of queries and for scores of pairs."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from holdfast.checks.query_outcomes import Pairs, QueryOutcomes
from holdfast.checks.scores import Score
from holdfast.metrics import (
    draw_weights,
    gain_interval,
    mean_interval,
    roc_auc,
    tar_at_far,
    weighted_roc_auc,
    weighted_tar_at_far,
)
from holdfast.metrics.resampling import covering_interval, queries_to_decide, share_interval, units_to_decide

_WEIGHTS_AT_ONCE = 1 << 21


@dataclass(frozen=True)
class Estimate:
    """A number and its two-sided interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Resampling:
    """How intervals are computed.

    confidence: of the two-sided intervals.
    resamples: number of bootstrap resamples.
    seed: of the resamples.
    clusters: the class of each query, to resample classes; None resamples queries.
    """

    confidence: float
    resamples: int
    seed: int
    clusters: np.ndarray | None = None

    @property
    def drawn(self) -> str:
        """What is resampled, in words."""
        return "queries" if self.clusters is None else "classes of queries"

    def units(self, values: np.ndarray) -> int:
        """The number of queries, or of their classes, that are resampled. values: one score per query, perhaps NaN."""
        known = ~np.isnan(values)
        return int(known.sum()) if self.clusters is None else len(np.unique(self.clusters[known]))

    def options(self, known: np.ndarray | slice = slice(None)) -> dict[str, Any]:
        """The options of an interval in ``holdfast.metrics``. known: which queries have a score; default: all."""
        clusters = None if self.clusters is None else self.clusters[known]
        return {"confidence": self.confidence, "resamples": self.resamples, "seed": self.seed, "clusters": clusters}


def mean_estimate(values: np.ndarray, resampling: Resampling) -> Estimate:
    """The mean of one score per query; NaN does not count."""
    known = ~np.isnan(values)
    return Estimate(float(values[known].mean()), *mean_interval(values[known], **resampling.options(known)))


def share_of_means(found: np.ndarray, ceiling: np.ndarray, resampling: Resampling) -> Estimate:
    """mean(found) / mean(ceiling), scores of the same queries; NaN does not count. NaN if mean(ceiling) is zero."""
    known = ~np.isnan(found) & ~np.isnan(ceiling)
    first, second = found[known], ceiling[known]
    share = float(first.mean() / second.mean()) if second.mean() > 0 else math.nan
    return Estimate(share, *share_interval(first, second, **resampling.options(known)))


def score_estimate(outcomes: QueryOutcomes, score: Score, pairs: Pairs | None, resampling: Resampling) -> Estimate:
    """The score of one set of queries on one gallery."""
    if pairs is None:
        return mean_estimate(outcomes.values, resampling)
    low, high = _pair_interval(lambda each: _pair_draws(outcomes, score, pairs, each), outcomes, resampling)
    return Estimate(pair_score(outcomes, score, pairs), max(low, 0.0), high)


def gain_estimate(
    before: QueryOutcomes,
    after: QueryOutcomes,
    score: Score,
    pairs: tuple[Pairs | None, Pairs | None],
    resampling: Resampling,
) -> Estimate:
    """Score of ``after`` minus score of ``before``; both are computed on the same resampled queries."""
    first_pairs, second_pairs = pairs
    if first_pairs is not None and second_pairs is not None:

        def draw(each: Resampling) -> np.ndarray:
            return _pair_draws(after, score, second_pairs, each) - _pair_draws(before, score, first_pairs, each)

        gain = pair_score(after, score, second_pairs) - pair_score(before, score, first_pairs)
        return Estimate(gain, *_pair_interval(draw, before, resampling))
    known = ~np.isnan(before.values) & ~np.isnan(after.values)
    first, second = before.values[known], after.values[known]
    return Estimate(float(second.mean() - first.mean()), *gain_interval(first, second, **resampling.options(known)))


def share_estimate(
    found: QueryOutcomes,
    ceiling: QueryOutcomes,
    score: Score,
    pairs: tuple[Pairs | None, Pairs | None],
    resampling: Resampling,
) -> Estimate:
    """Score of ``found`` divided by that of ``ceiling``, on the same resampled queries; NaN if the latter is zero."""
    first_pairs, second_pairs = pairs
    if first_pairs is None or second_pairs is None:
        return share_of_means(found.values, ceiling.values, resampling)
    best = pair_score(ceiling, score, second_pairs)
    if not best > 0:
        return Estimate(math.nan, math.nan, math.nan)

    def draw(each: Resampling) -> np.ndarray:
        below = _pair_draws(ceiling, score, second_pairs, each)
        above = _pair_draws(found, score, first_pairs, each)
        return np.divide(above, below, out=np.full(len(above), np.nan), where=below > 0)

    low, high = _drawn_interval(draw, found, resampling)
    # As in ``share_interval``: the interval of the gain is never of width 0.
    gain = gain_estimate(ceiling, found, score, (second_pairs, first_pairs), resampling)
    low, high = min(low, 1 + gain.low / best), max(high, 1 + gain.high / best)
    return Estimate(pair_score(found, score, first_pairs) / best, max(0.0, low), high)


def units_needed(
    before: QueryOutcomes, after: QueryOutcomes, gain: Estimate, bound: float, resampling: Resampling, *, of_pairs: bool
) -> int | None:
    """How many queries, or classes, would put the interval of the gain on one side of ``bound``; see the metrics.

    of_pairs: whether the gain is one of a score of pairs.
    """
    ends = (gain.low, gain.high)
    if of_pairs or resampling.clusters is not None:
        return units_to_decide(gain.value, ends, bound, resampling.units(before.values))
    known = ~np.isnan(before.values) & ~np.isnan(after.values)
    return queries_to_decide(before.values[known], after.values[known], ends, bound)


def pair_score(outcomes: QueryOutcomes, score: Score, pairs: Pairs) -> float:
    if score.kind == "auc":
        return roc_auc(outcomes.scored, pairs.same)
    return tar_at_far(outcomes.scored, pairs.same, score.far)


def _pair_interval(
    draw: Callable[[Resampling], np.ndarray], outcomes: QueryOutcomes, resampling: Resampling
) -> tuple[float, float]:
    """The interval of a score of pairs, or of a gain."""
    low, high = _drawn_interval(draw, outcomes, resampling)
    if low == high:  # at least as wide as for so many queries of which none changed
        by_query = replace(resampling, clusters=None)
        nothing = np.zeros(by_query.units(outcomes.values))
        margin = gain_interval(nothing, nothing, **by_query.options())
        low, high = low + margin[0], high + margin[1]
    return max(low, -1.0), min(high, 1.0)


def _drawn_interval(
    draw: Callable[[Resampling], np.ndarray], outcomes: QueryOutcomes, resampling: Resampling
) -> tuple[float, float]:
    """The interval of what ``draw`` returns for each resample, over queries and, with clusters, also over classes."""
    by_query, known = replace(resampling, clusters=None), ~np.isnan(outcomes.values)
    return covering_interval(
        lambda classes: draw(by_query if classes is None else resampling),
        int(known.sum()),
        resampling.options(known)["clusters"],
        resampling.confidence,
    )


def _pair_draws(outcomes: QueryOutcomes, score: Score, pairs: Pairs, resampling: Resampling) -> np.ndarray:
    """The score in every resample of the queries, each with its pairs, or of the classes."""
    queries = len(outcomes.values)
    clusters = resampling.clusters
    member = np.arange(queries) if clusters is None else np.unique(clusters, return_inverse=True)[1]
    height = max(1, _WEIGHTS_AT_ONCE // len(pairs.query))
    found = []
    for block in draw_weights(int(member.max()) + 1, resampling.resamples, resampling.seed):
        for start in range(0, len(block), height):
            weights = block[start : start + height, member[pairs.query]]
            if score.kind == "auc":
                found.append(weighted_roc_auc(outcomes.scored, pairs.same, weights))
            else:
                found.append(weighted_tar_at_far(outcomes.scored, pairs.same, weights, score.far))
    return np.concatenate(found)
