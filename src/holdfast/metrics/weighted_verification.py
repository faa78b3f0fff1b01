"""1:1 verification when pairs count more than once, as they do in a resample: many weightings at a time."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from holdfast.errors import HoldfastError


def weighted_roc_auc(scores: ArrayLike, same: ArrayLike, weights: ArrayLike) -> NDArray[np.float64]:
    """``roc_auc`` under each row of ``weights`` (B x pairs, not negative): B values, NaN where a kind has no weight.

    >>> weighted_roc_auc([0.9, 0.5, 0.5, 0.1], [True, True, False, False], [[1, 1, 1, 1], [1, 0, 1, 0]]).tolist()
    [0.875, 1.0]
    """
    genuine, impostor = _by_score(scores, same, weights)
    below = np.cumsum(impostor, axis=1) - impostor / 2
    total = genuine.sum(axis=1) * impostor.sum(axis=1)
    return _quotient((genuine * below).sum(axis=1), total)


def weighted_tar_at_far(scores: ArrayLike, same: ArrayLike, weights: ArrayLike, far: float) -> NDArray[np.float64]:
    """``tar_at_far`` under each row of ``weights`` (B x pairs, not negative): B values, NaN where a kind has no weight.

    >>> same = [True, True, False, False]
    >>> weighted_tar_at_far([0.9, 0.5, 0.5, 0.1], same, [[1, 1, 1, 1], [1, 1, 0, 1]], far=0.0).tolist()
    [0.5, 1.0]
    """
    genuine, impostor = (np.cumsum(part[:, ::-1], axis=1) for part in _by_score(scores, same, weights))
    total = impostor[:, -1:]
    allowed = np.divide(impostor, total, out=np.ones_like(impostor), where=total > 0) <= far
    return _quotient(np.where(allowed, genuine, 0).max(axis=1), np.where(impostor[:, -1] > 0, genuine[:, -1], 0))


def threshold_at_far(impostor_scores: ArrayLike, far: float) -> float:
    """The lowest threshold at which at most ``far`` of the impostor scores are accepted (score >= threshold).

    It is one of the scores, or the next number above the highest if none may be accepted. NaN without scores.

    >>> threshold_at_far([0.1, 0.2, 0.3, 0.4], far=0.25)
    0.4
    """
    scores = np.sort(np.asarray(impostor_scores, dtype=np.float64))
    if not 0 <= far <= 1:
        raise HoldfastError(f"FAR must be in [0, 1], not {far}")
    if len(scores) == 0:
        return float("nan")
    values, first = np.unique(scores, return_index=True)
    allowed = np.flatnonzero((len(scores) - first) / len(scores) <= far)
    return float(values[allowed[0]] if len(allowed) else np.nextafter(values[-1], np.inf))


def _by_score(
    scores: ArrayLike, same: ArrayLike, weights: ArrayLike
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """B x distinct scores, ascending: the weight of same pairs and of different pairs at each score."""
    values, positive = np.asarray(scores), np.asarray(same, dtype=bool)
    table = np.atleast_2d(np.asarray(weights, dtype=np.float64))
    if values.ndim != 1 or values.shape != positive.shape or table.shape[1:] != values.shape:
        raise HoldfastError(f"weighted pairs: shapes {values.shape}, {positive.shape} and {table.shape} do not fit")
    order = np.argsort(values, kind="stable")
    starts = np.flatnonzero(np.r_[True, np.diff(values[order]) > 0])
    table = table[:, order]
    positive = positive[order]
    return (
        np.add.reduceat(np.where(positive, table, 0.0), starts, axis=1),
        np.add.reduceat(np.where(positive, 0.0, table), starts, axis=1),
    )


def _quotient(above: NDArray[np.float64], below: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.divide(above, below, out=np.full(len(above), np.nan), where=below > 0)
