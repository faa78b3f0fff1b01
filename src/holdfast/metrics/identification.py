"""1:N search: top-k accuracy and mean average precision."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from holdfast.core.errors import HoldfastError
from holdfast.core.real_arrays import real_array


def top_k_accuracy(ranked_labels: ArrayLike, query_labels: ArrayLike) -> float:
    """Share of queries with their label among the k labels found for them, in [0, 1].

    ranked_labels: labels of the items found, Q x k, best first; ties are in the order of the search.
    query_labels: Q.
    NaN without queries, 0 for k = 0.

    >>> top_k_accuracy([[3, 1], [2, 0]], [1, 1])
    0.5
    """
    ranked, labels = real_array(ranked_labels, "ranked labels"), real_array(query_labels, "query labels")
    if ranked.ndim != 2 or labels.shape != ranked.shape[:1]:
        raise HoldfastError(f"top-k accuracy: needs Q x k and Q labels, got {ranked.shape} and {labels.shape}")
    if len(labels) == 0:
        return float("nan")
    return float((ranked == labels[:, None]).any(axis=1).mean())


def average_precision(relevance: ArrayLike, num_relevant: int) -> float:
    """AP of one ranked list: the sum of the precision at each relevant rank, divided by ``num_relevant``; in [0, 1].

    relevance: bool, best rank first. The list may be truncated; relevant items beyond it count as not found.
    num_relevant: relevant items in the whole gallery. NaN if it is 0.

    >>> average_precision([True, False, True, False], num_relevant=2)
    0.8333333333333333
    """
    hits = real_array(relevance, "relevance", bool)
    if hits.ndim != 1:
        raise HoldfastError(f"average precision: relevance must be one-dimensional, got shape {hits.shape}")
    if num_relevant < int(hits.sum()):
        raise HoldfastError(
            f"average precision: {int(hits.sum())} relevant items ranked, but num_relevant is {num_relevant}"
        )
    if num_relevant == 0:
        return float("nan")
    return float(_precision_sums(hits[None, :])[0] / num_relevant)


def mean_average_precision(
    query_features: ArrayLike,
    query_labels: ArrayLike,
    gallery_features: ArrayLike,
    gallery_labels: ArrayLike,
    *,
    chunk: int = 256,
) -> float:
    """mAP: the mean of AP over the queries, with the whole gallery ranked by inner product; in [0, 1].

    query_features, gallery_features: unit rows, Q x d and N x d.
    query_labels, gallery_labels: Q and N.
    chunk: queries ranked at a time, which needs chunk x N scores in memory; the result does not depend on it.

    Equal scores keep the order of the gallery (lower index first). A query without an item of its class in the gallery
    is left out of the mean; ``queries_without_match`` counts them. NaN if all are left out.

    >>> mean_average_precision([[1.0, 0.0], [0.0, 1.0]], [0, 1], [[0.6, 0.8], [1.0, 0.0]], [1, 0])
    1.0
    """
    queries, gallery = real_array(query_features, "query features"), real_array(gallery_features, "gallery features")
    labels, stored = real_array(query_labels, "query labels"), real_array(gallery_labels, "gallery labels")
    if queries.ndim != 2 or gallery.ndim != 2 or queries.shape[1] != gallery.shape[1]:
        raise HoldfastError(f"mAP: features must be Q x d and N x d, but are {queries.shape} and {gallery.shape}")
    if labels.shape != queries.shape[:1] or stored.shape != gallery.shape[:1]:
        raise HoldfastError(f"mAP: one label per feature is needed, got labels {labels.shape} and {stored.shape}")
    if chunk < 1:
        raise HoldfastError(f"mAP: chunk must be at least 1, not {chunk}")
    if not (np.isfinite(queries).all() and np.isfinite(gallery).all()):
        raise HoldfastError("mAP: the features contain NaN or infinity, which cannot be ranked")
    rows = np.flatnonzero(np.isin(labels, stored))
    total = 0.0
    for start in range(0, len(rows), chunk):
        block = rows[start : start + chunk]
        order = np.argsort(-(queries[block] @ gallery.T), axis=1, kind="stable")
        hits = stored[order] == labels[block, None]
        total += float((_precision_sums(hits) / hits.sum(axis=1)).sum())
    return total / len(rows) if len(rows) else float("nan")


def queries_without_match(query_labels: ArrayLike, gallery_labels: ArrayLike) -> int:
    """Number of queries without an item of their class in the gallery, which mAP leaves out.

    >>> queries_without_match([0, 1, 2], [0, 0, 2])
    1
    """
    queries, gallery = real_array(query_labels, "query labels"), real_array(gallery_labels, "gallery labels")
    return int((~np.isin(queries, gallery)).sum())


def _precision_sums(hits: NDArray[np.bool_]) -> NDArray[np.float64]:
    ranks = np.arange(1, hits.shape[1] + 1)
    sums: NDArray[np.float64] = (np.cumsum(hits, axis=1) / ranks * hits).sum(axis=1)
    return sums
