"""Theorem 1 by Monte Carlo beside its closed form: do caps that shrink make compatible models?

Eq. 1a asks E[D_kt] <= E[D_kk] for one class, Eq. 1b E[D_kt] >= E[D_kk] for two. All four means use common random
numbers: the old point and every tangent direction are shared, so that the difference, which for two classes falls as
1/d, is not lost in the noise of its parts.

Differs from the paper: its appendix prints <= for both inequalities and draws the old point of the different-class
case from the other class's cap; Def. 1 and its Fig. 12b say >= and the point's own class.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from holdfast.errors import HoldfastError
from holdfast.theory.arguments import check_angle, check_dimension, check_samples
from holdfast.theory.caps import Floats, sample_coordinate, sample_polar_angles
from holdfast.theory.closed_form import mean_cosine

CHUNK = 1 << 15
"""Samples drawn at once: the arrays stay in the cache, whatever the number of samples."""


@dataclass(frozen=True)
class Estimate:
    """A Monte-Carlo mean, its standard error, and the exact value beside it."""

    mean: float
    se: float
    exact: float


@dataclass(frozen=True)
class Inequality:
    """One of Eq. 1a and 1b for given caps; ``gap`` is written so that it is >= 0 where the inequality holds."""

    kt: Estimate
    kk: Estimate
    gap: Estimate

    @property
    def holds(self) -> bool:
        """By the exact gap; equal sides count, as in Def. 1."""
        return self.gap.exact >= 0

    @property
    def standard_errors(self) -> float:
        """How many standard errors the estimated gap lies above 0; 0 where it has neither size nor error."""
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
    """Both inequalities for caps of ``old`` and ``new`` radians on the vertices of a simplex in ``d`` dimensions.

    moved: how far, in radians, the new model's prototype has left its place: for one class away from its old self, for
    two straight towards the other class, the worst way to go. The theorem has 0.
    """
    check_dimension(d)
    check_angle("old angle", old)
    check_angle("new angle", new)
    check_samples(samples)
    if not 0 <= moved <= math.pi:
        raise HoldfastError(f"moved must lie in [0, pi], that is 0 to 180 degrees, got {math.degrees(moved):g} degrees")
    apart = math.acos(-1 / d)
    a_old, a_new = mean_cosine(d, old), mean_cosine(d, new)
    exact = np.array(
        [
            1 - a_old * a_new * math.cos(moved),
            1 - a_old * a_old,
            1 - a_old * a_new * math.cos(apart - moved),
            1 + a_old * a_old / d,
        ]
    )
    # The gaps are worked out from their factors: at d = 100,000 a difference of the lines above has few digits left.
    toward = a_new / d if moved == 0 else -a_new * math.cos(apart - moved)
    gaps = np.array([a_old * (a_new * math.cos(moved) - a_old), a_old * (toward - a_old / d)])
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
    return CapStudy(d, Inequality(kt, kk, gap), Inequality(other_kt, other_kk, other_gap))


def _draws(
    d: int, old: float, new: float, samples: int, random: np.random.Generator, apart: float, moved: float
) -> Iterator[tuple[Floats, Floats, Floats, Floats]]:
    """Chunks of cosine distances: same class kt and kk, different classes kt and kk."""
    for start in range(0, samples, CHUNK):
        count = min(CHUNK, samples - start)
        first = _cos_sin(sample_polar_angles(d, old, count, random))
        old_second = _cos_sin(sample_polar_angles(d, old, count, random))
        new_second = _cos_sin(sample_polar_angles(d, new, count, random))
        tangents = _tangents(d, count, random)
        yield (
            1 - _cosine(first, new_second, moved, tangents),
            1 - _cosine(first, old_second, 0.0, tangents),
            1 - _cosine(first, new_second, apart - moved, tangents),
            1 - _cosine(first, old_second, apart, tangents),
        )


def _tangents(d: int, count: int, random: np.random.Generator) -> tuple[Floats, Floats, Floats]:
    """Two tangent directions: their parts x_1, x_2 in the plane of the two axes, and the product of what is left.

    Each part is a coordinate of a uniform unit vector in d - 1 dimensions; the rests point uniformly in d - 2.
    """
    first, second = sample_coordinate(d - 1, count, random), sample_coordinate(d - 1, count, random)
    if d == 2:
        return first, second, np.zeros(count)
    rest = sample_coordinate(d - 2, count, random)
    return first, second, rest * np.sqrt((1 - first * first) * (1 - second * second))


def _cosine(
    first: tuple[Floats, Floats], second: tuple[Floats, Floats], apart: float, tangents: tuple[Floats, Floats, Floats]
) -> Floats:
    """z_1 . z_2 for points on caps whose axes are ``apart`` radians from one another.

    With p and q the unit vectors that lead from each axis to the other in their plane, p . q = -cos(apart).
    """
    (cos_1, sin_1), (cos_2, sin_2) = first, second
    x_1, x_2, rest = tangents
    cos, sin = math.cos(apart), math.sin(apart)
    in_plane = cos * cos_1 * cos_2 + sin * (sin_1 * cos_2 * x_1 + cos_1 * sin_2 * x_2)
    return in_plane + sin_1 * sin_2 * (rest - cos * x_1 * x_2)


def _cos_sin(theta: Floats) -> tuple[Floats, Floats]:
    return np.cos(theta), np.sin(theta)
