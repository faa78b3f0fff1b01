"""Theorem 1 by Monte Carlo and in closed form, and its limits: caps that grow and prototypes that move.

Eq. 1a is E[D_kt] <= E[D_kk] for one class, Eq. 1b is E[D_kt] >= E[D_kk] for two. All four means use common random
numbers: the old point and every tangent direction are shared. Without them the difference, which for two classes falls
as 1/d, would be smaller than the noise.

Differs from the paper: its appendix prints <= for both inequalities and draws the old point of the different-class
case from the other class's cap. Def. 1 and Fig. 12b have >= and the point's own class.

The paper does not study the limits. With a = E[cos(polar angle)] the expected gaps for a prototype that has moved by
delta are, up to the factor a_k,

    same class                      a_t cos(delta) - a_k
    mean over all d other vertices  (a_t cos(delta) - a_k) / d          in any direction, because sum_i w_i = 0
    the class it moves towards      -a_t cos(beta - delta) - a_k / d    with cos(beta) = -1/d

Both inequalities fail as soon as a cap grows. A cap that shrank allows a move of up to arccos(a_k / a_t) on average,
and of about (1 - a_k/a_t)/d for the one class that the prototype moves towards.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from holdfast.core.errors import HoldfastError
from papers.stationary.theorems.caps import (
    Floats,
    check_angle,
    check_dimension,
    check_samples,
    sample_coordinate,
    sample_polar_angles,
)
from papers.stationary.theorems.closed_form import different_class, mean_cosine, same_class, shrinkage

CHUNK = 1 << 15
"""Samples drawn at a time, so that the arrays fit into the CPU cache."""


@dataclass(frozen=True)
class Estimate:
    """A Monte Carlo mean, its standard error, and the exact value."""

    mean: float
    se: float
    exact: float


@dataclass(frozen=True)
class Inequality:
    """Eq. 1a or 1b for given caps.

    kt, kk: the two sides, E[D_kt] and E[D_kk].
    gap: their difference, with the sign chosen so that it is >= 0 if the inequality holds.
    holds: by the closed form, also if the gap underflows. Equal sides count, as in Def. 1.
    """

    kt: Estimate
    kk: Estimate
    gap: Estimate
    holds: bool

    @property
    def standard_errors(self) -> float:
        """The estimated gap divided by its standard error; 0 if both are 0."""
        if self.gap.se == 0:
            return 0.0 if self.gap.mean == 0 else math.copysign(math.inf, self.gap.mean)
        return self.gap.mean / self.gap.se

    def to_json(self) -> dict[str, Any]:
        parts = {name: vars(getattr(self, name)) for name in ("kt", "kk", "gap")}
        return {**parts, "holds": self.holds, "standard_errors": self.standard_errors}


@dataclass(frozen=True)
class CapStudy:
    """Theorem 1 for one dimension and one pair of caps."""

    d: int
    same: Inequality
    different: Inequality

    @property
    def holds(self) -> bool:
        return self.same.holds and self.different.holds

    def to_json(self) -> dict[str, Any]:
        return {"d": self.d, "same": self.same.to_json(), "different": self.different.to_json()}


def study_caps(
    d: int, old: float, new: float, *, samples: int = 1_000_000, seed: int = 0, moved: float = 0.0
) -> CapStudy:
    """Both inequalities for caps around the vertices of a simplex.

    d: dimension, at least 2.
    old, new: polar angles of the caps in radians, in (0, pi].
    samples: Monte Carlo samples, at least 2.
    seed: of the random generator.
    moved: angle in radians by which the new model's prototype has moved; 0 (default) in the theorem. For two classes
        it moves straight towards the other class, which is the worst case.
    """
    check_dimension(d)
    check_angle("old angle", old)
    check_angle("new angle", new)
    check_samples(samples)
    if not 0 <= moved <= math.pi:
        raise HoldfastError(f"moved must be in [0, pi], that is 0 to 180 degrees, got {math.degrees(moved):g} degrees")
    apart = math.acos(-1 / d)
    a_old, a_new, shrunk = mean_cosine(d, old), mean_cosine(d, new), shrinkage(d, old, new)
    # Effect of a move, in units of a_old a_new and of a_old a_new / d: 1 - cos(moved), and 1 + d cos(apart - moved).
    away = 2 * math.sin(moved / 2) ** 2
    towards = away + math.sqrt(d * d - 1) * math.sin(moved)
    same, different = same_class(d, old, new), different_class(d, old, new)
    exact = np.array(
        [
            same.kt + a_old * a_new * away,
            same.kk,
            different.kt - a_old * a_new * towards / d,
            different.kk,
        ]
    )
    # The gaps are computed from their factors, because differences of the values above lose digits at d = 100,000.
    gain = a_new * shrunk if new <= old else -a_old * shrinkage(d, new, old)
    gaps = np.array([a_old * (gain - a_new * away), a_old * (gain - a_new * towards) / d])
    holds = [old == math.pi or shrunk >= cost for cost in (away, towards)]
    centre = np.concatenate([exact, gaps])
    total, squares = np.zeros(6), np.zeros(6)
    random = np.random.default_rng([seed, d])
    for drawn in _draws(d, old, new, samples, random, apart, moved):
        same_kt, same_kk, different_kt, different_kk = drawn
        for i, values in enumerate((*drawn, same_kk - same_kt, different_kt - different_kk)):
            offset = values - centre[i]
            total[i] += offset.sum()
            squares[i] += np.square(offset).sum()
    means = centre + total / samples
    errors = np.sqrt(np.maximum(squares - total**2 / samples, 0) / (samples - 1) / samples)
    kt, kk, other_kt, other_kk, gap, other_gap = (
        Estimate(float(mean), float(se), float(value)) for mean, se, value in zip(means, errors, centre)
    )
    return CapStudy(d, Inequality(kt, kk, gap, holds[0]), Inequality(other_kt, other_kk, other_gap, holds[1]))


def _draws(
    d: int, old: float, new: float, samples: int, random: np.random.Generator, apart: float, moved: float
) -> Iterator[tuple[Floats, Floats, Floats, Floats]]:
    """Chunks of cosine distances: same class kt and kk, different classes kt and kk."""
    for start in range(0, samples, CHUNK):
        count = min(CHUNK, samples - start)
        first, old_second, new_second = (sample_polar_angles(d, angle, count, random) for angle in (old, old, new))
        tangents = _tangents(d, count, random)
        kt, kk = _pair(first, new_second), _pair(first, old_second)
        yield (
            _distance(kt, moved, tangents),
            _distance(kk, 0.0, tangents),
            _distance(kt, apart - moved, tangents),
            _distance(kk, apart, tangents),
        )


def _tangents(d: int, count: int, random: np.random.Generator) -> tuple[Floats, Floats, Floats]:
    """Two tangent directions: their components x_1, x_2 in the plane of the axes, and the product of the remainders.

    Each component is a coordinate of a uniform unit vector in d - 1 dimensions. The remainders have uniform directions
    in d - 2 dimensions.
    """
    first, second = sample_coordinate(d - 1, count, random), sample_coordinate(d - 1, count, random)
    if d == 2:
        return first, second, np.zeros(count)
    rest = sample_coordinate(d - 2, count, random)
    return first, second, rest * np.sqrt((1 - first * first) * (1 - second * second))


class _Pair(NamedTuple):
    """For points at polar angles t_1 and t_2: 1 - cos(t_1 - t_2) and the products in the formula of their distance."""

    apart: Floats
    sin_sin: Floats
    sin_cos: Floats
    cos_sin: Floats


def _pair(first: Floats, second: Floats) -> _Pair:
    sin_1, sin_2 = np.sin(first), np.sin(second)
    # By the half angle: for small caps 1 minus a cosine would lose digits.
    apart = 2 * np.square(np.sin((first - second) / 2))
    return _Pair(apart, sin_1 * sin_2, sin_1 * np.cos(second), np.cos(first) * sin_2)


def _distance(pair: _Pair, apart: float, tangents: tuple[Floats, Floats, Floats]) -> Floats:
    """1 - z_1 . z_2 for points on caps with axes ``apart`` radians from each other.

    p and q, the unit tangents from each axis towards the other, satisfy p . q = -cos(apart).
    """
    x_1, x_2, rest = tangents
    cos, sin = math.cos(apart), math.sin(apart)
    along = 2 * math.sin(apart / 2) ** 2 + cos * pair.apart
    across = sin * (pair.sin_cos * x_1 + pair.cos_sin * x_2)
    return along - across + pair.sin_sin * (cos * (1 + x_1 * x_2) - rest)


class Limits(NamedTuple):
    """How far, in radians, a prototype may move before an inequality fails; NaN if it fails without a move.

    average: Eq. 1a, and Eq. 1b averaged over all other classes.
    towards: Eq. 1b for the class that the prototype moves straight towards.
    """

    average: float
    towards: float


def largest_moves(d: int, old: float, new: float) -> Limits:
    """The largest moves for caps of ``old`` and ``new`` radians in ``d`` dimensions, from the closed form."""
    check_dimension(d)
    check_angle("old angle", old)
    check_angle("new angle", new)
    if old == math.pi:  # the old cap is the whole sphere: every mean distance is 1, for any new cap
        return Limits(math.pi, math.pi)
    shrunk = shrinkage(d, old, new)
    if shrunk < 0:
        return Limits(math.nan, math.nan)
    ratio = 1 - shrunk
    # arccos(ratio), and arccos(-1/d) - arccos(-ratio/d) by the sine of a difference: both are accurate near 0.
    sine = shrunk * (1 + ratio) / (math.sqrt(d * d - ratio * ratio) + ratio * math.sqrt(d * d - 1))
    return Limits(2 * math.asin(math.sqrt(shrunk / 2)), math.asin(sine))


def gap_map(d: int, old: float, new_angles: Floats, moves: Floats) -> Floats:
    """E[D_kk] - E[D_kt] of one class, len(moves) x len(new_angles); positive where Eq. 1a holds.

    d: dimension. old: polar angle of the old cap in radians. new_angles: those of the new cap. moves: in radians.
    Divided by d, it is the gap of Eq. 1b averaged over all other classes.
    """
    check_angle("old angle", old)
    a_old = mean_cosine(d, old)
    a_new = np.array([mean_cosine(d, float(angle)) for angle in new_angles])
    return a_old * (np.cos(moves)[:, None] * a_new[None, :] - a_old)
