"""Intervals of means over queries that hold for few changes, repeated queries, and queries in groups.

A check asks: is the gain above 0, and above minus the accepted loss? It answers "yes" if the lower end of the gain's
interval is. A false "yes" should come in at most 2.5 % of the checks (at a confidence of 0.95), whatever the queries
are. Three things make plain intervals fail, and each has its own remedy:

- **Few changes.** If 3 of 300 queries changed, a normal or bootstrap interval is too narrow. The bound used here is
  that of Gaffke: the quantile of a Bayesian bootstrap (the queries get random weights) with one more query that has the
  worst possible value. For hits it is the exact interval of Clopper and Pearson, for gained and lost hits McNemar's
  exact test, and no bounded score is known for which it fails. It is computed by a saddlepoint approximation, so
  nothing is drawn and there is no seed.
- **Repeated queries.** 300 queries, each 20 times, are not 6,000. ``repeats`` says which are the same: they count as
  one query with the mean of their scores. ``repeated_queries`` finds them from the vectors of both models.
- **Groups.** Queries of one class, one person or one document gain and lose together. ``groups`` says which belong
  together; pass what there is. ``same_answers`` finds groups from the judgements: queries with the same right items,
  which are classes where there are classes. The interval then also covers the one by whole groups: a cluster-robust t
  interval with the correction CR2, Satterthwaite's degrees of freedom, and a correction for skewed groups. It is never
  narrower than the one by queries.

``bench/false_yes.py`` measures how often "yes" is false: in each of its designs at most 3.2 %, but 4.7 % for 15 classes
of which few lose much (exponential losses). A group that is not passed cannot be seen, and neither can a loss in
classes that the queries do not have.

>>> before, after = [0.0] * 60 + [1.0] * 40, [1.0] * 75 + [0.0] * 25
>>> gain = gain_interval(before, after)
>>> round(gain.value, 3), round(gain.low, 3), round(gain.high, 3), gain.units, gain.unit
(0.35, 0.165, 0.515, 100, 'queries')
>>> gain_interval(before, after, groups=[i // 5 for i in range(100)]).unit
'groups of queries'
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike, NDArray

from holdfast.core.errors import HoldfastError
from holdfast.core.real_arrays import real_array
from holdfast.metrics.distributions import student_quantile

FEWEST_GROUPS = 10
"""With fewer groups an interval is called uncertain: they do not show how much groups differ."""
MOST_NEEDED = 100_000
"""More queries than these are not proposed, unless they are less than ten times those at hand."""
Floats = NDArray[np.float64]
_NORMAL = NormalDist()


@dataclass(frozen=True)
class Interval:
    """A number with its two-sided interval, and what the interval is based on.

    value, low, high: the estimate and the ends; (NaN, NaN, NaN) if it is undefined.
    confidence: of the two-sided interval; each end is missed in at most half of the rest.
    queries: scores that were given.
    distinct: queries after those that repeat count once.
    groups: number of groups; None if none were given, or if each is a single query.
    unit: what decided the width: "queries" or "groups of queries".
    design_effect: the variance by groups divided by that by queries, about 1 if groups do not matter; NaN: no groups.
    uncertain: why the interval should not be relied on; None if it may be.

    >>> gain_interval([0.0] * 40, [1.0] * 20 + [0.0] * 20, groups=[1] * 20 + [2] * 20).uncertain
    'the queries are of 2 groups, too few to show how much groups differ'
    """

    value: float
    low: float
    high: float
    confidence: float
    queries: int
    distinct: int
    groups: int | None = None
    unit: str = "queries"
    design_effect: float = math.nan
    uncertain: str | None = None

    @property
    def units(self) -> int:
        """The number of independent units that decided the width: distinct queries, or groups of them."""
        return self.distinct if self.groups is None or not self.clustered else self.groups

    @property
    def clustered(self) -> bool:
        """Whether groups gain and lose together so much that the interval is the one by groups."""
        return self.unit != "queries"


def gain_interval(
    before: ArrayLike,
    after: ArrayLike,
    *,
    groups: ArrayLike | None = None,
    repeats: ArrayLike | None = None,
    confidence: float = 0.95,
) -> Interval:
    """The interval of mean(after) - mean(before), two scores of the same queries.

    before, after: scores in [0, 1], one per query (Q). No NaN: leave out queries without a right item.
    groups: Q labels: queries that belong together, such as a class, a person, or the item they were made from.
    repeats: Q labels: queries that are the same; each counts once, with the mean of its scores.
    confidence: of the two-sided interval.

    >>> same = gain_interval([1.0] * 300, [1.0] * 300)  # no change in 300 queries: up to 1.2 points may still be lost
    >>> same.value, round(same.low, 4), round(same.high, 4)
    (0.0, -0.0122, 0.0122)
    """
    first, second = _scores(before, "scores before"), _scores(after, "scores after")
    if first.shape != second.shape:
        raise HoldfastError(
            f"paired scores: {len(first)} before and {len(second)} after; both must be scores of the same queries"
        )
    return _sample(second - first, groups, repeats, (-1.0, 1.0)).interval(confidence)


def mean_interval(
    values: ArrayLike,
    *,
    groups: ArrayLike | None = None,
    repeats: ArrayLike | None = None,
    confidence: float = 0.95,
) -> Interval:
    """The interval of the mean of one score in [0, 1] per query. Parameters as in ``gain_interval``.

    >>> all_right = mean_interval([1.0] * 20)
    >>> round(all_right.low, 2), all_right.high
    (0.83, 1.0)
    """
    return _sample(_scores(values, "scores"), groups, repeats, (0.0, 1.0)).interval(confidence)


def ratio_interval(
    above: ArrayLike,
    below: ArrayLike,
    *,
    groups: ArrayLike | None = None,
    repeats: ArrayLike | None = None,
    confidence: float = 0.95,
) -> Interval:
    """The interval of mean(above) / mean(below), two numbers in [0, 1] of the same queries. NaN if mean(below) is 0.

    It holds the ratios r for which the interval of mean(above - r * below) includes 0 (Fieller). ``high`` is infinite
    if, by groups, mean(below) may be 0. Parameters as in ``gain_interval``.

    >>> share = ratio_interval([1.0, 0.0] * 50, [1.0] * 100)
    >>> share.value, round(share.low, 2), round(share.high, 2)
    (0.5, 0.4, 0.61)
    """
    first, second = _scores(above, "numbers above"), _scores(below, "numbers below")
    if first.shape != second.shape:
        raise HoldfastError(f"ratio: {len(first)} numbers above and {len(second)} below; both need the same queries")
    top, bottom = (_sample(part, groups, repeats, (0.0, 1.0)) for part in (first, second))
    best = bottom.mean
    if best == 0:
        return replace(top.interval(confidence), value=math.nan, low=math.nan, high=math.nan)
    ratio = top.mean / best

    def difference(share: float) -> _Sample:
        return replace(top, values=top.values - share * bottom.values, limits=(-share, 1.0))

    tail = _tail(confidence)
    low = _root(lambda share: difference(share).low(tail), 0.0, ratio)
    largest = ratio + 1.0
    while difference(largest).high(tail) > 0 and largest < _LARGEST_RATIO:
        largest *= 2
    high = math.inf if largest >= _LARGEST_RATIO else _root(lambda share: difference(share).high(tail), ratio, largest)
    return replace(difference(ratio).interval(confidence), value=ratio, low=low, high=high)


_LARGEST_RATIO = 1e6


def units_needed(
    before: ArrayLike,
    after: ArrayLike,
    bound: float,
    *,
    groups: ArrayLike | None = None,
    repeats: ArrayLike | None = None,
    confidence: float = 0.95,
) -> int | None:
    """So many queries (or groups, if they decide the width) would put the gain's interval on one side of ``bound``.

    bound: a gain, such as 0, or minus the accepted loss.
    Other parameters as in ``gain_interval``, whose interval should include ``bound``.

    The gain and its spread are taken to stay as they are, so the number is a guide and not a guarantee. None if the
    gain is so near to ``bound`` that more than ``MOST_NEEDED`` would be needed.

    >>> before, after = [1.0] * 90 + [0.0] * 10, [1.0] * 92 + [0.0] * 8
    >>> units_needed(before, after, -0.01)
    157
    """
    sample = _sample(_scores(after, "after") - _scores(before, "before"), groups, repeats, (-1.0, 1.0))

    def decided(copies: float) -> bool:
        return sample.low(tail, copies) > bound or sample.high(tail, copies) < bound

    tail = _tail(confidence)
    now = sample.interval(confidence)
    most = max(MOST_NEEDED, 10 * now.units) / now.units
    if sample.mean == bound or not decided(most):
        return None
    few, enough = 0.0, most  # in units of the sample
    while (enough - few) * now.units > 0.5:
        middle = (few + enough) / 2
        few, enough = (few, middle) if middle * now.units >= 1 and decided(middle) else (middle, enough)
    return max(math.ceil(enough * now.units), now.units + 1)


def repeated_queries(*vectors: ArrayLike) -> NDArray[np.int64]:
    """Which queries are the same: for each (Q) the number of the first query with the same vectors in every set.

    vectors: Q x d each, such as those of the old and of the new model.

    Equal means a cosine above 0.9999, because a model may round the same text differently in another batch. Compared
    are queries that are neighbours in the order of a random projection: copies are always found, and nearly equal ones
    unless there are many thousands of queries. Pass the result as ``repeats``.

    >>> import numpy as np
    >>> repeated_queries(np.eye(3)[[0, 1, 0, 2]], np.eye(4)[[0, 1, 0, 1]]).tolist()
    [0, 1, 0, 3]
    """
    sets = [real_array(part, "query vectors") for part in vectors]
    count = len(sets[0])
    if any(part.ndim != 2 or len(part) != count for part in sets):
        raise HoldfastError(f"repeated queries: vectors must be Q x d each, but are {[part.shape for part in sets]}")
    sets = [part / np.maximum(np.linalg.norm(part, axis=1, keepdims=True), 1e-30) for part in sets]
    draw = np.random.default_rng(0)
    shadows = np.hstack([part @ draw.standard_normal((part.shape[1], _PROJECTIONS)) for part in sets])
    order = np.argsort(shadows[:, ::_PROJECTIONS].sum(axis=1), kind="stable")
    first = np.arange(count)  # the smallest number of each query's set, found by following numbers downwards

    def root(query: int) -> int:
        while first[query] != query:
            query = first[query]
        return query

    for step in range(1, min(_NEIGHBOURS, count - 1) + 1):
        here, there = order[:-step], order[step:]
        close = (np.abs(shadows[here] - shadows[there]) < _NEAR).all(axis=1)  # few are, so few cosines are computed
        here, there = here[close], there[close]
        equal = np.ones(len(here), dtype=bool)
        for part in sets:
            for start in range(0, len(here), _ROWS):
                rows = slice(start, start + _ROWS)
                cosine = np.einsum("ij,ij->i", part[here[rows]], part[there[rows]], dtype=np.float64)
                equal[rows] &= cosine > _SAME
        for one, other in zip(here[equal].tolist(), there[equal].tolist()):
            low, high = sorted((root(one), root(other)))
            first[high] = low
    return np.array([root(query) for query in range(count)], dtype=np.int64)


_NEIGHBOURS, _ROWS, _SAME = 16, 1 << 14, 0.9999
_PROJECTIONS, _NEAR = 8, 0.1
"""Vectors with a cosine of 0.9999 are 0.014 apart: 0.1 is seven deviations of the difference of their projections."""


def same_answers(query: ArrayLike, item: ArrayLike, queries: int) -> NDArray[np.int64]:
    """Groups by judgements: for each query (Q) the number of the first one with the same set of right items.

    query, item: the numbers of query and item of every right pair, each once.
    queries: Q. Queries without a right item are groups of their own.

    Queries of one class have the same answers, and so have queries that were made from one item.

    >>> same_answers([0, 0, 1, 2, 2], [5, 7, 5, 7, 5], 4).tolist()
    [0, 1, 0, 3]
    """
    rows, items = real_array(query, "query numbers", np.int64), real_array(item, "item numbers", np.int64)
    order = np.lexsort((items, rows))
    ends = np.searchsorted(rows[order], np.arange(1, queries))
    answers = [right.tobytes() for right in np.split(items[order], ends)]
    first: dict[bytes, int] = {}
    return np.array([first.setdefault(key, number) if key else number for number, key in enumerate(answers)], np.int64)


@dataclass(frozen=True)
class _Sample:
    """One value per distinct query, the group of each (None: no groups), and the limits of what a value can be."""

    values: Floats
    groups: NDArray[np.int64] | None
    limits: tuple[float, float]
    queries: int

    @property
    def mean(self) -> float:
        return float(self.values.mean())

    def low(self, tail: float, copies: float = 1.0) -> float:
        """The lower end. copies: as if there were so many times as many queries, and groups, of the same kinds."""
        return max(min(self._lows(tail, copies)), self.limits[0])

    def high(self, tail: float, copies: float = 1.0) -> float:
        return -self._mirrored().low(tail, copies)

    def _lows(self, tail: float, copies: float = 1.0) -> tuple[float, float]:
        """The lower end by queries and the one by groups, infinite without groups."""
        by_query = lower_bound(self.values, self.limits[0], tail, copies)
        return by_query, math.inf if self.groups is None else _group_bound(self.values, self.groups, tail, copies)

    def _mirrored(self) -> "_Sample":
        return replace(self, values=-self.values, limits=(-self.limits[1], -self.limits[0]))

    def interval(self, confidence: float) -> Interval:
        tail = _tail(confidence)
        ends = self._lows(tail), self._mirrored()._lows(tail)
        low, high = (max(min(end), limit) for end, limit in zip(ends, (self.limits[0], -self.limits[1])))
        found = Interval(self.mean, low, -high, confidence, queries=self.queries, distinct=len(self.values))
        if self.groups is None:
            return found
        count = int(self.groups.max()) + 1
        few = f"the queries are of {count} groups, too few to show how much groups differ"
        return replace(
            found,
            groups=count,
            unit="groups of queries" if any(by_group < by_query for by_query, by_group in ends) else "queries",
            design_effect=_design_effect(self.values, self.groups),
            uncertain=few if count < FEWEST_GROUPS else None,
        )


def _sample(
    values: Floats, groups: ArrayLike | None, repeats: ArrayLike | None, limits: tuple[float, float]
) -> _Sample:
    queries = len(values)
    member = None if groups is None else _labels(groups, queries, "groups")
    if repeats is not None:
        same = _labels(repeats, queries, "repeats")
        if member is not None:  # the same query in two groups is one query in each
            _, same = np.unique(np.stack([same, member]), axis=1, return_inverse=True)
            same = same.reshape(-1)
        _, first, sizes = np.unique(same, return_index=True, return_counts=True)
        values = np.bincount(same, values) / sizes
        member = None if member is None else member[first]
    if member is not None:
        member = np.unique(member, return_inverse=True)[1].reshape(-1)
        if int(member.max()) + 1 == len(values):
            member = None  # every group is a single query
    return _Sample(values, member, limits, queries)


def lower_bound(values: ArrayLike, worst: float, tail: float, copies: float = 1.0) -> float:
    """Gaffke's lower bound of a mean: at most ``tail`` of all samples have a larger one than their mean truly is.

    values: independent, and never below ``worst``.
    copies: as if every value were there so many times.

    The ``tail`` quantile of the weighted mean of the values and ``worst``, with weights drawn from a flat Dirichlet
    distribution. The weighted mean lies below c if a sum of exponential variables times (value - c) is negative; that
    probability comes from the saddlepoint approximation of Lugannani and Rice, whose relative error is about 2 %.

    >>> round(lower_bound([1.0] * 20, 0.0, 0.025), 3), round(0.025 ** (1 / 20), 3)  # exact, by Clopper and Pearson
    (0.831, 0.832)
    """
    distinct, times = np.unique(real_array(values, "values", np.float64).round(9), return_counts=True)
    points = np.concatenate([[worst], distinct])
    counts = np.concatenate([[1.0], copies * times])
    mean = float(points @ counts / counts.sum())
    if not mean > worst:
        return float(worst)
    wanted = _NORMAL.inv_cdf(tail)
    spread = math.sqrt(float(((points - mean) ** 2) @ counts)) / counts.sum()
    low, high = worst, mean
    ends = [-9.0, _normal_scale(_weight_below(points, counts, mean))]  # of low and high, on the normal scale
    guess = mean + wanted * spread if mean + wanted * spread > worst else (worst + mean) / 2
    for step in range(80):
        found = _normal_scale(_weight_below(points, counts, guess))
        if abs(found - wanted) < 1e-7 or high - low < 1e-10:
            break
        if found < wanted:
            low, ends[0] = guess, found
        else:
            high, ends[1] = guess, found
        guess = low + (high - low) * (wanted - ends[0]) / (ends[1] - ends[0]) if ends[1] > ends[0] else low
        if step % 3 == 2 or not low < guess < high:  # so that the bracket shrinks from both sides
            guess = (low + high) / 2
    return float(guess)


def _normal_scale(probability: float) -> float:
    return _NORMAL.inv_cdf(min(max(probability, 1e-18), 1 - 1e-15))


def _weight_below(points: Floats, counts: Floats, centre: float) -> float:
    """The probability that the mean of ``points`` with Dirichlet(``counts``) weights is below ``centre``."""
    deviations = points - centre
    least, most = float(deviations.min()), float(deviations.max())
    if least >= 0 or most <= 0:
        return 0.0 if least >= 0 else 1.0
    # The saddlepoint: where the derivative of K(t) = -sum of counts * log(1 - t * deviations) is 0.
    low, high, t = 1 / least, 1 / most, 0.0
    for _ in range(200):
        parts = deviations / (1 - deviations * t)
        slope, curve = float(counts @ parts), float(counts @ parts**2)
        low, high = (t, high) if slope < 0 else (low, t)
        step = t - slope / curve
        step = step if low < step < high else (low + high) / 2
        if abs(step - t) * math.sqrt(curve) < 1e-9:
            break
        t = step
    parts = deviations / (1 - deviations * t)
    curve = float(counts @ parts**2)
    signed = math.copysign(math.sqrt(max(0.0, 2 * float(counts @ np.log1p(-deviations * t)))), t)
    if abs(signed) < 1e-4:
        return 0.5 + float(counts @ parts**3) / (3 * curve**1.5 * math.sqrt(2 * math.pi))
    density = math.exp(-(signed**2) / 2) / math.sqrt(2 * math.pi)
    return min(1.0, max(0.0, _NORMAL.cdf(signed) + density * (1 / signed - 1 / (t * math.sqrt(curve)))))


def _group_bound(values: Floats, member: NDArray[np.int64], tail: float, copies: float = 1.0) -> float:
    """The cluster-robust lower bound of a mean. member: the group of each value. copies: as in ``lower_bound``.

    CR2 (Bell and McCaffrey 2002): the sum of each group's deviations is divided by sqrt(1 - share of the queries), so
    that the variance is right for independent queries. Degrees of freedom by Satterthwaite: the smaller number of those
    for independent queries and for groups that gain or lose as a whole. If the groups are skewed downwards, the bound
    is moved by the first term of the Cornish-Fisher series of a studentised mean, with the skewness of at most 2.
    """
    sizes = np.bincount(member).astype(np.float64)
    groups, shares = len(sizes), sizes / len(values)
    if groups < 2:
        return -math.inf
    sums = _group_sums(values, member, shares)
    scale = math.sqrt(float((sums**2).mean()))
    error = scale * math.sqrt(groups / copies) / len(values)
    degrees = _degrees(sizes, shares) * copies
    student = student_quantile(1 - tail, degrees)
    skew = float((sums**3).mean()) / scale**3 if scale > 0 else 0.0
    if groups > 2:
        skew *= math.sqrt(groups * (groups - 1)) / (groups - 2)
    push = max(-2.0, min(0.0, skew)) * (2 * student**2 + 1) / (6 * math.sqrt(degrees + 1))
    return float(values.mean()) + (push - student) * error


def _group_sums(values: Floats, member: NDArray[np.int64], shares: Floats) -> Floats:
    """The sum of each group's deviations from the mean, on the scale on which CR2 squares them."""
    sums: Floats = np.bincount(member, values - values.mean()) / np.sqrt(1 - shares)
    return sums


def _design_effect(values: Floats, member: NDArray[np.int64]) -> float:
    """The variance of the mean by groups, divided by that by queries; NaN if nothing varies or for a single group."""
    shares = np.bincount(member) / len(values)
    plain = float(values.var()) * len(values) ** 2 / max(1, len(values) - 1)
    if len(shares) < 2 or plain == 0:
        return math.nan
    return float((_group_sums(values, member, shares) ** 2).sum()) / plain


def _degrees(sizes: Floats, shares: Floats) -> float:
    """Satterthwaite's degrees of freedom of the CR2 variance of a mean: 2 (expected variance)^2 / variance of it."""
    part = shares**2 / (1 - shares)  # independent queries
    independent = 1 / float((shares**2).sum() + part.sum() ** 2 - (part**2).sum())
    weight, square = sizes**2 / (1 - shares), float((shares**2).sum())  # groups that move as a whole
    zero, one, two = (float((weight * shares**power).sum()) for power in range(3))
    own = 1 - 2 * shares + square
    between = square**2 * zero**2 - 4 * square * zero * one + 2 * zero * two + 2 * one**2
    within = float((weight**2 * (own**2 - (square - 2 * shares) ** 2)).sum())
    return min(independent, float((weight * own).sum()) ** 2 / (between + within))


def _root(function: Callable[[float], float], low: float, high: float) -> float:
    """Where a falling function becomes 0 between ``low`` and ``high``; an end if it does not."""
    above, below = function(low), function(high)
    if not above > 0 > below:
        return high if above > 0 else low
    for step in range(100):
        middle = (low + high) / 2 if step % 3 == 2 else low + (high - low) * above / (above - below)
        value = function(middle)
        if abs(value) < 1e-8 or high - low < 1e-9 * max(1.0, high):
            break
        if value > 0:
            low, above = middle, value
        else:
            high, below = middle, value
    return middle


def _tail(confidence: float) -> float:
    if not 0.5 <= confidence < 1:
        raise HoldfastError(f"confidence must be at least 0.5 and below 1, for example 0.95; got {confidence:g}")
    return (1 - confidence) / 2


def _scores(values: ArrayLike, what: str) -> Floats:
    scores = real_array(values, what, np.float64)
    if scores.ndim != 1 or len(scores) == 0 or np.isnan(scores).any():
        raise HoldfastError(f"{what}: an interval needs one known number per query, and at least one query")
    if scores.min() < 0 or scores.max() > 1 + 1e-9:
        raise HoldfastError(f"{what}: must lie in 0 .. 1, but range from {scores.min():g} to {scores.max():g}")
    return scores


def _labels(labels: ArrayLike, queries: int, what: str) -> NDArray[np.int64]:
    array = real_array(labels, what)
    if array.shape != (queries,):
        raise HoldfastError(f"{what}: one label per query is needed; there are {queries} queries, {array.shape} labels")
    return np.unique(array, return_inverse=True)[1].reshape(-1)
