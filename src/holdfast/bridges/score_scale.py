"""Scores of several versions made comparable, so that their hits can be merged into one ranking.

Means and deviations are taken over the same items in both spaces. New classes often arrive with new versions, so
statistics over each version's own items would mix what the items show with what the models do. They are taken over the
best scores of each query, because these decide which items are shown; most pairs of items are never shown, and the
scores of two spaces can agree on these and differ among the best.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

FULL_TRUST = 100
"""Pairs from which on the measured constants are used as they are; below, they shrink towards the raw score."""
BEST = 5
"""Scores of each query that count, if the gallery is about as large as the sample of pairs."""


@dataclass(frozen=True)
class ScoreScale:
    """merged = offset + slope * cosine, for items of an old version; slope 1 and offset 0 leave the cosine as it is.

    mean_old, deviation_old: of the best cosines between bridged queries and old vectors.
    mean_new, deviation_new: of the best cosines of the same queries among the same items in the new space.
    pairs: items that they were measured on; 0 if scores are merged as they are.
    """

    slope: float = 1.0
    offset: float = 0.0
    mean_old: float = float("nan")
    deviation_old: float = float("nan")
    mean_new: float = float("nan")
    deviation_new: float = float("nan")
    pairs: int = 0

    def __call__(self, cosine: NDArray[Any]) -> NDArray[Any]:
        return self.offset + self.slope * cosine

    def score(self, cosine: float) -> float:
        """The merged score of one cosine."""
        return self.offset + self.slope * cosine

    def cosine(self, score: float) -> float:
        """The cosine that has this merged score: a threshold on scores restated for one version."""
        return (score - self.offset) / self.slope

    @property
    def is_raw(self) -> bool:
        return self.slope == 1 and self.offset == 0

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> "ScoreScale":
        known: dict[str, Any] = {name: float("nan") if value is None else value for name, value in record.items()}
        return cls(**known)


SAME = ScoreScale()
"""Scores are merged as they are."""


def measure_scale(
    bridged: NDArray[np.float32],
    old: NDArray[np.float32],
    new: NDArray[np.float32],
    *,
    best: int = BEST,
    pairs: int | None = None,
) -> ScoreScale:
    """Constants of mu_new + sd_new (s - mu_old) / sd_old over the best scores of each query.

    bridged: Q x d_old, the first Q items as bridged queries; the bridge must not be fitted on these.
    old: N x d_old and new: N x d_new, the items as stored by each model; unit rows, row i the same item in all three.
        A query does not search its own item.
    best: scores of each query that count.
    pairs: items that the bridge was fitted and measured on; default N. Below ``FULL_TRUST`` the constants shrink
        towards the raw score.
    Fewer than two items, or equal scores throughout, leave scores as they are.
    """
    if len(old) < 2:
        return SAME
    best_old, best_new = (
        _best(queries @ items.T, best) for queries, items in ((bridged, old), (new[: len(bridged)], new))
    )
    return scale_of_best(best_old, best_new, len(old), len(old) if pairs is None else pairs)


def scale_of_best(old: NDArray[np.float32], new: NDArray[np.float32], items: int, pairs: int) -> ScoreScale:
    """The constants from the best scores of each query in both spaces, Q x k; see ``measure_scale``."""
    (mean_old, deviation_old), (mean_new, deviation_new) = (
        (float(part.mean()), float(part.std(ddof=1)) if part.size > 1 else 0.0)
        for part in (scores.astype(np.float64) for scores in (old, new))
    )
    if not (deviation_old > 1e-6 and deviation_new > 1e-6):
        return SAME
    trust = min(1.0, pairs / FULL_TRUST)
    standard = deviation_new / deviation_old
    return ScoreScale(
        trust * standard + 1 - trust,
        trust * (mean_new - standard * mean_old),
        mean_old,
        deviation_old,
        mean_new,
        deviation_new,
        items,
    )


def _best(scores: NDArray[np.float32], count: int) -> NDArray[np.float32]:
    """The ``count`` best scores of each row, its own item left out."""
    np.fill_diagonal(scores, -np.inf)
    count = min(count, scores.shape[1] - 1)
    return np.partition(scores, scores.shape[1] - count, axis=1)[:, scores.shape[1] - count :]
