"""Protocols and scores: what queries are compared with, the score of one cell, and the score of a random ranking.

The functions of a cell take unit features and labels as arrays and return a number in [0, 1]. Nearest neighbours come
from ``holdfast.vectors.nearest``, so ties go to the lower index.
"""

import functools
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from holdfast.core.errors import HoldfastError, unknown_name
from holdfast.vectors import nearest
from holdfast.vectors.lengths import unit

KNOWN_SCORES = ("top1", "recall@K", "mAP")
_SCORES_AT_ONCE = 1 << 22


@dataclass(frozen=True)
class Score:
    """One score in [0, 1], a mean over queries.

    kind: "hits", "mAP" or "overlap".
    k: number of hits that count.
    """

    name: str
    kind: str
    k: int = 1

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
        + 1/rows, for R > 0. overlap: R / rows.
        """
        if self.kind == "overlap":
            return right / rows
        if self.kind == "mAP":
            harmonic = float((1 / np.arange(1, rows + 1)).sum())
            return (harmonic + (right - 1) * (rows - harmonic) / max(1, rows - 1)) / rows
        counts, of_query = np.unique(right, return_inverse=True)
        left = rows - np.arange(min(self.k, rows))  # rows left to draw from at each hit
        return 1 - np.array([np.prod((1 - count / left).clip(min=0)) for count in counts])[of_query]


OVERLAP = Score("overlap@10", "overlap", k=10)
"""Share of the ten items that a full re-embedding shows among the first ten hits: the score without labels."""


def parse_score(name: str) -> Score:
    """``top1``, ``recall@5`` or ``top5`` (one of the first five is right), or ``mAP``."""
    if found := re.fullmatch(r"(?:top|recall@)([1-9]\d{0,5})", name):
        return Score(name, "hits", k=int(found[1]))
    if name == "mAP":
        return Score(name, name)
    raise HoldfastError(f"unknown score {name!r}; known: {', '.join(KNOWN_SCORES)}")


def templates(features: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """One unit vector per class, the mean of its unit features, and the class labels in ascending order."""
    classes, member = np.unique(labels, return_inverse=True)
    order = np.argsort(member, kind="stable")
    first = np.searchsorted(member[order], np.arange(len(classes)))
    return unit(np.add.reduceat(features[order], first, axis=0)), classes


def whole_gallery(features: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return features, labels


PROTOCOLS: dict[str, Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]] = {
    "template": templates,  # that of the authors' code; the paper's text names no average
    "instance": whole_gallery,
}


def gallery_of(protocol: str, features: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The vectors that queries are compared with under ``protocol``, and their classes."""
    if protocol not in PROTOCOLS:
        raise unknown_name("protocol", protocol, PROTOCOLS)
    return PROTOCOLS[protocol](features, labels)


def top_k(
    query: np.ndarray,
    query_labels: np.ndarray,
    gallery: np.ndarray,
    gallery_labels: np.ndarray,
    *,
    k: int = 1,
    device: Any = "cpu",
) -> np.ndarray:
    """1 for each query whose class is among those of the k nearest, else 0 (Q, float64)."""
    hits = gallery_labels[nearest(query, gallery, k, device=device).indices]
    return (hits == query_labels[:, None]).any(1).astype(np.float64)


def class_precisions(
    query: np.ndarray,
    query_labels: np.ndarray,
    gallery: np.ndarray,
    gallery_labels: np.ndarray,
    *,
    device: Any = "cpu",
) -> np.ndarray:
    """The average precision of each query (Q, float64); NaN if the gallery has no item of its class."""

    def is_right(start: int, ranked: np.ndarray) -> np.ndarray:
        return np.asarray(gallery_labels[ranked] == query_labels[start : start + len(ranked), None])

    return average_precisions(query, gallery, is_right, device=device)


def average_precisions(
    query: np.ndarray,
    gallery: np.ndarray,
    is_right: Callable[[int, np.ndarray], np.ndarray],
    progress: Callable[[int], None] = lambda queries: None,
    *,
    device: Any = "cpu",
) -> np.ndarray:
    """Average precision of every query (Q, float64) over the whole gallery; NaN if nothing in it is right.

    is_right: called with the number of the first query of a block and the ranked gallery rows of the block (b x N);
        returns whether each is right (b x N, boolean).
    progress: called with the number of queries of each finished block.
    """
    ranks = np.arange(1, len(gallery) + 1)
    found = np.empty(len(query))
    block = max(1, _SCORES_AT_ONCE // len(gallery))
    for start in range(0, len(query), block):
        hits = is_right(start, nearest(query[start : start + block], gallery, len(gallery), device=device).indices)
        sums, counts = (hits.cumsum(1) / ranks * hits).sum(1), hits.sum(1)
        found[start : start + len(hits)] = np.divide(sums, counts, out=np.full(len(hits), np.nan), where=counts > 0)
        progress(len(hits))
    return found


def query_scores(name: str) -> Callable[..., np.ndarray]:
    """The function (query, query labels, gallery, gallery labels, device=) of the score of each query in one cell."""
    score = parse_score(name)
    return functools.partial(top_k, k=score.k) if score.kind == "hits" else class_precisions
