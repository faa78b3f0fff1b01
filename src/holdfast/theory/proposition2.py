"""Proposition 2: how closely n random prototypes crowd on the sphere of R^d, in logarithms throughout.

Differs from the paper, which has three slips here. The density of a polar angle has no cosine: the factor in the
appendix comes from a disc put in place of the cap, and the stated result (Eq. 8) is the exact one. The angle of
Eq. 11 carries n^(-2/(d-1)), so it is the smallest over all pairs, not that of one vector to its nearest. And it falls
with n only: with d it grows towards 1 rad. The density at it does fall with both, as Fig. 11 shows.
"""

import math
from typing import Literal

from holdfast.errors import HoldfastError
from holdfast.theory.arguments import check_dimension
from holdfast.theory.closed_form import log_gamma_step

Of = Literal["pairs", "vector"]


def expected_angle(n: int, d: int, *, of: Of = "pairs") -> float:
    """Expected smallest angle, in radians, among ``n`` uniform unit vectors in ``d`` dimensions, for many vectors.

    of: "pairs" is the paper's Eq. 11, the smallest of all n^2/2 angles; "vector" is that of one vector to its nearest.
    Asymptotic in n at fixed d: for few vectors in many dimensions it is a formula, not a mean.
    """
    check_dimension(d)
    check_count(n)
    log_cap = (
        log_gamma_step((d - 1) / 2) - 0.5 * math.log(math.pi) - math.log(d - 1)
    )  # share of a small cap, unit angle
    log_trials = 2 * math.log(n) - math.log(2) if of == "pairs" else math.log(n)
    return math.exp(math.lgamma(d / (d - 1)) - (log_trials + log_cap) / (d - 1))


def log_angle_density(theta: float, d: int, *, disc: bool = False) -> float:
    """log f(theta), f = Gamma(d/2) / (sqrt(pi) Gamma((d-1)/2)) sin^(d-2)(theta): angle of a uniform to a fixed vector.

    theta in (0, pi). disc: with the factor cos(theta) of the appendix's derivation (Eq. 10), for theta < pi/2.
    """
    check_dimension(d)
    if not 0 < theta < math.pi or (disc and theta >= math.pi / 2):
        raise HoldfastError(f"theta must lie in (0, pi), and below pi/2 for the disc, got {theta:g}")
    log_density = log_gamma_step((d - 1) / 2) - 0.5 * math.log(math.pi) + (d - 2) * math.log(math.sin(theta))
    return log_density + math.log(math.cos(theta)) if disc else log_density


def log_density_at_expected_angle(n: int, d: int) -> float:
    """log f(theta-bar(n, d)): what Fig. 11 plots (Eq. 8)."""
    return log_angle_density(expected_angle(n, d), d)


def check_count(n: int) -> None:
    if isinstance(n, bool) or not isinstance(n, int) or n < 2:
        raise HoldfastError(f"n (the number of vectors) must be a whole number of at least 2, got {n!r}")
