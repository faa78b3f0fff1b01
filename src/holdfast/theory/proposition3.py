"""Proposition 3: trainable prototypes do not keep a place for classes that have not come yet.

The paper argues with Fang et al.'s minority collapse; here it is watched. Features are free variables (the
unconstrained feature model), prototypes start on a simplex, both are trained by gradient descent with weight decay on
the cross-entropy over all classes. The prototypes of classes without samples are pushed the same way by every sample
and forget what told them apart. Those of a fixed simplex cannot.
"""

import math
from dataclasses import dataclass

import numpy as np

from holdfast.errors import HoldfastError
from holdfast.geometry import DSimplex
from holdfast.theory.caps import Floats


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
