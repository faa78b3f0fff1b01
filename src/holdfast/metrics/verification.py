"""1:1 verification: are these two the same? A higher score says yes more strongly.

1:1 verification when pairs count more than once, as they do in a resample: many weightings at a time.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from holdfast.errors import HoldfastError


def roc_auc(scores: ArrayLike, same: ArrayLike) -> float:
    """The chance that a same pair scores above a different one, in [0, 1]; equal scores count half.

    NaN unless there is at least one pair of each kind.

    >>> roc_auc([0.9, 0.5, 0.5, 0.1], [True, True, False, False])
    0.875
    """
    values, positive = _checked(scores, same)
    positives, negatives = int(positive.sum()), int((~positive).sum())
    if positives == 0 or negatives == 0:
        return float("nan")
    _, group, sizes = np.unique(values, return_inverse=True, return_counts=True)
    middle_rank = np.cumsum(sizes) - (sizes - 1) / 2  # one-based; equal scores share the mean of their ranks
    rank_sum = float(middle_rank[group][positive].sum())
    return (rank_sum - positives * (positives + 1) / 2) / (positives * negatives)


def tar_at_far(scores: ArrayLike, same: ArrayLike, far: float) -> float:
    """The largest share of same pairs accepted while the share of different pairs accepted is at most ``far``.

    A pair is accepted if its score is >= the threshold, so equal scores are accepted or refused together, and
    nothing is interpolated between thresholds. Accepting nobody is always allowed: the result is in [0, 1]. NaN unless
    there is at least one pair of each kind.

    >>> tar_at_far([0.9, 0.5, 0.5, 0.1], [True, True, False, False], far=0.0)
    0.5
    """
    values, positive = _checked(scores, same)
    if not 0 <= far <= 1:
        raise HoldfastError(f"TAR at FAR: far must be in [0, 1], not {far}")
    positives, negatives = int(positive.sum()), int((~positive).sum())
    if positives == 0 or negatives == 0:
        return float("nan")
    thresholds, group = np.unique(values, return_inverse=True)
    accepted_same = np.bincount(group[positive], minlength=len(thresholds))[::-1].cumsum()
    accepted_different = np.bincount(group[~positive], minlength=len(thresholds))[::-1].cumsum()
    allowed = accepted_different / negatives <= far
    return float(accepted_same[allowed].max(initial=0) / positives)


def verification_pairs(
    query_labels: ArrayLike, gallery_labels: ArrayLike, count: int, seed: int
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Draw ``count`` different (query index, gallery index) pairs, half of them of one class, evenly among all such.

    Returns the pairs (count x 2) and whether each is of one class; an odd count has one more pair of that kind. The
    same arguments give the same pairs. Queries and gallery are taken to be different images.

    >>> pairs, same = verification_pairs([0, 1], [0, 1], count=4, seed=0)
    >>> sorted(map(tuple, pairs[same].tolist())), sorted(map(tuple, pairs[~same].tolist()))
    ([(0, 0), (1, 1)], [(0, 1), (1, 0)])
    """
    queries, gallery = np.asarray(query_labels), np.asarray(gallery_labels)
    if queries.ndim != 1 or gallery.ndim != 1 or count < 1:
        raise HoldfastError("verification pairs: needs two lists of labels and a count of at least 1")
    by_label = np.argsort(gallery, kind="stable")
    first = np.searchsorted(gallery[by_label], queries, side="left")
    matches = np.searchsorted(gallery[by_label], queries, side="right") - first
    draw = np.random.default_rng(seed)
    # In the sorted gallery a query's matches are one block, so the n-th match or non-match is found by arithmetic and
    # the Q x N pairs are never listed.
    query_same, nth = _draw_nth(draw, matches, count - count // 2, "the same class")
    place_same = first[query_same] + nth
    query_different, nth = _draw_nth(draw, len(gallery) - matches, count // 2, "different classes")
    place_different = nth + np.where(nth >= first[query_different], matches[query_different], 0)
    query = np.concatenate([query_same, query_different])
    place = np.concatenate([place_same, place_different])
    same = np.arange(count) < len(query_same)
    return np.stack([query, by_label[place]], axis=1).astype(np.int64), same


def pair_scores(query_features: ArrayLike, gallery_features: ArrayLike, pairs: ArrayLike) -> NDArray[np.floating]:
    """The inner product of each pair's two rows; the cosine for unit features. One score per pair.

    >>> pair_scores([[1.0, 0.0]], [[0.6, 0.8], [0.0, 1.0]], [[0, 0], [0, 1]]).tolist()
    [0.6, 0.0]
    """
    queries, gallery, index = np.asarray(query_features), np.asarray(gallery_features), np.asarray(pairs)
    scores: NDArray[np.floating] = np.einsum("nd,nd->n", queries[index[:, 0]], gallery[index[:, 1]])
    return scores


def _draw_nth(
    draw: np.random.Generator, per_query: NDArray[np.int64], count: int, kind: str
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Pick ``count`` of all (query, n-th candidate) without repetition, where query q has ``per_query[q]``."""
    ends = np.cumsum(per_query)
    available = int(ends[-1]) if len(ends) else 0
    if count > available:
        raise HoldfastError(f"verification pairs: {count} pairs of {kind} asked for, only {available} exist")
    flat = draw.choice(available, size=count, replace=False) if count else np.zeros(0, dtype=np.int64)
    query = np.searchsorted(ends, flat, side="right")
    return query, flat - (ends - per_query)[query]


def _checked(scores: ArrayLike, same: ArrayLike) -> tuple[NDArray[np.floating], NDArray[np.bool_]]:
    values, positive = np.asarray(scores), np.asarray(same, dtype=bool)
    if values.ndim != 1 or values.shape != positive.shape:
        raise HoldfastError(f"verification: one score and one answer per pair, but {values.shape}, {positive.shape}")
    if np.isnan(values).any():
        raise HoldfastError("verification: a score is NaN, which is neither above nor below a threshold")
    return values, positive


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
