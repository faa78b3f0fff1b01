"""Resampled means of queries, for numbers that are no mean of one score per query, and McNemar's test.

Queries are resampled, or whole classes of queries; models and gallery are fixed. Intervals are two-sided percentile
intervals, widened for few units. For means, gains and ratios of scores use ``holdfast.metrics.intervals``.
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
    clusters: one label per query, or None. confidence: for example 0.95.
    """
    low, high = percentile_interval(draw(None), queries, confidence)
    if clusters is not None:
        groups = real_array(clusters, "clusters")
        by_cluster = percentile_interval(draw(groups), len(np.unique(groups)), confidence)
        low, high = min(low, by_cluster[0]), max(high, by_cluster[1])
    return low, high


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
