"""Exact nearest neighbours by cosine, used by every search in the project.

Queries and gallery are compared in blocks, so memory is bounded. Equal scores are ordered by gallery index, on every
device, so that a ranking can be repeated.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from holdfast.core.errors import HoldfastError
from holdfast.core.real_arrays import check_real, real_array

_QUERIES, _ROWS = 256, 4096
"""Rows of the blocks: their scores (4 MB) stay in the processor's cache until they are compared."""
_MANY = 1 / 8
"""Share of the scores of a block that are above the worst hits, from which on most of them are first ruled out."""
_NOT_FOUND = np.iinfo(np.uint64).max
_ON_GPU = 1 << 26
"""Scores that a GPU computes at a time."""


class Neighbours(NamedTuple):
    """The k best gallery rows per query, best first: scores (Q x k, float32) and indices (Q x k, int64)."""

    scores: NDArray[np.float32]
    indices: NDArray[np.int64]


def nearest(queries: ArrayLike, gallery: ArrayLike, k: int = 1, *, device: Any = "cpu") -> Neighbours:
    """The ``k`` gallery rows with the largest inner product for each query, exactly.

    queries: Q x d. Pass unit rows for cosine; rows are not normalised here.
    gallery: N x d. NumPy arrays, tensors of torch on any device, or anything else that NumPy can read.
    k: neighbours per query; at most N are returned.
    device: "cpu", or a GPU by its name in torch, such as "cuda"; only then is torch imported.

    Ties go to the lower gallery index. A score that is NaN comes after all numbers.

    >>> from holdfast import nearest
    >>> hits = nearest([[0.0, 1.0]], [[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]], k=2)
    >>> hits.indices.tolist(), hits.scores.round(3).tolist()
    ([[1, 2]], [[1.0, 0.800000011920929]])
    """
    if k < 1:
        raise HoldfastError(f"k must be at least 1, got {k}")
    on_cpu = str(device) == "cpu"
    asked, stored = (_matrix(given, name, on_cpu) for given, name in ((queries, "queries"), (gallery, "gallery")))
    if asked.ndim != 2 or stored.ndim != 2 or asked.shape[1] != stored.shape[1]:
        raise HoldfastError(
            f"queries {tuple(asked.shape)} and gallery {tuple(stored.shape)} must be matrices of equal width"
        )
    if len(stored) == 0:
        raise HoldfastError("the gallery is empty")
    k = min(k, len(stored))
    if not on_cpu:
        return _nearest_on_gpu(asked, stored, k, device)
    asked = np.ascontiguousarray(asked, dtype=np.float32)
    rows = min(len(stored), max(_ROWS, 4 * k))
    count = max(1, min(len(asked), _QUERIES * _ROWS // rows))
    best = [_Best(asked[start : start + count], k) for start in range(0, len(asked), count)]
    space = np.empty(count * rows, dtype=np.float32)
    for start in range(0, len(stored), rows):
        block = np.asarray(stored[start : start + rows], dtype=np.float32)
        for part in best:
            part.add(block, start, space)
    if not best:
        return Neighbours(np.zeros((0, k), dtype=np.float32), np.zeros((0, k), dtype=np.int64))
    return Neighbours(*(np.concatenate(parts) for parts in zip(*(part.hits() for part in best), strict=True)))


def merge_neighbours(earlier: Neighbours, later: Neighbours, k: int) -> Neighbours:
    """The ``k`` best of two searches of the same queries, in an earlier and a later part of one gallery.

    Every index of ``earlier`` is below every index of ``later``, so a stable sort keeps ties in order.
    """
    scores = np.concatenate([earlier.scores, later.scores], axis=1)
    indices = np.concatenate([earlier.indices, later.indices], axis=1)
    order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    return Neighbours(np.take_along_axis(scores, order, 1), np.take_along_axis(indices, order, 1))


def best_columns(scores: NDArray[np.float32], k: int) -> NDArray[np.int64]:
    """Columns of the ``k`` largest numbers of each row, best first; equal ones in the order of columns; NaN last."""
    least = np.partition(scores, scores.shape[1] - k, axis=1)[:, scores.shape[1] - k :]
    if np.isnan(least).any():
        return best_columns(np.where(np.isnan(scores), np.float32(-np.inf), scores), k)
    is_best = scores >= least[:, :1]
    tied = is_best.sum(axis=1) > k
    if tied.any():
        is_best[tied] = False
        order = np.argsort(-scores[tied], axis=1, kind="stable")[:, :k]
        is_best[np.flatnonzero(tied)[:, None], order] = True
    columns = (np.flatnonzero(is_best) % scores.shape[1]).reshape(len(scores), k)
    order = np.argsort(-np.take_along_axis(scores, columns, 1), axis=1, kind="stable")
    return np.take_along_axis(columns, order, 1)


class _Best:
    """The k best rows so far for a block of queries, each as one number of 64 bits.

    Its upper half orders scores, the largest first, and its lower half is the row: in ascending order, such keys give
    the hits with ties in order.
    """

    def __init__(self, queries: NDArray[np.float32], k: int) -> None:
        self._queries, self._k = queries, k
        self._keys = np.full((len(queries), k), _NOT_FOUND, dtype=np.uint64)
        self._worst = np.full(len(queries), -np.inf, dtype=np.float32)
        self._rows = 0

    def add(self, gallery: NDArray[np.float32], start: int, space: NDArray[np.float32]) -> None:
        """Take the rows ``start`` .. of the gallery into account; ``space`` holds the scores meanwhile."""
        self._rows = start + len(gallery)
        scores = space[: len(self._queries) * len(gallery)].reshape(len(self._queries), len(gallery))
        np.matmul(self._queries, gallery.T, out=scores)
        if start == 0:
            columns = best_columns(scores, min(self._k, len(gallery)))
            numbers = np.take_along_axis(scores, columns, 1)
            keys = _keys(numbers, columns.astype(np.uint64))
            self._keys[:, : columns.shape[1]] = np.where(numbers > -np.inf, keys, _NOT_FOUND)
            self._worst = _scores(self._keys[:, -1])
            return
        # Rows come in ascending order, so a score that is only equal to the worst hit is not a hit.
        candidates = np.flatnonzero(scores > self._worst[:, None])
        if len(candidates) > _MANY * scores.size and self._k < len(gallery):
            least = np.take_along_axis(scores, best_columns(scores, self._k)[:, -1:], 1)
            candidates = np.flatnonzero((scores >= least) & (scores > self._worst[:, None]))
        query, column = np.divmod(candidates, len(gallery))
        counts = np.bincount(query, minlength=len(self._queries))
        changed = np.flatnonzero(counts)
        if not len(changed):
            return
        place = np.arange(len(candidates)) - np.repeat(np.cumsum(counts) - counts, counts)
        keys = np.full((len(changed), self._k + int(counts.max())), _NOT_FOUND, dtype=np.uint64)
        keys[:, : self._k] = self._keys[changed]
        keys[np.repeat(np.arange(len(changed)), counts[changed]), self._k + place] = _keys(
            scores.reshape(-1)[candidates], (column + start).astype(np.uint64)
        )
        keys.partition(self._k - 1, axis=1)
        self._keys[changed] = keys[:, : self._k]
        self._worst[changed] = _scores(keys[:, self._k - 1])

    def hits(self) -> Neighbours:
        keys = np.sort(self._keys, axis=1)
        scores, indices = _scores(keys), (keys & np.uint64(0xFFFFFFFF)).astype(np.int64)
        missing = keys == _NOT_FOUND
        for query in np.flatnonzero(missing.any(axis=1)):  # scores that are NaN, of vectors that hold NaN
            places = np.flatnonzero(missing[query])
            others = np.setdiff1d(np.arange(self._rows), indices[query, : places[0]])
            indices[query, places], scores[query, places] = others[: len(places)], np.nan
        return Neighbours(scores, indices)


def _keys(scores: NDArray[np.float32], rows: NDArray[np.uint64]) -> NDArray[np.uint64]:
    bits = (scores + np.float32(0)).view(np.uint32)  # -0.0 becomes 0.0, its equal
    # Floats of one sign are in the order of their bits. The largest score gets the smallest key. NaN is no candidate.
    descending = np.where(bits >> 31, bits, ~bits & np.uint32(0x7FFFFFFF))
    keys: NDArray[np.uint64] = (descending.astype(np.uint64) << np.uint64(32)) | rows
    return keys


def _scores(keys: NDArray[np.uint64]) -> NDArray[np.float32]:
    """The scores of keys; -inf where nothing was found."""
    descending = (keys >> np.uint64(32)).astype(np.uint32)
    scores = np.where(descending >> 31, descending, ~descending & np.uint32(0x7FFFFFFF)).view(np.float32)
    found: NDArray[np.float32] = np.where(keys == _NOT_FOUND, np.float32(-np.inf), scores)
    return found


def _matrix(given: Any, name: str, on_cpu: bool) -> Any:
    """An array, or a tensor that is left where it is."""
    check_real(given, name)
    return given if not on_cpu and hasattr(given, "detach") else real_array(given, name)


def _nearest_on_gpu(queries: Any, gallery: Any, k: int, device: Any) -> Neighbours:
    import torch

    with torch.no_grad():
        stored = torch.as_tensor(gallery, device=device).float()
        asked = torch.as_tensor(queries, device=device).float()
        height = max(k, min(len(stored), 1 << 16))
        scores, indices = [asked.new_zeros(0, k)], [asked.new_zeros(0, k, dtype=torch.int64)]
        for some in asked.split(max(1, _ON_GPU // height)):
            values, rows = asked.new_zeros(len(some), 0), asked.new_zeros(len(some), 0, dtype=torch.int64)
            for start in range(0, len(stored), height):
                products = some @ stored[start : start + height].T
                top, columns = products.topk(min(k, products.shape[1]), dim=1)
                # topk may choose any of the columns with the k-th score, so rows with such ties are sorted in full.
                tied = (products >= top[:, -1:]).sum(1) > top.shape[1]
                if bool(tied.any()):
                    order = products[tied].sort(dim=1, descending=True, stable=True)
                    top[tied], columns[tied] = (part[:, : top.shape[1]] for part in order)
                columns, by_column = columns.sort(dim=1)
                values = torch.cat([values, top.gather(1, by_column)], dim=1)
                rows = torch.cat([rows, columns + start], dim=1)
                values, order_of = values.sort(dim=1, descending=True, stable=True)
                values, rows = values[:, :k], rows.gather(1, order_of)[:, :k]
            scores.append(values)
            indices.append(rows)
        return Neighbours(torch.cat(scores).cpu().numpy(), torch.cat(indices).cpu().numpy())
