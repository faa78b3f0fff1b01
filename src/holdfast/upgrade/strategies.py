"""Ways to serve an old and a new model together, as functions of arrays.

**Two-stage search** takes the best items of the old index as candidates (by the old query, by a bridged new query, or
by both), scores them by the new model, or by both models with a weight, and sorts them again. **Blend** searches the
old index once, with the old and the bridged query added. ``Upgrade`` serves with these functions and ``compare``
measures with them, so that what is measured is what is served.

Candidates of Q queries are tables of Q x C: ``items`` (row numbers, any order) and ``scores``. A query with fewer
than C candidates has scores of -inf, or NaN, in its last places; what its items are there does not matter.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from holdfast.core.errors import HoldfastError
from holdfast.core.real_arrays import real_array
from holdfast.vectors.lengths import unit

Floats = NDArray[np.float64]
WEIGHT, BLEND_WEIGHT = 0.8, 0.4
"""Default weights of the new score in a two-stage search, and of the bridged query in a blend; chosen and measured in
docs/results/serving-both.md."""
_EVEN = 1e-6
"""Scores whose deviation is below this are equal but for the rounding of float32."""


class Candidates(NamedTuple):
    """Candidates of Q queries, best first: items (Q x C, int64) and scores (Q x C, float64; -inf if there is none)."""

    items: NDArray[np.int64]
    scores: Floats

    def first(self, count: int) -> "Candidates":
        """The first ``count`` of each query."""
        return Candidates(self.items[:, :count], self.scores[:, :count])


def standardised(scores: ArrayLike) -> Floats:
    """Each query's scores less their mean, divided by their deviation: Q x C.

    Scores of -inf and NaN do not count, and become -inf. Equal scores, and a single one, become 0.

    >>> standardised([[0.9, 0.7, -np.inf], [0.5, 0.5, 0.5]]).round(6).tolist()
    [[1.0, -1.0, -inf], [0.0, 0.0, 0.0]]
    """
    table = np.array(real_array(scores, "scores"), dtype=np.float64)
    present = table > -np.inf
    count = np.maximum(present.sum(axis=-1, keepdims=True), 1)
    known = np.where(present, table, 0.0)
    centred = np.where(present, known - known.sum(axis=-1, keepdims=True) / count, 0.0)
    deviation = np.sqrt((centred**2).sum(axis=-1, keepdims=True) / count)
    even = deviation < _EVEN
    return np.where(present, np.where(even, 0.0, centred / np.where(even, 1.0, deviation)), -np.inf)


def combined_scores(old_scores: ArrayLike, new_scores: ArrayLike, weight: float) -> Floats:
    """The scores that candidates are sorted by: Q x C.

    old_scores: of the search that found the candidates. new_scores: of the new model, for the same candidates.
    weight: of the new score, 0 to 1. At 1 the new score is used as it is; below, both are standardised over the
        query's candidates and added with the weights 1 - weight and weight.

    A candidate without a new score (-inf or NaN: its content is gone, say) comes after those with one, in the order of
    its old score.

    >>> combined_scores([[0.9, 0.5]], [[0.2, 0.6]], 0.75).round(6).tolist()
    [[-0.5, 0.5]]
    """
    check_weight(weight)
    old, new = real_array(old_scores, "old scores"), real_array(new_scores, "new scores")
    if old.shape != new.shape:
        raise HoldfastError(f"old scores have the shape {old.shape} and new ones {new.shape}; both must be Q x C")
    scored = new > -np.inf
    if weight == 1:
        total = np.where(scored, np.nan_to_num(new.astype(np.float64), nan=0.0, neginf=0.0), -np.inf)
    else:
        both = (standardised(np.where(scored, part, -np.inf)) for part in (old, new))
        first, second = (np.where(scored, part, 0.0) for part in both)
        total = np.where(scored, (1 - weight) * first + weight * second, -np.inf)
    unscored = ~scored & (old > -np.inf)
    if unscored.any():
        # Below everything that was scored, by their old order: their scores keep it and stay finite.
        least = np.where(scored, total, np.inf).min(axis=-1, keepdims=True)
        least = np.where(np.isfinite(least), least, 0.0)
        below = np.where(unscored, old, -np.inf)
        top = below.max(axis=-1, keepdims=True)
        total = np.where(unscored, least - 1 + np.where(unscored, below - top, 0.0), total)
    return total


def ranked(items: ArrayLike, scores: ArrayLike, k: int | None = None) -> Candidates:
    """Candidates sorted by ``scores`` (Q x C), the first ``k`` of them. Equal scores keep their order."""
    numbers, table = real_array(items, "items", np.int64), real_array(scores, "scores").astype(np.float64)
    order = np.argsort(-np.where(np.isnan(table), -np.inf, table), axis=-1, kind="stable")[:, :k]
    return Candidates(np.take_along_axis(numbers, order, -1), np.take_along_axis(table, order, -1))


def merged_candidates(first: Candidates, second: Candidates, count: int) -> Candidates:
    """The ``count`` best candidates of two searches, such as by the old and by the bridged query.

    The scores of each search are standardised over its own candidates of a query. An item that both found counts once,
    with the larger of its two scores.

    >>> by_old = Candidates(np.array([[7, 4, 1]]), np.array([[0.9, 0.8, 0.1]]))
    >>> by_bridge = Candidates(np.array([[4, 2]]), np.array([[0.3, 0.1]]))
    >>> merged_candidates(by_old, by_bridge, 3).items.tolist()
    [[4, 7, 2]]
    """
    items = np.concatenate([first.items, second.items], axis=1)
    scores = np.concatenate([standardised(first.scores), standardised(second.scores)], axis=1)
    # By item, the larger score first: every later entry of the same item is a repetition.
    order = np.lexsort((-scores, items), axis=-1)
    grouped = np.take_along_axis(items, order, -1)
    repeated = np.zeros_like(grouped, dtype=bool)
    repeated[:, 1:] = (grouped[:, 1:] == grouped[:, :-1]) & (np.take_along_axis(scores, order, -1)[:, 1:] > -np.inf)
    drop = np.empty_like(repeated)
    np.put_along_axis(drop, order, repeated, axis=-1)
    return ranked(items, np.where(drop, -np.inf, scores), count)


def candidate_scores(queries: ArrayLike, vectors: ArrayLike) -> Floats:
    """Cosine of each query with its own candidates: Q x C.

    queries: Q x d. vectors: Q x C x d, the candidates' vectors by the same model. Rows of any length; a row of zeros,
    or with NaN or infinity, gets -inf.

    >>> candidate_scores([[2.0, 0.0]], [[[3.0, 0.0], [0.0, 0.0], [0.0, 1.0]]]).tolist()
    [[1.0, -inf, 0.0]]
    """
    asked, rows = unit(queries), real_array(vectors, "vectors", np.float32)
    if asked.ndim != 2 or rows.ndim != 3 or rows.shape[0] != len(asked) or rows.shape[2] != asked.shape[1]:
        raise HoldfastError(f"queries {asked.shape} and vectors {rows.shape} must be Q x d and Q x C x d")
    usable = np.isfinite(rows).all(axis=-1) & rows.any(axis=-1)
    if not usable.all():
        rows = np.where(usable[..., None], rows, np.float32(0))
    cosines = np.einsum("qcd,qd->qc", unit(rows), asked)
    return np.where(usable, cosines.astype(np.float64), -np.inf)


def blended_queries(old_queries: ArrayLike, bridged_queries: ArrayLike, weight: float) -> NDArray[np.float32]:
    """One query per search of the old index: the old query and the bridged one, added: Q x d_old, of length 1.

    weight: of the bridged query, 0 to 1. An item's score is then its score by the old query and that by the bridged
        one, added with the weights 1 - weight and weight, but for a factor of the query.

    >>> blended_queries([[1.0, 0.0]], [[0.0, 1.0]], 0.5).round(4)
    array([[0.7071, 0.7071]], dtype=float32)
    """
    check_weight(weight)
    old, bridged = unit(old_queries), unit(bridged_queries)
    if old.shape != bridged.shape:
        raise HoldfastError(f"old queries {old.shape} and bridged queries {bridged.shape} must have one shape")
    return unit((1 - weight) * old + weight * bridged)


def check_weight(weight: float) -> None:
    """Refuse a weight outside 0 to 1."""
    if not 0 <= weight <= 1:
        raise HoldfastError(f"weight must lie between 0 and 1, for example 0.8; got {weight!r}")
