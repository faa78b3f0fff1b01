"""The scores a check can be made by, and what blind search would get."""

import re
from dataclasses import dataclass

import numpy as np

from holdfast.errors import HoldfastError

KNOWN_SCORES = ("top1", "recall@K", "mAP", "auc", "tar@far=F")


@dataclass(frozen=True)
class Score:
    """One score in [0, 1]. ``k``: hits looked at. ``far``: the false-accept rate of ``tar@far=F``."""

    name: str
    kind: str  # "hits", "mAP", "auc" or "tar"
    k: int = 1
    far: float = 0.0

    @property
    def of_pairs(self) -> bool:
        """A score of all pairs together; the others are a mean over queries."""
        return self.kind in ("auc", "tar")

    def chance(self, share_right: np.ndarray) -> float:
        """What a search that knows nothing gets, given the share of the gallery that is right for each query."""
        if self.kind == "hits":
            return float(np.mean(1 - (1 - share_right) ** self.k))
        return {"mAP": float(np.mean(share_right)), "auc": 0.5, "tar": self.far}[self.kind]


def parse_score(name: str) -> Score:
    """``top1``, ``recall@5`` (or ``top5``: one of the first five is right), ``mAP``, ``auc``, ``tar@far=0.01``."""
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
