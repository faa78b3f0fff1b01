"""Protocols and scores: what queries are compared with, the score of one cell, and the score of a random ranking.

The functions of a cell take unit features and int64 labels as tensors on one device and return a number in [0, 1].
Nearest neighbours come from ``geometry.nearest``, so ties go to the lower index.
"""

import functools
import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from holdfast.core.errors import HoldfastError, unknown_name
from holdfast.metrics import pair_scores, roc_auc, tar_at_far, verification_pairs
from holdfast.train.geometry import unit
from holdfast.vectors import nearest

KNOWN_SCORES = ("top1", "recall@K", "mAP", "auc", "tar@far=F")


@dataclass(frozen=True)
class Score:
    """One score in [0, 1].

    kind: "hits", "mAP", "auc", "tar" or "overlap".
    k: number of hits that count.
    far: the false-accept rate of ``tar@far=F``.
    """

    name: str
    kind: str
    k: int = 1
    far: float = 0.0

    @property
    def of_pairs(self) -> bool:
        """Whether it is a score of all pairs together; the others are a mean over queries."""
        return self.kind in ("auc", "tar")

    def chance(self, right: np.ndarray, rows: int) -> float:
        """The mean of ``by_chance``; refused if the score cannot depend on the features."""
        if not (right > 0).any():
            raise HoldfastError(
                f"{self.name}: no query has a right item to find; with leave-one-out a class needs at least two items"
            )
        expected = self.by_chance(right[right > 0] if self.kind == "mAP" else right, rows)
        if np.isin(expected.round(12), (0, 1)).all():
            raise HoldfastError(
                f"{self.name} would be the same for any features: there is one class, or K is too large for the gallery"
            )
        return float(expected.mean())

    def by_chance(self, right: np.ndarray, rows: int) -> np.ndarray:
        """The expected score of each query in a random ranking.

        right: number of right gallery rows for each query.
        rows: number of gallery rows.

        hits: 1 - C(rows - R, k) / C(rows, k). mAP: (H + (R - 1) (rows - H) / (rows - 1)) / rows with H = 1 + 1/2 + ..
        + 1/rows, for R > 0. overlap: R / rows. auc and tar are those of pairs in random order.
        """
        if self.kind == "overlap":
            return right / rows
        if self.of_pairs:
            return np.full(len(right), 0.5 if self.kind == "auc" else self.far)
        if self.kind == "mAP":
            harmonic = float((1 / np.arange(1, rows + 1)).sum())
            return (harmonic + (right - 1) * (rows - harmonic) / max(1, rows - 1)) / rows
        counts, of_query = np.unique(right, return_inverse=True)
        left = rows - np.arange(min(self.k, rows))  # rows left to draw from at each hit
        return 1 - np.array([np.prod((1 - count / left).clip(min=0)) for count in counts])[of_query]


OVERLAP = Score("overlap@10", "overlap", k=10)
"""Share of the ten items that a full re-embedding shows among the first ten hits: the score without labels."""


def parse_score(name: str) -> Score:
    """``top1``, ``recall@5`` or ``top5`` (one of the first five is right), ``mAP``, ``auc``, ``tar@far=0.01``."""
    if found := re.fullmatch(r"(?:top|recall@)([1-9]\d{0,5})", name):
        return Score(name, "hits", k=int(found[1]))
    if name in ("mAP", "auc"):
        return Score(name, name)
    if found := re.fullmatch(r"tar@far=(\d*\.?\d+(?:e-?\d+)?)", name):
        far = float(found[1])
        if 0 < far < 1:
            return Score(name, "tar", far=far)
        raise HoldfastError(f"score {name!r}: the false-accept rate must lie between 0 and 1")
    raise HoldfastError(f"unknown score {name!r}; known: {', '.join(KNOWN_SCORES)}")


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
    "template": templates,  # that of the authors' code; the paper's text names no average
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
