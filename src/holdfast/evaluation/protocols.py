"""Protocols and scores of one cell of the compatibility matrix.

Every score takes unit features and int64 labels as tensors on one device and returns a number in [0, 1]. Nearest
neighbours come from ``geometry.nearest``, so ties go to the lower index.
"""

import functools
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from holdfast.errors import unknown_name
from holdfast.evaluation.scores import parse_score
from holdfast.geometry import nearest, unit
from holdfast.metrics import pair_scores, roc_auc, tar_at_far, verification_pairs

VERIFICATION_PAIRS = 6000
"""Pairs drawn for 1:1 verification, half of them of one class, as in the CL2R protocol. Small sets have fewer."""


def templates(features: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """One unit vector per class, the mean of its unit features, and the class labels in ascending order."""
    classes, inverse = labels.unique(return_inverse=True)
    sums = features.new_zeros(len(classes), features.shape[1]).index_add_(0, inverse, features)
    return unit(sums), classes


def whole_gallery(features: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    return features, labels


PROTOCOLS: dict[str, Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]] = {
    "template": templates,  # the paper's
    "instance": whole_gallery,
}


def gallery_of(protocol: str, features: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """The vectors that queries are compared with under ``protocol``, and their classes."""
    if protocol not in PROTOCOLS:
        raise unknown_name("protocol", protocol, PROTOCOLS)
    return PROTOCOLS[protocol](features, labels)


def top_k(query: Tensor, query_labels: Tensor, gallery: Tensor, gallery_labels: Tensor, *, k: int = 1) -> float:
    """The share of queries whose class is among those of the k nearest."""
    found = gallery_labels[nearest(query, gallery, k).indices]
    return (found == query_labels[:, None]).any(1).double().mean().item()


def mean_average_precision(query: Tensor, query_labels: Tensor, gallery: Tensor, gallery_labels: Tensor) -> float:
    """``metrics.mean_average_precision`` with ``geometry.nearest``, on the device; NaN if no query counts."""

    def is_right(start: int, ranked: Tensor) -> Tensor:
        return gallery_labels[ranked] == query_labels[start : start + len(ranked), None]

    return average_precisions(query, gallery, is_right).nanmean().item()


def average_precisions(
    query: Tensor,
    gallery: Tensor,
    is_right: Callable[[int, Tensor], Tensor],
    progress: Callable[[int], None] = lambda queries: None,
) -> Tensor:
    """Average precision of every query (Q, float64) over the whole gallery; NaN if nothing in it is right.

    is_right: called with the number of the first query of a block and the ranked gallery rows of the block (b x N);
        returns whether each is right (b x N, boolean).
    progress: called with the number of queries of each finished block.
    """
    ranks = torch.arange(1, len(gallery) + 1, device=query.device)
    found = query.new_empty(len(query), dtype=torch.float64)
    block = max(1, (1 << 22) // len(gallery))
    for start in range(0, len(query), block):
        hits = is_right(start, nearest(query[start : start + block], gallery, len(gallery)).indices)
        sums = (hits.cumsum(1) / ranks * hits).sum(1, dtype=torch.float64)
        found[start : start + len(hits)] = sums / hits.sum(1)  # 0 / 0 is NaN
        progress(len(hits))
    return found


def _verification(metric: Callable[..., float]) -> Callable[[Tensor, Tensor, Tensor, Tensor], float]:
    def score(query: Tensor, query_labels: Tensor, gallery: Tensor, gallery_labels: Tensor) -> float:
        labels = query_labels.cpu().numpy(), gallery_labels.cpu().numpy()
        pairs, same = verification_pairs(*labels, pairs_to_draw(*labels), seed=0)
        return metric(pair_scores(query.cpu().numpy(), gallery.cpu().numpy(), pairs), same)

    return score


def pairs_to_draw(query_labels: np.ndarray, gallery_labels: np.ndarray, wanted: int = VERIFICATION_PAIRS) -> int:
    """``wanted``, or fewer if the sets have fewer pairs of one kind."""
    classes, sizes = np.unique(gallery_labels, return_counts=True)
    of_class = dict(zip(classes.tolist(), sizes.tolist(), strict=True))
    same = sum(of_class.get(label, 0) for label in query_labels.tolist())
    different = len(query_labels) * len(gallery_labels) - same
    return max(2, min(wanted, 2 * same, 2 * different))


def score_of(name: str) -> Callable[[Tensor, Tensor, Tensor, Tensor], float]:
    """The function that computes a score of one cell. ``name`` is one that ``parse_score`` reads."""
    score = parse_score(name)
    if score.kind == "hits":
        return functools.partial(top_k, k=score.k)
    if score.kind == "mAP":
        return mean_average_precision
    return _verification(roc_auc if score.kind == "auc" else functools.partial(tar_at_far, far=score.far))


def on_device(array: object, device: torch.device | str) -> Tensor:
    """A copy of an array, which may be memory-mapped and read-only, as a tensor on ``device``."""
    return torch.tensor(array, device=device)
