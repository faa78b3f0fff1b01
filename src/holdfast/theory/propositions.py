"""Proposition 2: how closely n random prototypes crowd on the sphere of R^d, in logarithms throughout.

Differs from the paper, which has three slips here. The density of a polar angle has no cosine: the factor in the
appendix comes from a disc put in place of the cap, and the stated result (Eq. 8) is the exact one. The angle of
Eq. 11 carries n^(-2/(d-1)), so it is the smallest over all pairs, not that of one vector to its nearest. And it falls
with n only: with d it grows towards 1 rad. The density at it does fall with both, as Fig. 11 shows.

Proposition 3: trainable prototypes do not keep a place for classes that have not come yet.

The paper argues with Fang et al.'s minority collapse; here it is watched. Features are free variables (the
unconstrained feature model), prototypes start on a simplex, both are trained by gradient descent with weight decay on
the cross-entropy over all classes. The prototypes of classes without samples are pushed the same way by every sample
and forget what told them apart. Those of a fixed simplex cannot.
"""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from holdfast.errors import HoldfastError
from holdfast.geometry import DSimplex
from holdfast.theory.caps import Floats, check_dimension
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


@dataclass(frozen=True)
class Collapse:
    """Angles between prototypes, in radians, at each recorded step; ``fixed`` is the simplex's, at every step."""

    steps: list[int]
    unseen_smallest: list[float]
    unseen_mean: list[float]
    seen_mean: list[float]
    loss: list[float]
    fixed: float


def watch_collapse(
    *, classes: int = 100, seen: int = 50, steps: int = 4_000, lr: float = 1.0, weight_decay: float = 5e-3
) -> Collapse:
    """Train K pre-allocated prototypes on ``seen`` of ``classes`` classes; deterministic, as nothing is drawn."""
    if not 2 <= seen <= classes - 2:
        raise HoldfastError(f"seen must leave at least 2 of the {classes} classes unseen and be at least 2, got {seen}")
    if steps < 1:
        raise HoldfastError(f"steps must be at least 1, got {steps}")
    prototypes = DSimplex(classes).dense().numpy().copy()
    features = prototypes[:seen].copy()
    kept = Collapse([], [], [], [], [], math.acos(-1 / (classes - 1)))
    recorded = {0, steps, *np.unique(np.geomspace(1, steps, 60).astype(int)).tolist()}
    for step in range(steps + 1):
        logits = features @ prototypes.T
        logits -= logits.max(1, keepdims=True)
        shares = np.exp(logits)
        shares /= shares.sum(1, keepdims=True)
        if step in recorded:
            unseen = _angles(prototypes[seen:])
            kept.steps.append(step)
            kept.unseen_smallest.append(float(unseen.min()))
            kept.unseen_mean.append(float(unseen.mean()))
            kept.seen_mean.append(float(_angles(prototypes[:seen]).mean()))
            kept.loss.append(float(-np.log(shares[np.arange(seen), np.arange(seen)]).mean()))
        shares[np.arange(seen), np.arange(seen)] -= 1
        for_prototypes = shares.T @ features / seen + weight_decay * prototypes
        for_features = shares @ prototypes / seen + weight_decay / seen * features
        prototypes -= lr * for_prototypes
        features -= lr * seen * for_features  # each feature has one term of the mean: its own rate undoes the 1/n
    return kept


def _angles(rows: Floats) -> Floats:
    """Angles between all pairs of rows, by the half-angle form that keeps its digits near 0."""
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    first, second = np.triu_indices(len(unit), 1)
    apart = np.linalg.norm(unit[first] - unit[second], axis=1)
    return 2 * np.arctan2(apart, np.linalg.norm(unit[first] + unit[second], axis=1))
