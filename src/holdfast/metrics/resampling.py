"""How sure a mean over queries is: intervals by resampling the queries, or whole classes of them.

What is resampled are the queries; the models and the gallery stay as they are. Intervals are two-sided percentile
intervals of the bootstrap, made a little wider for few units, where plain ones are too narrow.

Did more queries turn right than turned wrong, or is it chance?
"""

import math
from collections.abc import Iterator
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike, NDArray

from holdfast.errors import HoldfastError

RESAMPLES = 4000
"""Resamples drawn unless told otherwise: the ends of a 95 % interval then stand at 2.5 % give or take 0.25."""
_ELEMENTS = 1 << 22  # weights held at once
_FEW_CHANGES = 10  # so few changed scores say little of how large a change can be


def draw_weights(units: int, resamples: int, seed: int, shares: ArrayLike | None = None) -> Iterator[NDArray[np.int64]]:
    """How often each unit is drawn in each resample, b x units at a time, ``resamples`` rows in all.

    Every row sums to ``units``. ``shares`` (summing to 1) groups equal units: then a row still sums to ``units``.

    >>> [block.sum(axis=1).tolist() for block in draw_weights(3, 2, seed=0)]
    [[3, 3]]
    """
    draw = np.random.default_rng(seed)
    width = units if shares is None else len(np.asarray(shares))
    at_once = max(1, _ELEMENTS // max(1, width))
    for start in range(0, resamples, at_once):
        rows = min(at_once, resamples - start)
        if shares is None:  # counting drawn numbers is ten times faster than drawing the counts
            drawn = draw.integers(0, units, (rows, units)) + units * np.arange(rows)[:, None]
            yield np.bincount(drawn.ravel(), minlength=rows * units).reshape(rows, units)
        else:
            yield draw.multinomial(units, np.asarray(shares, dtype=np.float64), size=rows)


def resampled_means(
    values: ArrayLike, *, resamples: int = RESAMPLES, seed: int = 0, clusters: ArrayLike | None = None
) -> NDArray[np.float64]:
    """The mean of each row of ``values`` (V x Q) in each resample of the Q queries: resamples x V, drawn jointly.

    ``clusters`` (Q labels): whole clusters are drawn instead of single queries.

    >>> resampled_means([[1.0, 1.0, 1.0]], resamples=2).tolist()
    [[1.0], [1.0]]
    """
    table = np.atleast_2d(np.asarray(values, dtype=np.float64))
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
    """The interval of the mean of ``values`` (one number per query).

    Where all values are 0 or 1, one of each is added before drawing: without them nothing but successes would give an
    interval of no width. With ``clusters`` the interval spans that of the clusters and that of the single queries.

    >>> low, high = mean_interval([1.0] * 100)
    >>> 0.9 < low < high == 1.0
    True
    """
    scores = _checked(values, confidence)
    added = np.array([0.0, 1.0]) if _right_or_wrong(scores) else np.zeros(0)
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
    """The interval of mean(after) - mean(before), both scores of the same queries: a paired bootstrap.

    Where all scores are 0 or 1, or fewer than ten changed, three queries are added before drawing, half of which gain
    all and half lose all: without them no change in ten queries would be as sure as none in a million.
    With ``clusters`` the interval spans that of the clusters and that of the single queries.

    >>> low, high = gain_interval([0.0] * 50 + [1.0] * 50, [1.0] * 100)
    >>> 0.3 < low < 0.5 < high < 0.7
    True
    """
    first, second = _checked(before, confidence), _checked(after, confidence)
    if first.shape != second.shape:
        raise HoldfastError(
            f"paired scores: {len(first)} before and {len(second)} after; they must be the same queries"
        )
    gains = second - first
    binary = _right_or_wrong(first) and _right_or_wrong(second)
    doubtful = binary or np.count_nonzero(gains) < _FEW_CHANGES
    # Three halves of +1 and of -1: everything twice, to count in whole ones. Fewer would not do: where all changes go
    # one way, the interval would then miss the true gain on one side in over 5 % of samples.
    drawn = np.concatenate([np.repeat(gains, 2), [1.0, -1.0] * 3]) if doubtful else gains
    return _interval(drawn, len(gains) + 3, gains, clusters, confidence, resamples=resamples, seed=seed)


def percentile_interval(draws: ArrayLike, units: int, confidence: float = 0.95) -> tuple[float, float]:
    """The two-sided interval from bootstrap ``draws`` of a statistic of ``units`` independent units.

    The tails are cut thinner than (1 - confidence) / 2 by what Student's t asks for with so few units (the expanded
    percentile interval), and rounded outwards to a drawn value. (-inf, inf) for fewer than two units; NaN draws are
    left out.

    >>> percentile_interval([0.0, 1.0, 2.0, 3.0], units=1000, confidence=0.5)
    (0.0, 3.0)
    """
    known = np.asarray(draws, dtype=np.float64)
    known = known[~np.isnan(known)]
    if units < 2 or len(known) == 0:
        return -math.inf, math.inf
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    tail = NormalDist().cdf(-math.sqrt(units / (units - 1)) * _student(z, units - 1))
    low, high = np.quantile(known, tail, method="lower"), np.quantile(known, 1 - tail, method="higher")
    return float(low), float(high)


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
    if len(drawn) == len(scores):
        means = resampled_means(scores, resamples=resamples, seed=seed)[:, 0]
    else:  # with queries added, ``size`` in all; few different values, so that these are drawn and not the queries
        patterns, counts = np.unique(drawn, return_counts=True)
        blocks = draw_weights(size, resamples, seed, counts / len(drawn))
        means = np.concatenate([block @ patterns for block in blocks]) / size
    low, high = percentile_interval(means, len(scores), confidence)
    if clusters is not None:
        means = resampled_means(scores, resamples=resamples, seed=seed, clusters=clusters)[:, 0]
        by_cluster = percentile_interval(means, len(np.unique(np.asarray(clusters))), confidence)
        low, high = min(low, by_cluster[0]), max(high, by_cluster[1])
    return max(low, -1.0), min(high, 1.0)  # scores lie in [0, 1], so means and gains cannot leave [-1, 1]


def _drawn_sums(table: NDArray[np.float64], resamples: int, seed: int) -> NDArray[np.float64]:
    """The sum of each row of ``table`` (V x units) over each resample of its units: resamples x V."""
    units = table.shape[1]
    patterns, counts = np.unique(table, axis=1, return_counts=True)
    # Equal units are one group: drawing the sizes of few groups is the same distribution at a fraction of the cost.
    if len(counts) <= units // 8:
        return np.concatenate([block @ patterns.T for block in draw_weights(units, resamples, seed, counts / units)])
    return np.concatenate([block @ table.T for block in draw_weights(units, resamples, seed)])


def _student(z: float, freedom: int) -> float:
    """Student's t quantile from the normal one (Cornish and Fisher's expansion); within 1 % from 4 degrees on."""
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / freedom + second / freedom**2 + third / freedom**3


def _cluster_sums(table: NDArray[np.float64], clusters: ArrayLike) -> NDArray[np.float64]:
    """(V + 1) x C: the sums of each cluster's values and, last, its size."""
    _, member = np.unique(np.asarray(clusters), return_inverse=True)
    if member.shape != table.shape[1:]:
        raise HoldfastError(f"resampling: {table.shape[1]} queries, but clusters of {len(member)}")
    return np.stack([np.bincount(member, weights=row) for row in (*table, np.ones(table.shape[1]))])


def _right_or_wrong(values: NDArray[np.float64]) -> bool:
    return bool(np.isin(values, (0.0, 1.0)).all())


def _checked(values: ArrayLike, confidence: float) -> NDArray[np.float64]:
    scores = np.asarray(values, dtype=np.float64)
    if scores.ndim != 1 or len(scores) == 0 or np.isnan(scores).any():
        raise HoldfastError(f"an interval needs one known score per query, at least one; got shape {scores.shape}")
    if not 0 < confidence < 1:
        raise HoldfastError(f"confidence must lie between 0 and 1, for example 0.95; got {confidence:g}")
    return scores


def exact_mcnemar(gained: int, lost: int) -> float:
    """The two-sided p-value, in (0, 1], of ``gained`` against ``lost`` changed queries if both were equally likely.

    Exact: the binomial tail with chance 1/2, doubled and cut at 1. Queries that did not change do not count; 1 where
    none did. It takes queries as independent.

    >>> round(exact_mcnemar(6, 0), 9), exact_mcnemar(3, 3), exact_mcnemar(0, 0)
    (0.03125, 1.0, 1.0)
    """
    if gained < 0 or lost < 0:
        raise HoldfastError(f"McNemar's test counts queries, but got {gained} and {lost}")
    changed, fewer = gained + lost, min(gained, lost)
    i = np.arange(1, fewer + 1, dtype=np.float64)
    # log of the binomial coefficients by their ratios: n over i is too large for a float beyond a thousand.
    logs = np.concatenate([[0.0], np.cumsum(np.log(changed - i + 1) - np.log(i))]) - changed * np.log(2)
    top = logs.max()
    return float(min(1.0, 2 * np.exp(top) * np.exp(logs - top).sum()))
