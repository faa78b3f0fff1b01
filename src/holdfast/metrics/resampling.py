"""Confidence intervals of means over queries, and McNemar's test.

The bootstrap resamples queries, or whole classes of queries; models and gallery are fixed. Intervals are two-sided
percentile intervals. They are widened for few units, because plain percentile intervals are then too narrow.
"""

import math
from collections.abc import Callable, Iterator
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from holdfast.core.errors import HoldfastError
from holdfast.core.real_arrays import real_array
from holdfast.metrics.distributions import fair_coin_tail, student_quantile

RESAMPLES = 4000
"""Default number of resamples: the ends of a 95 % interval are then at 2.5 % +- 0.25 %."""
_ELEMENTS = 1 << 22  # weights in memory at a time
_FEW_CHANGES = 10  # fewer changed scores do not show how large a change can be
_ADDED = 3  # queries that ``gain_interval`` adds
MOST_NEEDED = 100_000
"""More queries than these are not proposed, unless they are less than ten times those at hand."""


def draw_weights(units: int, resamples: int, seed: int, shares: ArrayLike | None = None) -> Iterator[NDArray[np.int64]]:
    """Yield blocks of rows with the number of times each unit is drawn in a resample: b x units, or b x groups.

    units: units drawn in each resample; every row sums to it.
    resamples: rows in all blocks together.
    seed: of the random generator.
    shares: sizes of groups of equal units, summing to 1; the numbers are then per group.

    >>> [block.sum(axis=1).tolist() for block in draw_weights(3, 2, seed=0)]
    [[3, 3]]
    """
    draw = np.random.default_rng(seed)
    width = units if shares is None else len(np.asarray(shares))
    at_once = max(1, _ELEMENTS // max(1, width))
    for start in range(0, resamples, at_once):
        rows = min(at_once, resamples - start)
        if shares is None:  # ten times faster than drawing multinomial counts
            drawn = draw.integers(0, units, (rows, units)) + units * np.arange(rows)[:, None]
            yield np.bincount(drawn.ravel(), minlength=rows * units).reshape(rows, units)
        else:
            yield draw.multinomial(units, np.asarray(shares, dtype=np.float64), size=rows)


def resampled_means(
    values: ArrayLike, *, resamples: int = RESAMPLES, seed: int = 0, clusters: ArrayLike | None = None
) -> NDArray[np.float64]:
    """Mean of each row of ``values`` in each resample of the queries: resamples x V. All rows share the resamples.

    values: V x Q, or Q for one row.
    resamples, seed: number of resamples, and seed of the random generator.
    clusters: Q labels; whole clusters are drawn instead of single queries.

    >>> resampled_means([[1.0, 1.0, 1.0]], resamples=2).tolist()
    [[1.0], [1.0]]
    """
    table = np.atleast_2d(real_array(values, "scores", np.float64))
    if table.shape[1] == 0:
        raise HoldfastError("resampling: there are no queries to draw from")
    if clusters is not None:
        drawn = _drawn_sums(_cluster_sums(table, clusters), resamples, seed)
        return drawn[:, :-1] / drawn[:, -1:]
    return _drawn_sums(table, resamples, seed) / table.shape[1]


def mean_interval(
    values: ArrayLike,
    *,
    confidence: float = 0.95,
    resamples: int = RESAMPLES,
    seed: int = 0,
    clusters: ArrayLike | None = None,
) -> tuple[float, float]:
    """Confidence interval of the mean of ``values``, as (low, high).

    values: one score per query.
    confidence: for example 0.95.
    resamples, seed: number of resamples, and seed of the random generator.
    clusters: one label per query; the result then covers the interval over clusters and the one over queries.

    If all values are 0 or 1, one 0 and one 1 are added before resampling. Otherwise all-correct queries would give an
    interval of width 0.

    >>> low, high = mean_interval([1.0] * 100)
    >>> 0.9 < low < high == 1.0
    True
    """
    scores = _checked(values, confidence)
    added = np.array([0.0, 1.0]) if _all_zero_or_one(scores) else np.zeros(0)
    drawn = np.concatenate([scores, added])
    low, high = _interval(drawn, len(drawn), scores, clusters, confidence, resamples=resamples, seed=seed)
    return max(low, 0.0), high


def gain_interval(
    before: ArrayLike,
    after: ArrayLike,
    *,
    confidence: float = 0.95,
    resamples: int = RESAMPLES,
    seed: int = 0,
    clusters: ArrayLike | None = None,
) -> tuple[float, float]:
    """Confidence interval of mean(after) - mean(before) by a paired bootstrap, as (low, high).

    before, after: scores of the same queries, one per query.
    confidence, resamples, seed, clusters: as in ``mean_interval``.

    If all scores are 0 or 1, or fewer than ten changed, three queries are added before resampling, half with a gain of
    1 and half with a loss of 1. Otherwise ten queries without a change would give the same interval as a million.

    >>> low, high = gain_interval([0.0] * 50 + [1.0] * 50, [1.0] * 100)
    >>> 0.3 < low < 0.5 < high < 0.7
    True
    """
    first, second = _checked(before, confidence), _checked(after, confidence)
    if first.shape != second.shape:
        raise HoldfastError(
            f"paired scores: {len(first)} before and {len(second)} after; both must be scores of the same queries"
        )
    gains = second - first
    # 1.5 queries of +1 and 1.5 of -1: all counts are doubled to make them whole. With fewer, if all changes have one
    # sign, the interval would miss the true gain on one side in over 5 % of samples.
    drawn = np.concatenate([np.repeat(gains, 2), [1.0, -1.0] * _ADDED]) if _needs_added(first, second) else gains
    return _interval(drawn, len(gains) + _ADDED, gains, clusters, confidence, resamples=resamples, seed=seed)


def queries_to_decide(before: ArrayLike, after: ArrayLike, interval: tuple[float, float], bound: float) -> int | None:
    """The number of queries at which the interval of the gain would lie on one side of ``bound``.

    before, after: scores of the same queries, one per query.
    interval: the interval of the gain by ``gain_interval``, which includes ``bound``.
    bound: the gain that is asked for.

    The gain and its variance are taken to stay as they are, so the number is a guide and not a guarantee. None if the
    gain is so near to ``bound`` that more than ``MOST_NEEDED`` queries would be needed.

    >>> before, after = [1.0] * 90 + [0.0] * 10, [1.0] * 92 + [0.0] * 8
    >>> queries_to_decide(before, after, gain_interval(before, after), -0.01)
    144
    """
    first, second = real_array(before, "scores before", np.float64), real_array(after, "scores after", np.float64)
    gains = second - first
    if not _needs_added(first, second):
        return units_to_decide(float(gains.mean()), interval, bound, len(gains))
    value, variance = float(gains.mean()), float(gains.var())
    present, wanted = _half_widths(value, interval, bound)
    if wanted == 0:
        return None
    # The width of n queries and a added ones is in proportion to sqrt(n * variance + a) / (n + a); solved for n.
    now = math.sqrt(len(gains) * variance + _ADDED) / (len(gains) + _ADDED)
    ratio = (now * wanted / present) ** 2
    root = math.sqrt(variance**2 + 4 * ratio * _ADDED * (1 - variance))
    return _worth_asking(float((variance + root) / (2 * ratio)) - _ADDED, len(gains))


def units_to_decide(value: float, interval: tuple[float, float], bound: float, units: int) -> int | None:
    """``queries_to_decide`` from the interval alone, which narrows with the square root of the number of units.

    value, interval: the gain and its interval, which includes ``bound``.
    units: queries, or classes of queries, that the interval comes from.

    >>> units_to_decide(0.01, (-0.03, 0.05), -0.01, 100), units_to_decide(-0.01, (-0.03, 0.01), -0.01, 100)
    (401, None)
    """
    present, wanted = _half_widths(value, interval, bound)
    return None if wanted == 0 else _worth_asking(units * (present / wanted) ** 2, units)


def _half_widths(value: float, interval: tuple[float, float], bound: float) -> tuple[float, float]:
    """The width of the interval on the side of ``bound``, and the width at which it would end there."""
    side = value - interval[0] if value > bound else interval[1] - value
    return side, abs(value - bound)


def _worth_asking(needed: float, units: int) -> int | None:
    if not needed <= max(MOST_NEEDED, 10 * units):
        return None
    return max(math.floor(round(needed, 6)), units) + 1


def _needs_added(before: NDArray[np.float64], after: NDArray[np.float64]) -> bool:
    """Whether the scores alone do not show how large a change can be."""
    binary = _all_zero_or_one(before) and _all_zero_or_one(after)
    return binary or int(np.count_nonzero(after - before)) < _FEW_CHANGES


def ratio_interval(
    above: ArrayLike,
    below: ArrayLike,
    *,
    confidence: float = 0.95,
    resamples: int = RESAMPLES,
    seed: int = 0,
    clusters: ArrayLike | None = None,
) -> tuple[float, float]:
    """Confidence interval of mean(above) / mean(below) by a paired bootstrap, as (low, high), at least 0.

    above, below: numbers of the same queries, at least 0, one per query.
    confidence, resamples, seed, clusters: as in ``mean_interval``.

    (NaN, NaN) if mean(below) is zero.

    >>> low, high = ratio_interval([1.0, 0.0] * 50, [1.0] * 100)
    >>> 0.35 < low < 0.5 < high < 0.65
    True
    """
    first, second = _checked(above, confidence), _checked(below, confidence)
    if second.mean() == 0:
        return math.nan, math.nan

    def ratios(groups: NDArray[Any] | None) -> NDArray[np.float64]:
        drawn = resampled_means([first, second], resamples=resamples, seed=seed, clusters=groups)
        return np.divide(drawn[:, 0], drawn[:, 1], out=np.full(len(drawn), np.nan), where=drawn[:, 1] > 0)

    low, high = covering_interval(ratios, len(first), clusters, confidence)
    return max(0.0, low), high


def share_interval(score: ArrayLike, ceiling: ArrayLike, **options: Any) -> tuple[float, float]:
    """Confidence interval of mean(score) / mean(ceiling), two scores of the same queries in [0, 1], as (low, high).

    options: as for ``ratio_interval``.

    It covers the interval of the ratio and the one that follows from the gain: equal scores in every resample, or few
    queries with a score above 0, would give a ratio interval of width 0, and that of the gain is never that narrow.
    """
    low, high = ratio_interval(score, ceiling, **options)
    best = float(real_array(ceiling, "ceiling", np.float64).mean())
    if best == 0:
        return low, high
    ends = [1 + end / best for end in gain_interval(ceiling, score, **options)]
    return max(0.0, min(low, ends[0])), max(high, ends[1])


def percentile_interval(draws: ArrayLike, units: int, confidence: float = 0.95) -> tuple[float, float]:
    """Two-sided expanded percentile interval, as (low, high).

    draws: bootstrap values of a statistic; NaN values are left out.
    units: number of independent units that were resampled.
    confidence: for example 0.95.

    The tails are smaller than (1 - confidence) / 2 by the ratio of Student's t with units - 1 degrees of freedom to the
    normal quantile. The ends are rounded outwards to a drawn value. (-inf, inf) for fewer than two units.

    >>> percentile_interval([0.0, 1.0, 2.0, 3.0], units=1000, confidence=0.5)
    (0.0, 3.0)
    """
    known = real_array(draws, "draws", np.float64)
    known = known[~np.isnan(known)]
    if units < 2 or len(known) == 0:
        return -math.inf, math.inf
    student_t = student_quantile((1 + confidence) / 2, units - 1)
    tail = NormalDist().cdf(-math.sqrt(units / (units - 1)) * student_t)
    low, high = np.quantile(known, tail, method="lower"), np.quantile(known, 1 - tail, method="higher")
    return float(low), float(high)


def covering_interval(
    draw: Callable[[NDArray[Any] | None], ArrayLike], queries: int, clusters: ArrayLike | None, confidence: float
) -> tuple[float, float]:
    """The interval over resampled queries; with clusters, it also covers the one over resampled clusters.

    draw: returns bootstrap values of a statistic; called with None to resample queries, and with ``clusters``.
    queries: number of queries.
    clusters, confidence: as in ``mean_interval``.
    """
    low, high = percentile_interval(draw(None), queries, confidence)
    if clusters is not None:
        groups = real_array(clusters, "clusters")
        by_cluster = percentile_interval(draw(groups), len(np.unique(groups)), confidence)
        low, high = min(low, by_cluster[0]), max(high, by_cluster[1])
    return low, high


def _interval(
    drawn: NDArray[np.float64],
    size: int,
    scores: NDArray[np.float64],
    clusters: ArrayLike | None,
    confidence: float,
    *,
    resamples: int,
    seed: int,
) -> tuple[float, float]:
    def means(groups: NDArray[Any] | None) -> NDArray[np.float64]:
        if groups is not None or len(drawn) == len(scores):
            return resampled_means(scores, resamples=resamples, seed=seed, clusters=groups)[:, 0]
        # With added queries, ``size`` in all: there are few different values, so their counts are drawn.
        patterns, counts = np.unique(drawn, return_counts=True)
        blocks = draw_weights(size, resamples, seed, counts / len(drawn))
        found: NDArray[np.float64] = np.concatenate([block @ patterns for block in blocks]) / size
        return found

    low, high = covering_interval(means, len(scores), clusters, confidence)
    return max(low, -1.0), min(high, 1.0)  # scores are in [0, 1], so means and gains are in [-1, 1]


def _drawn_sums(table: NDArray[np.float64], resamples: int, seed: int) -> NDArray[np.float64]:
    """The sum of each row of ``table`` (V x units) over each resample of its units: resamples x V."""
    units = table.shape[1]
    patterns, counts = np.unique(table, axis=1, return_counts=True)
    # Equal units form a group. Drawing the counts of few groups has the same distribution and is much cheaper.
    if len(counts) <= units // 8:
        return np.concatenate([block @ patterns.T for block in draw_weights(units, resamples, seed, counts / units)])
    return np.concatenate([block @ table.T for block in draw_weights(units, resamples, seed)])


def _cluster_sums(table: NDArray[np.float64], clusters: ArrayLike) -> NDArray[np.float64]:
    """(V + 1) x C: for each cluster the sums of its values and, in the last row, its size."""
    _, member = np.unique(real_array(clusters, "clusters"), return_inverse=True)
    if member.shape != table.shape[1:]:
        raise HoldfastError(f"resampling: {table.shape[1]} queries, but {len(member)} cluster labels")
    return np.stack([np.bincount(member, weights=row) for row in (*table, np.ones(table.shape[1]))])


def _all_zero_or_one(values: NDArray[np.float64]) -> bool:
    return bool(np.isin(values, (0.0, 1.0)).all())


def _checked(values: ArrayLike, confidence: float) -> NDArray[np.float64]:
    scores = real_array(values, "scores", np.float64)
    if scores.ndim != 1 or len(scores) == 0 or np.isnan(scores).any():
        raise HoldfastError(f"an interval needs one known score per query, and at least one; got shape {scores.shape}")
    if not 0 < confidence < 1:
        raise HoldfastError(f"confidence must be between 0 and 1, for example 0.95; got {confidence:g}")
    return scores


def exact_mcnemar(gained: int, lost: int) -> float:
    """Two-sided p-value in (0, 1] of the hypothesis that gains and losses are equally likely.

    gained: queries that became correct.
    lost: queries that became wrong.

    Exact: twice the binomial tail with probability 1/2, at most 1. Queries that did not change are not counted. 1 if
    none changed. Queries are assumed to be independent.

    >>> round(exact_mcnemar(6, 0), 9), exact_mcnemar(3, 3), exact_mcnemar(0, 0)
    (0.03125, 1.0, 1.0)
    """
    if gained < 0 or lost < 0:
        raise HoldfastError(f"McNemar's test: gained and lost must be at least 0, got {gained} and {lost}")
    return min(1.0, 2 * fair_coin_tail(min(gained, lost), gained + lost))
