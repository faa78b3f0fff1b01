"""The scores of a check, and the score of a random ranking."""

import re
from dataclasses import dataclass

import numpy as np

from holdfast.errors import HoldfastError

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
