"""Propositions 2 and 3.

Proposition 2: the smallest angle between n random prototypes on the sphere of R^d, computed in logarithms.

Differs from the paper in three points. The density of a polar angle has no cosine: the factor in the appendix comes
from a disc instead of the cap, and the stated result (Eq. 8) is exact. The angle of Eq. 11 contains n^(-2/(d-1)), so it
is the smallest over all pairs, not that of one vector to its nearest. It falls with n, but grows with d to about 1 rad.
The density at this angle falls with both, as in Fig. 11. Both statements on d are for n of 5 or more.

Proposition 3: trainable prototypes of classes without samples collapse. The paper refers to the minority collapse of
Fang et al.; ``simulate_collapse`` simulates it. Features are free variables (the unconstrained feature model) and
prototypes start on a simplex. Both are trained by gradient descent with weight decay on the cross-entropy over all
classes. Every sample pushes the prototypes of unseen classes in the same direction, so they become alike. Fixed
prototypes cannot.
"""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from holdfast.core.errors import HoldfastError
from holdfast.train.geometry import DSimplex
from papers.stationary.theorems.caps import Floats, check_dimension
from papers.stationary.theorems.closed_form import log_gamma_step

Of = Literal["pairs", "vector"]


def expected_angle(n: int, d: int, *, of: Of = "pairs") -> float:
    """Expected smallest angle, in radians, among ``n`` uniform unit vectors in ``d`` dimensions.

    n: number of vectors, at least 2.
    d: dimension, at least 2.
    of: "pairs" (Eq. 11) is the smallest of all n^2/2 angles; "vector" is the angle of one vector to its nearest.

    Asymptotic in n at fixed d. For few vectors in many dimensions it is not close to the mean.
    """
    check_dimension(d)
    check_count(n)
    # The share of the sphere in a small cap is exp(log_cap) x angle^(d-1).
    log_cap = log_gamma_step((d - 1) / 2) - 0.5 * math.log(math.pi) - math.log(d - 1)
    log_trials = 2 * math.log(n) - math.log(2) if of == "pairs" else math.log(n)
    return math.exp(math.lgamma(d / (d - 1)) - (log_trials + log_cap) / (d - 1))


def log_angle_density(theta: float, d: int, *, disc: bool = False) -> float:
    """Log density of the angle between a uniform random and a fixed unit vector.

    f(theta) = Gamma(d/2) / (sqrt(pi) Gamma((d-1)/2)) sin^(d-2)(theta).

    theta: in (0, pi).
    d: dimension, at least 2.
    disc: include the factor cos(theta) of the appendix's derivation (Eq. 10), for theta < pi/2.
    """
    check_dimension(d)
    if not 0 < theta < math.pi or (disc and theta >= math.pi / 2):
        raise HoldfastError(f"theta must be in (0, pi), and below pi/2 with disc, got {theta:g}")
    log_density = log_gamma_step((d - 1) / 2) - 0.5 * math.log(math.pi) + (d - 2) * math.log(math.sin(theta))
    return log_density + math.log(math.cos(theta)) if disc else log_density


def log_density_at_expected_angle(n: int, d: int) -> float:
    """log f at ``expected_angle(n, d)``, as in Fig. 11 (Eq. 8)."""
    return log_angle_density(expected_angle(n, d), d)


def check_count(n: int) -> None:
    """An error unless there are at least 2 vectors."""
    if isinstance(n, bool) or not isinstance(n, int) or n < 2:
        raise HoldfastError(f"n (the number of vectors) must be a whole number of at least 2, got {n!r}")


@dataclass(frozen=True)
class Collapse:
    """Angles between prototypes, in radians, at each recorded step.

    steps: numbers of the recorded steps.
    unseen_smallest, unseen_mean: angles between prototypes of classes without samples.
    seen_mean: mean angle between prototypes of classes with samples.
    loss: mean cross-entropy.
    fixed: angle between the prototypes of the fixed simplex.
    """

    steps: list[int]
    unseen_smallest: list[float]
    unseen_mean: list[float]
    seen_mean: list[float]
    loss: list[float]
    fixed: float


def simulate_collapse(
    *, classes: int = 100, seen: int = 50, steps: int = 4_000, lr: float = 1.0, weight_decay: float = 5e-3
) -> Collapse:
    """Train ``classes`` prototypes with samples of the first ``seen`` classes only; deterministic."""
    if not 2 <= seen <= classes - 2:
        raise HoldfastError(f"seen must leave at least 2 of the {classes} classes unseen and be at least 2, got {seen}")
    if steps < 1:
        raise HoldfastError(f"steps must be at least 1, got {steps}")
    prototypes = DSimplex(classes).dense().numpy().copy()
    features = prototypes[:seen].copy()
    record = Collapse([], [], [], [], [], math.acos(-1 / (classes - 1)))
    recorded = {0, steps, *np.unique(np.geomspace(1, steps, 60).astype(int)).tolist()}
    for step in range(steps + 1):
        logits = features @ prototypes.T
        logits -= logits.max(1, keepdims=True)
        shares = np.exp(logits)
        shares /= shares.sum(1, keepdims=True)
        if step in recorded:
            unseen = _angles(prototypes[seen:])
            record.steps.append(step)
            record.unseen_smallest.append(float(unseen.min()))
            record.unseen_mean.append(float(unseen.mean()))
            record.seen_mean.append(float(_angles(prototypes[:seen]).mean()))
            record.loss.append(float(-np.log(shares[np.arange(seen), np.arange(seen)]).mean()))
        shares[np.arange(seen), np.arange(seen)] -= 1
        for_prototypes = shares.T @ features / seen + weight_decay * prototypes
        for_features = shares @ prototypes / seen + weight_decay / seen * features
        prototypes -= lr * for_prototypes
        features -= lr * seen * for_features  # the factor cancels the 1/n of the mean: each feature is in one term only
    return record


def _angles(rows: Floats) -> Floats:
    """Angles between all pairs of rows, by the half-angle form, which is accurate near 0."""
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    first, second = np.triu_indices(len(unit), 1)
    apart = np.linalg.norm(unit[first] - unit[second], axis=1)
    return 2 * np.arctan2(apart, np.linalg.norm(unit[first] + unit[second], axis=1))
