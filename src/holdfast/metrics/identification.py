"""1:N search: how often the right class comes first, and how well all of it is ranked."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from holdfast.errors import HoldfastError


def top_k_accuracy(ranked_labels: ArrayLike, query_labels: ArrayLike) -> float:
    """The share of queries whose label is among the k labels found for them, in [0, 1].

    ``ranked_labels`` is Q x k, best first, so the order of ties is whatever the search made of it; ``query_labels``
    has Q entries. NaN without queries, 0 for k = 0.

    >>> top_k_accuracy([[3, 1], [2, 0]], [1, 1])
    0.5
    """
    ranked, labels = np.asarray(ranked_labels), np.asarray(query_labels)
    if ranked.ndim != 2 or labels.shape != ranked.shape[:1]:
        raise HoldfastError(f"top-k accuracy: needs Q x k and Q labels, but has {ranked.shape} and {labels.shape}")
    if len(labels) == 0:
        return float("nan")
    return float((ranked == labels[:, None]).any(axis=1).mean())


def average_precision(relevance: ArrayLike, num_relevant: int) -> float:
    """AP of one ranked list: the sum of precision at each relevant rank, over ``num_relevant``; in [0, 1].

    ``relevance`` is boolean, best rank first, and may be cut short: relevant items beyond it count as never found.
    NaN if nothing is relevant (``num_relevant`` = 0).

    >>> average_precision([True, False, True, False], num_relevant=2)
    0.8333333333333333
    """
    hits = np.asarray(relevance, dtype=bool)
    if hits.ndim != 1:
        raise HoldfastError(f"average precision: needs one list of relevance, but its shape is {hits.shape}")
    if num_relevant < int(hits.sum()):
        raise HoldfastError(f"average precision: {int(hits.sum())} relevant items are ranked, of only {num_relevant}")
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
    """mAP: the mean of AP over the queries, the whole gallery ranked by inner product; in [0, 1].

    Features are unit rows, Q x d and N x d. Equal scores keep the gallery's order (lower index first). A query with
    no item of its class in the gallery has no AP and is left out of the mean; ``queries_without_match`` counts them.
    NaN if that leaves none. ``chunk`` queries are ranked at a time: chunk x N scores in memory, the same result.

    >>> mean_average_precision([[1.0, 0.0], [0.0, 1.0]], [0, 1], [[0.6, 0.8], [1.0, 0.0]], [1, 0])
    1.0
    """
    queries, gallery = np.asarray(query_features), np.asarray(gallery_features)
    labels, stored = np.asarray(query_labels), np.asarray(gallery_labels)
    if queries.ndim != 2 or gallery.ndim != 2 or queries.shape[1] != gallery.shape[1]:
        raise HoldfastError(f"mAP: features must be Q x d and N x d, but are {queries.shape} and {gallery.shape}")
    if labels.shape != queries.shape[:1] or stored.shape != gallery.shape[:1]:
        raise HoldfastError(f"mAP: one label per feature is needed, but has {labels.shape} and {stored.shape}")
    if chunk < 1:
        raise HoldfastError(f"mAP: chunk must be at least 1, not {chunk}")
    if not (np.isfinite(queries).all() and np.isfinite(gallery).all()):
        raise HoldfastError("mAP: the features hold NaN or infinity, which cannot be ranked")
    rows = np.flatnonzero(np.isin(labels, stored))
    total = 0.0
    for start in range(0, len(rows), chunk):
        block = rows[start : start + chunk]
        order = np.argsort(-(queries[block] @ gallery.T), axis=1, kind="stable")
        hits = stored[order] == labels[block, None]
        total += float((_precision_sums(hits) / hits.sum(axis=1)).sum())
    return total / len(rows) if len(rows) else float("nan")


def queries_without_match(query_labels: ArrayLike, gallery_labels: ArrayLike) -> int:
    """How many queries have no item of their class in the gallery, so that mAP leaves them out.

    >>> queries_without_match([0, 1, 2], [0, 0, 2])
    1
    """
    return int((~np.isin(query_labels, gallery_labels)).sum())


def _precision_sums(hits: NDArray[np.bool_]) -> NDArray[np.float64]:
    ranks = np.arange(1, hits.shape[1] + 1)
    sums: NDArray[np.float64] = (np.cumsum(hits, axis=1) / ranks * hits).sum(axis=1)
    return sums
