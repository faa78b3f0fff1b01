"""Scores of several versions made comparable, so that their hits can be merged into one ranking.

Means and deviations are taken over the same items in both spaces. New classes often arrive with new versions, so
statistics over each version's own items would mix what the items show with what the models do.
"""

from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

FULL_TRUST = 100
"""Pairs from which on the measured constants are used as they are; below, they shrink towards the raw score."""


@dataclass(frozen=True)
class ScoreScale:
    """merged = offset + slope * cosine, for items of an old version; (1, 0) leaves the cosine as it is.

    mean_old, deviation_old: of cosines between bridged queries and old vectors of the pairs.
    mean_new, deviation_new: of cosines between the same queries and the same items in the new space.
    pairs: items that they were measured on.
    """

    slope: float = 1.0
    offset: float = 0.0
    mean_old: float = float("nan")
    deviation_old: float = float("nan")
    mean_new: float = float("nan")
    deviation_new: float = float("nan")
    pairs: int = 0

    def __call__(self, cosine: Tensor) -> Tensor:
        return self.offset + self.slope * cosine

    def cosine(self, score: float) -> float:
        """The cosine that has this merged score: a threshold on scores restated for one version."""
        return (score - self.offset) / self.slope

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


SAME = ScoreScale()
"""Scores are merged as they are."""


def measure_scale(bridged: Tensor, old: Tensor, new: Tensor, *, pairs: int | None = None) -> ScoreScale:
    """Constants of mu_new + sd_new (s - mu_old) / sd_old, over all ordered pairs of different items.

    bridged: N x d_old, the items as bridged queries; old: N x d_old and new: N x d_new, the items as stored by each
    model; unit rows, row i the same item in all three. The items must not be those the bridge was fitted on, because
    its scores on these are too high. Fewer than two items, or equal scores throughout, leave scores as they are.

    pairs: items that the bridge was fitted and measured on; default N. Below ``FULL_TRUST`` the constants shrink.
    """
    count = len(old)
    if count < 2:
        return ScoreScale(pairs=count)
    different = ~torch.eye(count, dtype=torch.bool)
    s_old = (bridged @ old.T)[different].double()
    s_new = (new @ new.T)[different].double()
    mean_old, deviation_old = float(s_old.mean()), float(s_old.std())
    mean_new, deviation_new = float(s_new.mean()), float(s_new.std())
    measured = (mean_old, deviation_old, mean_new, deviation_new, count)
    if deviation_old < 1e-6 or deviation_new < 1e-6:
        return ScoreScale(1.0, 0.0, *measured)
    trust = min(1.0, (count if pairs is None else pairs) / FULL_TRUST)
    standard = deviation_new / deviation_old
    slope = trust * standard + 1 - trust
    return ScoreScale(slope, trust * (mean_new - standard * mean_old), *measured)
