"""Exact nearest neighbours by cosine, used by every search in the project.

Queries and gallery are processed in chunks, so memory is bounded. Equal scores are ordered by gallery index, on every
device and for every chunk size, so that a ranking can be repeated.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from holdfast.core.errors import HoldfastError
from holdfast.core.real_arrays import check_real

CHUNK_ELEMENTS = 1 << 24
"""Number of scores in memory at a time: 64 MB of float32."""


class Neighbours(NamedTuple):
    """The k best gallery rows per query, best first: scores (Q x k, float32) and indices (Q x k, int64)."""

    scores: Tensor
    indices: Tensor


def nearest(queries: Tensor, gallery: Tensor, k: int = 1, *, chunk_elements: int = CHUNK_ELEMENTS) -> Neighbours:
    """The ``k`` gallery rows with the largest inner product for each query, exactly.

    queries: Q x d. Pass unit rows for cosine; rows are not normalised here.
    gallery: N x d, on the same device.
    k: neighbours per query; at most N are returned.
    chunk_elements: scores computed at a time; peak extra memory is about twice as many.

    Ties go to the lower gallery index.

    >>> import torch
    >>> from holdfast import nearest
    >>> gallery = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]])
    >>> found = nearest(torch.tensor([[0.0, 1.0]]), gallery, k=2)
    >>> found.indices, found.scores
    (tensor([[1, 2]]), tensor([[1.0000, 0.8000]]))
    """
    if queries.ndim != 2 or gallery.ndim != 2 or queries.shape[1] != gallery.shape[1]:
        raise HoldfastError(
            f"queries {tuple(queries.shape)} and gallery {tuple(gallery.shape)} must be matrices of equal width"
        )
    if k < 1:
        raise HoldfastError(f"k must be at least 1, got {k}")
    if len(gallery) == 0:
        raise HoldfastError("the gallery is empty")
    check_real(queries, "queries")
    check_real(gallery, "gallery")
    queries, gallery = queries.float(), gallery.float()
    k = min(k, len(gallery))
    gallery_chunk = max(k, min(len(gallery), 1 << 14))
    query_chunk = max(1, chunk_elements // gallery_chunk)
    parts = [_search_block(block, gallery, k, gallery_chunk) for block in queries.split(query_chunk)]
    if not parts:
        empty = queries.new_empty(0, k)
        return Neighbours(empty, empty.long())
    return Neighbours(torch.cat([p.scores for p in parts]), torch.cat([p.indices for p in parts]))


def _search_block(queries: Tensor, gallery: Tensor, k: int, gallery_chunk: int) -> Neighbours:
    best: Neighbours | None = None
    for start in range(0, len(gallery), gallery_chunk):
        found = _top(queries @ gallery[start : start + gallery_chunk].T, k)
        found = Neighbours(found.scores, found.indices + start)
        best = found if best is None else merge_neighbours(best, found, k)
    assert best is not None
    return best


def _top(scores: Tensor, k: int) -> Neighbours:
    """Top k of each row, equal scores to the lower column."""
    if k == 1:
        values, columns = scores.max(dim=1, keepdim=True)  # max gives the first of equal values
        return Neighbours(values, columns)
    k = min(k, scores.shape[1])
    values, columns = scores.topk(k, dim=1)
    # topk may choose any of the columns with the k-th score, so rows with such ties are sorted in full, stably.
    tied = (scores >= values[:, -1:]).sum(1) > k
    if bool(tied.any()):
        values, columns = values.clone(), columns.clone()
        order = scores[tied].sort(dim=1, descending=True, stable=True)
        values[tied], columns[tied] = order.values[:, :k], order.indices[:, :k]
    columns, by_column = columns.sort(dim=1)
    values, by_value = values.gather(1, by_column).sort(dim=1, descending=True, stable=True)
    return Neighbours(values, columns.gather(1, by_value))


def merge_neighbours(earlier: Neighbours, later: Neighbours, k: int) -> Neighbours:
    """The ``k`` best of two searches of the same queries, in an earlier and a later part of one gallery.

    Every index of ``earlier`` is below every index of ``later``, so a stable sort keeps ties in order.
    """
    scores = torch.cat([earlier.scores, later.scores], 1)
    indices = torch.cat([earlier.indices, later.indices], 1)
    scores, order = scores.sort(dim=1, descending=True, stable=True)
    return Neighbours(scores[:, :k], indices.gather(1, order)[:, :k])
