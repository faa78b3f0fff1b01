"""Scores and gains with their intervals, for scores of queries and for scores of pairs."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from holdfast.evaluation.query_outcomes import Pairs, QueryOutcomes
from holdfast.evaluation.scores import Score
from holdfast.metrics import (
    draw_weights,
    gain_interval,
    mean_interval,
    percentile_interval,
    roc_auc,
    tar_at_far,
    weighted_roc_auc,
    weighted_tar_at_far,
)
from holdfast.metrics.resampling import queries_to_decide, share_interval, units_to_decide

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


def score_estimate(outcomes: QueryOutcomes, score: Score, pairs: Pairs | None, resampling: Resampling) -> Estimate:
    """The score of one set of queries on one gallery."""
    if pairs is not None:
        low, high = _pair_interval(lambda unit: _pair_draws(outcomes, score, pairs, unit), outcomes, resampling)
        return Estimate(pair_score(outcomes, score, pairs), max(low, 0.0), high)
    known = ~np.isnan(outcomes.values)
    values = outcomes.values[known]
    return Estimate(float(values.mean()), *mean_interval(values, **_options(resampling, known)))


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
    return Estimate(float(second.mean() - first.mean()), *gain_interval(first, second, **_options(resampling, known)))


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
        known = ~np.isnan(found.values) & ~np.isnan(ceiling.values)
        first, second = found.values[known], ceiling.values[known]
        share = float(first.mean() / second.mean()) if second.mean() > 0 else math.nan
        return Estimate(share, *share_interval(first, second, **_options(resampling, known)))
    best = pair_score(ceiling, score, second_pairs)
    if not best > 0:
        return Estimate(math.nan, math.nan, math.nan)

    def draw(each: Resampling) -> np.ndarray:
        below = _pair_draws(ceiling, score, second_pairs, each)
        above = _pair_draws(found, score, first_pairs, each)
        return np.divide(above, below, out=np.full(len(above), np.nan), where=below > 0)

    ways = [resampling] if resampling.clusters is None else [resampling, replace(resampling, clusters=None)]
    ends = [percentile_interval(draw(each), units(each, found), resampling.confidence) for each in ways]
    return Estimate(
        pair_score(found, score, first_pairs) / best,
        max(0.0, min(low for low, _ in ends)),
        max(high for _, high in ends),
    )


def units_needed(
    before: QueryOutcomes, after: QueryOutcomes, gain: Estimate, bound: float, resampling: Resampling, *, of_pairs: bool
) -> int | None:
    """How many queries, or classes, would put the interval of the gain on one side of ``bound``; see the metrics.

    of_pairs: whether the gain is one of a score of pairs.
    """
    ends = (gain.low, gain.high)
    if of_pairs or resampling.clusters is not None:
        return units_to_decide(gain.value, ends, bound, units(resampling, before))
    known = ~np.isnan(before.values) & ~np.isnan(after.values)
    return queries_to_decide(before.values[known], after.values[known], ends, bound)


def units(resampling: Resampling, outcomes: QueryOutcomes) -> int:
    """The number of queries, or of their classes, that are resampled."""
    known = ~np.isnan(outcomes.values)
    return int(known.sum()) if resampling.clusters is None else len(np.unique(resampling.clusters[known]))


def pair_score(outcomes: QueryOutcomes, score: Score, pairs: Pairs) -> float:
    if score.kind == "auc":
        return roc_auc(outcomes.scored, pairs.same)
    return tar_at_far(outcomes.scored, pairs.same, score.far)


def _pair_interval(
    draw: Callable[[Resampling], np.ndarray], outcomes: QueryOutcomes, resampling: Resampling
) -> tuple[float, float]:
    """The interval of a score of pairs, or of a gain; with clusters it spans the intervals by class and by query."""
    ways = [resampling] if resampling.clusters is None else [resampling, replace(resampling, clusters=None)]
    ends = [percentile_interval(draw(each), units(each, outcomes), resampling.confidence) for each in ways]
    low, high = min(low for low, _ in ends), max(high for _, high in ends)
    if low == high:  # at least as wide as for so many queries of which none changed
        nothing = np.zeros(units(replace(resampling, clusters=None), outcomes))
        options = {"confidence": resampling.confidence, "resamples": resampling.resamples, "seed": resampling.seed}
        margin = gain_interval(nothing, nothing, **options)  # type: ignore[arg-type]
        low, high = low + margin[0], high + margin[1]
    return max(low, -1.0), min(high, 1.0)


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


def _options(resampling: Resampling, known: np.ndarray) -> dict[str, Any]:
    clusters = None if resampling.clusters is None else resampling.clusters[known]
    return {
        "confidence": resampling.confidence,
        "resamples": resampling.resamples,
        "seed": resampling.seed,
        "clusters": clusters,
    }
