"""Student's t, binomial tails and the sign test by the standard library: scipy's import takes as long as a search."""

import functools
import math
from statistics import NormalDist

from holdfast.core.errors import HoldfastError

_MANY_DEGREES = 2000  # from here on the quantile's series in 1 / degrees is exact to 1e-11
_TINY = 1e-300


def incomplete_beta(a: float, b: float, x: float) -> float:
    """The regularised incomplete beta function I_x(a, b), in [0, 1].

    a, b: above 0.
    x: in [0, 1].

    Computed by its continued fraction (Lentz), to a relative error of about 1e-13 * (a + b) ** 0.5.

    >>> incomplete_beta(1, 1, 0.25), round(incomplete_beta(2, 3, 0.5), 9)
    (0.25, 0.6875)
    """
    if not (a > 0 and b > 0 and 0 <= x <= 1):
        raise HoldfastError(f"incomplete beta function: needs a, b above 0 and x in 0 .. 1, got {a:g}, {b:g}, {x:g}")
    if x in (0, 1):
        return float(x)
    if x > (a + 1) / (a + b + 2):  # the fraction converges fast only on the other side
        return 1 - incomplete_beta(b, a, 1 - x)
    front = math.exp(
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x) - math.log(a)
    )
    fraction = last = 1.0
    below = 1 / _nonzero(1 - (a + b) * x / (a + 1))
    fraction = below
    for step in range(1, 1000 + int(10 * math.sqrt(a + b))):
        even = step * (b - step) * x / ((a + 2 * step - 1) * (a + 2 * step))
        odd = -(a + step) * (a + b + step) * x / ((a + 2 * step) * (a + 2 * step + 1))
        for term in (even, odd):
            below = 1 / _nonzero(1 + term * below)
            last = _nonzero(1 + term / last)
            fraction *= last * below
        if abs(last * below - 1) < 1e-15:
            break
    return min(1.0, front * fraction)


def _nonzero(value: float) -> float:
    return value if abs(value) > _TINY else _TINY


@functools.lru_cache(maxsize=1024)
def student_quantile(probability: float, degrees: float) -> float:
    """The number below which a variable of Student's t lies with this probability.

    probability: above 0 and below 1.
    degrees: degrees of freedom, above 0; need not be whole.

    >>> round(student_quantile(0.975, 4), 6), round(student_quantile(0.975, 1e9), 6)
    (2.776445, 1.959964)
    """
    if not (0 < probability < 1 and degrees > 0):
        raise HoldfastError(f"Student's t: needs a probability and degrees above 0, got {probability:g}, {degrees:g}")
    if probability < 0.5:
        return -student_quantile(1 - probability, degrees)
    if probability == 0.5:
        return 0.0
    if degrees > _MANY_DEGREES:  # Cornish and Fisher's series
        z = NormalDist().inv_cdf(probability)
        first = (z**3 + z) / 4
        second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
        third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
        return z + first / degrees + second / degrees**2 + third / degrees**3
    # Newton's steps on the upper tail, which is convex; from the normal quantile, which is smaller, none overshoots.
    t, scale = NormalDist().inv_cdf(probability), math.lgamma((degrees + 1) / 2) - math.lgamma(degrees / 2)
    for _ in range(200):
        density = math.exp(scale - (degrees + 1) / 2 * math.log1p(t * t / degrees)) / math.sqrt(degrees * math.pi)
        step = (_student_tail(t, degrees) - (1 - probability)) / density
        t += step
        if abs(step) < 1e-12 * t:
            break
    return t


def _student_tail(t: float, degrees: float) -> float:
    """P(T > t), by the incomplete beta function at degrees / (degrees + t^2)."""
    return incomplete_beta(degrees / 2, 0.5, degrees / (degrees + t * t)) / 2


def fair_coin_tail(heads: int, tosses: int) -> float:
    """The probability of at most ``heads`` heads in so many tosses of a fair coin.

    >>> round(fair_coin_tail(0, 3), 9), fair_coin_tail(3, 3)
    (0.125, 1.0)
    """
    return 1.0 if heads >= tosses else incomplete_beta(tosses - heads, heads + 1, 0.5)


def sign_test(gained: int, lost: int) -> float:
    """Two-sided p-value in (0, 1] of the hypothesis that gains and losses are equally likely.

    gained, lost: queries that score higher, and lower. Those that did not change are not counted.

    Exact: twice the binomial tail with probability 1/2, at most 1; for hits it is McNemar's test. Queries are assumed
    to be independent.

    >>> round(sign_test(6, 0), 9), sign_test(3, 3), sign_test(0, 0)
    (0.03125, 1.0, 1.0)
    """
    if gained < 0 or lost < 0:
        raise HoldfastError(f"sign test: gained and lost must be at least 0, got {gained} and {lost}")
    return min(1.0, 2 * fair_coin_tail(min(gained, lost), gained + lost))
