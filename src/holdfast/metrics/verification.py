"""1:1 verification: do two images show the same class? A higher score means that it is more likely."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from holdfast.core.errors import HoldfastError
from holdfast.core.real_arrays import real_array


def roc_auc(scores: ArrayLike, same: ArrayLike) -> float:
    """Probability that a same pair scores above a different pair, in [0, 1]; equal scores count half.

    scores: one per pair.
    same: bool, one per pair; true if both images are of one class.
    NaN unless there is at least one pair of each kind.

    >>> roc_auc([0.9, 0.5, 0.5, 0.1], [True, True, False, False])
    0.875
    """
    genuine, impostor = _by_kind(scores, same)
    if not len(genuine) or not len(impostor):
        return float("nan")
    below = np.searchsorted(impostor, genuine, "left") + np.searchsorted(impostor, genuine, "right")
    return float(below.mean() / (2 * len(impostor)))


def tar_at_far(scores: ArrayLike, same: ArrayLike, far: float) -> float:
    """Largest share of same pairs accepted with at most a share ``far`` of different pairs accepted, in [0, 1].

    scores: one per pair.
    same: bool, one per pair; true if both images are of one class.
    far: false accept rate, in [0, 1].

    A pair is accepted if its score is >= the threshold, so equal scores are accepted or rejected together. There is no
    interpolation between thresholds. 0 if every threshold accepts too many different pairs. NaN unless there is at
    least one pair of each kind.

    >>> tar_at_far([0.9, 0.5, 0.5, 0.1], [True, True, False, False], far=0.0)
    0.5
    """
    _check_far(far)
    genuine, impostor = _by_kind(scores, same)
    if not len(genuine) or not len(impostor):
        return float("nan")
    accepted = len(impostor) - np.searchsorted(impostor, impostor, "left")  # at a threshold of each impostor's score
    too_many = impostor[accepted / len(impostor) > far]
    return float((genuine > too_many[-1]).mean()) if len(too_many) else 1.0


def verification_pairs(
    query_labels: ArrayLike, gallery_labels: ArrayLike, count: int, seed: int
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Draw different (query index, gallery index) pairs: half of one class, half of different classes.

    query_labels, gallery_labels: Q and N. Queries and gallery must be different images.
    count: number of pairs; an odd count has one more pair of one class.
    seed: of the random generator; the same arguments give the same pairs.
    Returns the pairs (count x 2) and whether each is of one class (count). All pairs of a kind are equally likely.

    >>> pairs, same = verification_pairs([0, 1], [0, 1], count=4, seed=0)
    >>> sorted(map(tuple, pairs[same].tolist())), sorted(map(tuple, pairs[~same].tolist()))
    ([(0, 0), (1, 1)], [(0, 1), (1, 0)])
    """
    queries, gallery = real_array(query_labels, "query labels"), real_array(gallery_labels, "gallery labels")
    if queries.ndim != 1 or gallery.ndim != 1 or count < 1:
        raise HoldfastError("verification pairs: needs two lists of labels and a count of at least 1")
    by_label = np.argsort(gallery, kind="stable")
    first = np.searchsorted(gallery[by_label], queries, side="left")
    matches = np.searchsorted(gallery[by_label], queries, side="right") - first
    draw = np.random.default_rng(seed)
    # In the sorted gallery the matches of a query are one block, so the n-th match or non-match can be computed
    # without listing the Q x N pairs.
    query_same, nth = _draw_nth(draw, matches, count - count // 2, "the same class")
    position_same = first[query_same] + nth
    query_different, nth = _draw_nth(draw, len(gallery) - matches, count // 2, "different classes")
    position_different = nth + np.where(nth >= first[query_different], matches[query_different], 0)
    query = np.concatenate([query_same, query_different])
    position = np.concatenate([position_same, position_different])
    same = np.arange(count) < len(query_same)
    return np.stack([query, by_label[position]], axis=1).astype(np.int64), same


def pair_scores(query_features: ArrayLike, gallery_features: ArrayLike, pairs: ArrayLike) -> NDArray[np.floating]:
    """Inner product of the two rows of each pair, which is the cosine for unit features. One score per pair.

    >>> pair_scores([[1.0, 0.0]], [[0.6, 0.8], [0.0, 1.0]], [[0, 0], [0, 1]]).tolist()
    [0.6, 0.0]
    """
    queries, gallery = real_array(query_features, "query features"), real_array(gallery_features, "gallery features")
    index = real_array(pairs, "pairs")
    scores: NDArray[np.floating] = np.einsum("nd,nd->n", queries[index[:, 0]], gallery[index[:, 1]])
    return scores


def _draw_nth(
    draw: np.random.Generator, per_query: NDArray[np.int64], count: int, kind: str
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Draw ``count`` (query, n-th candidate) without repetition; query q has ``per_query[q]`` candidates."""
    ends = np.cumsum(per_query)
    available = int(ends[-1]) if len(ends) else 0
    if count > available:
        raise HoldfastError(f"verification pairs: {count} pairs of {kind} are needed, but only {available} exist")
    flat = draw.choice(available, size=count, replace=False) if count else np.zeros(0, dtype=np.int64)
    query = np.searchsorted(ends, flat, side="right")
    return query, flat - (ends - per_query)[query]


def _by_kind(scores: ArrayLike, same: ArrayLike) -> tuple[NDArray[np.floating], NDArray[np.floating]]:
    """The scores of same pairs and those of different pairs, each ascending."""
    values, positive = real_array(scores, "scores"), real_array(same, "same", bool)
    if values.ndim != 1 or values.shape != positive.shape:
        raise HoldfastError(
            f"verification: needs one score and one label per pair, got {values.shape} and {positive.shape}"
        )
    if np.isnan(values).any():
        raise HoldfastError("verification: a score is NaN, which cannot be compared with a threshold")
    return np.sort(values[positive]), np.sort(values[~positive])


def threshold_at_far(impostor_scores: ArrayLike, far: float) -> float:
    """Lowest threshold that accepts at most a share ``far`` of the impostor scores (score >= threshold).

    It is one of the scores, or the next float above the highest score if none may be accepted. NaN without scores.

    >>> threshold_at_far([0.1, 0.2, 0.3, 0.4], far=0.25)
    0.4
    """
    scores = np.sort(real_array(impostor_scores, "impostor scores", np.float64))
    _check_far(far)
    if len(scores) == 0:
        return float("nan")
    values, first = np.unique(scores, return_index=True)
    allowed = np.flatnonzero((len(scores) - first) / len(scores) <= far)
    return float(values[allowed[0]] if len(allowed) else np.nextafter(values[-1], np.inf))


def _check_far(far: float) -> None:
    if not 0 <= far <= 1:
        raise HoldfastError(f"far must be in [0, 1], got {far}")
