"""Theorem 1's expected distances in closed form, for any dimension.

Differs from the paper: its appendix says that there is no closed form beyond two dimensions. With independent caps that
are symmetric about their axes E[z_1 . z_2] = E[z_1] . E[z_2], and E[z] = a w with a = E[cos(polar angle)].
"""

import math
from typing import NamedTuple

from holdfast.theory.arguments import check_angle, check_dimension


class Distances(NamedTuple):
    """Expected cosine distances: old point to new point, E[D_kt], and old point to old point, E[D_kk]."""

    kt: float
    kk: float


def mean_cosine(d: int, angle: float) -> float:
    """a(d, alpha) = E[cos theta] = sin^(d-1)(alpha) / ((d-1) * integral from 0 to alpha of sin^(d-2)).

    In [0, 1): 1 in the limit of a point, 0 for the whole sphere (below 1e-308 it may come out as 0). Nothing overflows
    and no digits are lost at any d; checked to d = 100,000.
    """
    check_dimension(d)
    check_angle("angle", angle)
    if angle == math.pi:
        return 0.0
    if d == 2:
        return math.sin(angle) / angle
    a, x = (d - 1) / 2, math.sin(angle) ** 2
    northern, near_pole = angle < math.pi / 2, x < (a + 1) / (a + 2.5)
    if near_pole:
        # From the pole: the integral up to the rim is sin^(d-1) |cos| / (d-1) times this fraction.
        pole = abs(math.cos(angle)) * _beta_fraction(a, 0.5, x)
        if northern:
            return 1 / pole  # the huge and tiny factors have cancelled on paper
    log_half = 0.5 * math.log(math.pi) - log_gamma_step(a) - math.log(2)  # of sin^(d-2) from 0 to pi/2
    log_front = a * math.log(x)
    a_if_half = math.exp(log_front - log_half - math.log(2 * a))
    if near_pole:
        return a_if_half / (2 - a_if_half * pole)
    # From the equator: a hemisphere less, or plus, the strip between equator and rim.
    y = math.cos(angle) ** 2
    strip = math.exp(log_front - log_half) * math.sqrt(y) * _beta_fraction(0.5, a, y)
    return a_if_half / (1 - strip if northern else 1 + strip)


def same_class(d: int, old: float, new: float) -> Distances:
    """E[D_kt] = 1 - a_k a_t and E[D_kk] = 1 - a_k^2 for caps of angles ``old`` and ``new`` on one prototype."""
    a_old, a_new = mean_cosine(d, old), mean_cosine(d, new)
    return Distances(1 - a_old * a_new, 1 - a_old * a_old)


def different_class(d: int, old: float, new: float) -> Distances:
    """E[D_kt] = 1 + a_k a_t / d and E[D_kk] = 1 + a_k^2 / d: two vertices of a simplex in d dimensions."""
    a_old, a_new = mean_cosine(d, old), mean_cosine(d, new)
    return Distances(1 + a_old * a_new / d, 1 + a_old * a_old / d)


def log_gamma_step(x: float) -> float:
    """log Gamma(x + 1/2) - log Gamma(x) for x > 0; by its asymptotic series where the difference would lose digits."""
    if x < 30:
        return math.lgamma(x + 0.5) - math.lgamma(x)
    s = 1 / (x * x)
    return 0.5 * math.log(x) - (1 / 8 - s * (1 / 192 - s * (1 / 640 - s * (17 / 14336)))) / x


def _beta_fraction(a: float, b: float, x: float) -> float:
    """F in: integral from 0 to x of u^(a-1) (1-u)^(b-1) = x^a (1-x)^b F / a, by its continued fraction (Lentz).

    Converges in O(sqrt(max(a, b))) steps for x below (a+1)/(a+b+2).
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
