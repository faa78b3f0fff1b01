"""Scores of several versions made comparable, so that their hits can be merged into one ranking.

All constants are taken over the same items in both spaces. New classes often arrive with new versions, so statistics
over each version's own items would mix what the items show with what the models do.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

FULL_TRUST = 100
"""Pairs from which on the measured constants are used as they are; below, they shrink towards the raw score."""
RAW, STANDARDISED, RANK = "raw", "standardised", "rank"


@dataclass(frozen=True)
class ScoreScale:
    """Merged scores of an old version's items: an increasing, piecewise linear function of the cosine.

    rule: "raw" (the cosine itself), "standardised" (mean and deviation of the new space) or "rank" (the new space's
        score of the same rank).
    cosines, scores: corners of the function, both increasing; the first cosine is -1 and the last one is 1. In NumPy:
        ``np.interp(cosine, cosines, scores)``.
    pairs: items that the function was measured on.
    """

    rule: str = RAW
    cosines: tuple[float, ...] = (-1.0, 1.0)
    scores: tuple[float, ...] = (-1.0, 1.0)
    pairs: int = 0

    def __call__(self, cosine: Tensor) -> Tensor:
        if self.rule == RAW:
            return cosine
        x, y = (
            torch.tensor(values, dtype=torch.float64, device=cosine.device) for values in (self.cosines, self.scores)
        )
        given = cosine.double().clamp(-1, 1)
        right = torch.searchsorted(x, given.contiguous(), right=True).clamp(1, len(x) - 1)
        slope = (y[right] - y[right - 1]) / (x[right] - x[right - 1])
        return (y[right - 1] + slope * (given - x[right - 1])).to(cosine.dtype)

    def score(self, cosine: float) -> float:
        """The merged score of one cosine."""
        return cosine if self.rule == RAW else float(np.interp(cosine, self.cosines, self.scores))

    def cosine(self, score: float) -> float:
        """The cosine that has this merged score: a threshold on scores restated for one version, from -1 to 1."""
        return score if self.rule == RAW else float(np.interp(score, self.scores, self.cosines))

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> "ScoreScale":
        cosines, scores = (tuple(float(value) for value in record[name]) for name in ("cosines", "scores"))
        return cls(str(record["rule"]), cosines, scores, int(record["pairs"]))


SAME = ScoreScale()
"""Scores are merged as they are."""


def measure_scale(
    bridged: Tensor, old: Tensor, new: Tensor, *, rule: str = STANDARDISED, pairs: int | None = None
) -> ScoreScale:
    """Fit a scale to cosines between queries and all other items.

    bridged: Q x d_old, the first Q items as bridged queries; the bridge must not be fitted on these.
    old: N x d_old and new: N x d_new, the items as stored by each model; unit rows, row i the same item in all three.

    rule: "standardised": mu_new + sd_new (s - mu_old) / sd_old. "rank": the new space's score of the same rank, linear
        between quantiles and beyond the highest; it also fits spaces with scores that are distributed differently.
    pairs: items that the bridge was fitted and measured on; default N. Below ``FULL_TRUST`` the scale shrinks towards
        the raw score.
    Fewer than two items, or equal scores throughout, leave scores as they are.
    """
    count = len(old)
    if count < 2:
        return ScoreScale(pairs=count)
    different = ~torch.eye(len(bridged), count, dtype=torch.bool)
    s_old, s_new = ((q @ x.T)[different].double().numpy() for q, x in ((bridged, old), (new[: len(bridged)], new)))
    if s_old.std() < 1e-6 or s_new.std() < 1e-6:
        return ScoreScale(pairs=count)
    cosines, scores = _standardised(s_old, s_new) if rule == STANDARDISED else _same_rank(s_old, s_new)
    trust = min(1.0, (count if pairs is None else pairs) / FULL_TRUST)
    scores = trust * scores + (1 - trust) * cosines
    return ScoreScale(rule, tuple(cosines.tolist()), tuple(scores.tolist()), count)


def _standardised(s_old: np.ndarray, s_new: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    cosines = np.array([-1.0, 1.0])
    return cosines, s_new.mean() + s_new.std() / s_old.std() * (cosines - s_old.mean())


_TAIL = 10
"""Scores above the highest quantile used: single pairs of near duplicates do not decide."""


def _same_rank(s_old: np.ndarray, s_new: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Quantiles of both, dense among the highest scores, which are the ones that searches show."""
    highest = max(0.99, 1 - _TAIL / len(s_old))
    shares = np.concatenate([np.linspace(0, 0.99, 34), 1 - np.geomspace(0.01, 1 - highest, 16)[1:]])
    x, y = np.quantile(s_old, shares), np.quantile(s_new, shares)
    above = min(len(x) - 2, 33)  # the corner at 0.99
    slopes = [(y[1] - y[0], x[1] - x[0]), (y[-1] - y[above], x[-1] - x[above])]
    below, beyond = (max(rise, 1e-9) / max(run, 1e-9) for rise, run in slopes)
    x_all = np.concatenate([[-1.0], x, [1.0]])
    y_all = np.concatenate([[y[0] - below * (x[0] + 1)], y, [y[-1] + beyond * (1 - x[-1])]])
    rising = np.concatenate([[True], np.diff(x_all[:-1]) > 1e-9, [True]])
    if x_all[-1] - x_all[:-1][rising[:-1]][-1] <= 1e-9:  # scores that reach 1
        rising[np.flatnonzero(rising[:-1])[-1]] = False
    x_all, y_all = x_all[rising], y_all[rising]
    # Strictly increasing, so that the order of hits within a version stays and thresholds can be restated.
    return x_all, np.maximum.accumulate(y_all) + 1e-9 * np.arange(len(y_all))
