"""The score of one cell of a compatibility matrix: top1, recall@K and mAP as in the paper's tables, and verification.

``recall@K`` is the share of queries with a right item among the first K, which ``holdfast check`` calls hit@K. Ties go
to the lower row.
"""

import functools
import re
from collections.abc import Callable
from typing import Any

import numpy as np

from holdfast.core.errors import HoldfastError
from holdfast.metrics import pair_scores, roc_auc, tar_at_far, verification_pairs
from holdfast.vectors import nearest

_SCORES_AT_ONCE = 1 << 22
VERIFICATION_PAIRS = 6000
"""Pairs drawn for 1:1 verification, half of them of one class, as in the CL2R protocol. Small sets have fewer."""


def score_of(name: str) -> Callable[..., float]:
    """The function of a cell's query features, query labels, gallery features and gallery labels, and ``device``.

    name: "top1", "recall@K" or "mAP", the mean over queries; "auc" or "tar@far=F", of pairs. NaN if nothing counts.
    """
    if name == "auc":
        return _verification(roc_auc)
    if found := re.fullmatch(r"tar@far=(\d*\.?\d+(?:e-?\d+)?)", name):
        far = float(found[1])
        if not 0 < far < 1:
            raise HoldfastError(f"score {name!r}: the false-accept rate must lie between 0 and 1")
        return _verification(lambda scores, same: tar_at_far(scores, same, far))
    of_queries: Callable[..., np.ndarray]
    if found := re.fullmatch(r"(?:top|recall@)([1-9]\d{0,5})", name):
        of_queries = functools.partial(_hits, k=int(found[1]))
    elif name == "mAP":
        of_queries = _average_precisions
    else:
        raise HoldfastError(f"unknown score {name!r}; known: top1, recall@K, mAP, auc, tar@far=F")

    def mean(*cell: Any, device: Any = "cpu") -> float:
        values = of_queries(*cell, device=device)
        known = values[~np.isnan(values)]
        return float(known.mean()) if len(known) else float("nan")

    return mean


def _hits(query: Any, labels: Any, gallery: Any, gallery_labels: Any, *, k: int, device: Any) -> np.ndarray:
    """1 for each query whose class is among those of the k nearest, else 0 (Q)."""
    hits = gallery_labels[nearest(query, gallery, k, device=device).indices]
    return np.asarray((hits == labels[:, None]).any(1), dtype=np.float64)


def _average_precisions(query: Any, labels: Any, gallery: Any, gallery_labels: Any, *, device: Any) -> np.ndarray:
    """The average precision of each query (Q); NaN if the gallery has no item of its class."""
    ranks, values = np.arange(1, len(gallery) + 1), np.empty(len(query))
    block = max(1, _SCORES_AT_ONCE // len(gallery))
    for start in range(0, len(query), block):
        some = slice(start, start + block)
        ranked = nearest(query[some], gallery, len(gallery), device=device).indices
        right = gallery_labels[ranked] == labels[some, None]
        sums, counts = (right.cumsum(1) / ranks * right).sum(1), right.sum(1)
        values[some] = np.divide(sums, counts, out=np.full(len(right), np.nan), where=counts > 0)
    return values


def _verification(metric: Callable[[np.ndarray, np.ndarray], float]) -> Callable[..., float]:
    def score(query: Any, query_labels: Any, gallery: Any, gallery_labels: Any, *, device: Any = "cpu") -> float:
        pairs, same = verification_pairs(
            query_labels, gallery_labels, _pairs_to_draw(query_labels, gallery_labels), seed=0
        )
        return metric(pair_scores(query, gallery, pairs), same)

    return score


def _pairs_to_draw(query_labels: np.ndarray, gallery_labels: np.ndarray) -> int:
    """``VERIFICATION_PAIRS``, or fewer if the sets have fewer pairs of one kind."""
    classes, sizes = np.unique(gallery_labels, return_counts=True)
    of_class = dict(zip(classes.tolist(), sizes.tolist(), strict=True))
    same = sum(of_class.get(label, 0) for label in query_labels.tolist())
    different = len(query_labels) * len(gallery_labels) - same
    return max(2, min(VERIFICATION_PAIRS, 2 * same, 2 * different))
