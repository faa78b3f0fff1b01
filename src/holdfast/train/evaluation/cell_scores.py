"""The score of one cell of a compatibility matrix: the scores of ``checks``, and those of 1:1 verification."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from holdfast.checks.scores import parse_score, query_scores
from holdfast.core.errors import HoldfastError
from holdfast.metrics import pair_scores, roc_auc, tar_at_far, verification_pairs

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
    try:
        parse_score(name)
    except HoldfastError as error:
        raise HoldfastError(f"{error}, auc, tar@far=F") from None
    of_queries = query_scores(name)

    def mean(*cell: Any, device: Any = "cpu") -> float:
        values = of_queries(*cell, device=device)
        known = values[~np.isnan(values)]
        return float(known.mean()) if len(known) else float("nan")

    return mean


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
