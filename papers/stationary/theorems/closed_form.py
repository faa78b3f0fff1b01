"""Theorem 1's expected distances in closed form, for any dimension.

Differs from the paper: its appendix says that there is no closed form beyond two dimensions. Caps are independent and
symmetric about their axes, so E[z_1 . z_2] = E[z_1] . E[z_2], and E[z] = a w with a = E[cos(polar angle)].

scipy.special is not used here. Its hyp2f1 returns NaN near the equator from d = 10,000 on. Its poch is less accurate
than ``log_gamma_step`` (error 7e-13 at x = 1,000).
"""

import math
from typing import NamedTuple

from papers.stationary.theorems.caps import check_angle, check_dimension

_SMALL = math.pi / 6  # up to this angle a series in sin^2 <= 1/4 is used
_LEAST = 1e-300  # a shrinkage of at most -_LEAST means that the cap grew


class Distances(NamedTuple):
    """Expected cosine distances: old point to new point, E[D_kt], and old point to old point, E[D_kk]."""

    kt: float
    kk: float


def mean_cosine(d: int, angle: float) -> float:
    """a(d, alpha) = E[cos theta] = sin^(d-1)(alpha) / ((d-1) * integral from 0 to alpha of sin^(d-2)).

    In [0, 1): near 1 for a small cap, 0 for the whole sphere. Values below 1e-308 may be returned as 0. There is no
    overflow and no cancellation; checked up to d = 100,000.
    """
    return math.exp(log_mean_cosine(d, angle))


def log_mean_cosine(d: int, angle: float) -> float:
    """log a(d, alpha); minus infinity for the whole sphere, finite otherwise."""
    check_dimension(d)
    check_angle("angle", angle)
    if angle == math.pi:
        return -math.inf
    if d == 2:
        return math.log(math.sin(angle) / angle)
    a, x = (d - 1) / 2, math.sin(angle) ** 2
    northern, near_pole = angle < math.pi / 2, x < (a + 1) / (a + 2.5)
    if near_pole:
        # The integral from the pole to the rim is sin^(d-1) |cos| / (d-1) times this fraction.
        pole = abs(math.cos(angle)) * _beta_fraction(a, 0.5, x)
        if northern:
            return -math.log(pole)  # the very large and very small factors cancel
    log_half = 0.5 * math.log(math.pi) - log_gamma_step(a) - math.log(2)  # integral of sin^(d-2) from 0 to pi/2
    log_front = a * math.log(x)
    log_if_half = log_front - log_half - math.log(2 * a)
    if near_pole:
        return log_if_half - math.log(2 - math.exp(log_if_half) * pole)
    # A hemisphere minus (or plus) the strip between the equator and the rim.
    y = math.cos(angle) ** 2
    strip = math.exp(log_front - log_half) * math.sqrt(y) * _beta_fraction(0.5, a, y)
    return log_if_half - math.log1p(-strip if northern else strip)


def mean_distance(d: int, angle: float) -> float:
    """1 - a(d, alpha), the mean cosine distance to the prototype; accurate also for very small caps."""
    if angle > _SMALL:
        return 1 - mean_cosine(d, angle)
    check_dimension(d)
    check_angle("angle", angle)
    # 1/a = 2F1(h, 1/2; h + 1; sin^2) with h = (d-1)/2: a series of positive terms, of which the first is 1.
    half, x = (d - 1) / 2, math.sin(angle) ** 2
    power, beyond_one, n = 1.0, 0.0, 0
    while power > 1e-17 * beyond_one:
        n += 1
        power *= (n - 0.5) / n * x
        beyond_one += power * half / (half + n)
    return beyond_one / (1 + beyond_one)


def shrinkage(d: int, old: float, new: float) -> float:
    """1 - a_old / a_new, the quantity that decides Theorem 1.

    old, new: polar angles in radians. At least 0 if and only if ``new`` <= ``old``, because a falls strictly with the
    angle. 1 if the old cap is the whole sphere, minus infinity if only the new cap is.
    """
    if max(old, new) <= _SMALL:
        far, near = mean_distance(d, old), mean_distance(d, new)
        value = (far - near) / (1 - near)
    elif old == math.pi:
        value = 1.0
    else:
        apart = log_mean_cosine(d, old) - log_mean_cosine(d, new)
        value = -math.expm1(apart) if apart < 700 else -math.inf
    # The sign must be right for nearly equal angles, despite rounding.
    return max(0.0, value) if new <= old else min(value, -_LEAST)


def same_class(d: int, old: float, new: float) -> Distances:
    """E[D_kt] = 1 - a_k a_t and E[D_kk] = 1 - a_k^2 for caps of angles ``old`` and ``new`` around one prototype."""
    far, near = mean_distance(d, old), mean_distance(d, new)
    return Distances(far + near - far * near, far * (2 - far))


def different_class(d: int, old: float, new: float) -> Distances:
    """E[D_kt] = 1 + a_k a_t / d and E[D_kk] = 1 + a_k^2 / d: two vertices of a simplex in d dimensions."""
    a_old, a_new = mean_cosine(d, old), mean_cosine(d, new)
    return Distances(1 + a_old * a_new / d, 1 + a_old * a_old / d)


def log_gamma_step(x: float) -> float:
    """log Gamma(x + 1/2) - log Gamma(x) for x > 0; by its asymptotic series from 30 on, where lgamma loses digits."""
    if x < 30:
        return math.lgamma(x + 0.5) - math.lgamma(x)
    s = 1 / (x * x)
    return 0.5 * math.log(x) - (1 / 8 - s * (1 / 192 - s * (1 / 640 - s * (17 / 14336)))) / x


def _beta_fraction(a: float, b: float, x: float) -> float:
    """F in: integral from 0 to x of u^(a-1) (1-u)^(b-1) = x^a (1-x)^b F / a, as a continued fraction (Lentz).

    It converges in O(sqrt(max(a, b))) steps for x below (a+1)/(a+b+2).
    """
    tiny = 1e-300
    c, d = 1.0, 1 - (a + b) * x / (a + 1)
    d = 1 / (d if abs(d) > tiny else tiny)
    value = d
    for m in range(1, 100_000):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for coefficient in (even, odd):
            d = 1 + coefficient * d
            c = 1 + coefficient / c
            d = 1 / (d if abs(d) > tiny else tiny)
            c = c if abs(c) > tiny else tiny
            value *= d * c
        if abs(d * c - 1) < 1e-16:
            break
    return value
