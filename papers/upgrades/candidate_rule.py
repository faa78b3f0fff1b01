"""How many of a bridge's candidates the new model has to score, where the old model is gone.

The rule: a share of the items, at least 50. The share is the smallest of ``SHARES`` with which at least 95 % of the
bridges on CACM, Cranfield and SciFact's log of queries (sizes of an index x replacements x draws of the pairs) reach
95 % of re-embedding. SciFact's test queries and CUB's photographs had no part in it, and test it.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

SHARES = (0.01, 0.02, 0.03, 0.04, 0.05, 0.06, 0.08, 0.1, 0.12, 0.15, 0.2)
FEWEST, SHOWN = 50, (50, 100, 200, 400)
FITTED_SETS = ("cacm", "cranfield", "scifact-log")
REACHED = 0.95
"""Of re-embedding's score, and of the bridges."""


def candidates_for(share: float, items: int) -> int:
    return max(FEWEST, round(share * items))


def candidate_counts(items: int) -> list[int]:
    """The numbers of candidates that are measured: those of every share, and those that the page shows."""
    by_share = {candidates_for(share, items) for share in SHARES}
    return sorted(count for count in {10, 20, 30, 40, 75, 150, 300, 600, *SHOWN, *by_share} if count <= items)


def reached(size: dict[str, Any], share: float) -> np.ndarray:
    """Whether each draw reaches 95 % of re-embedding with the candidates of a share."""
    place = size["counts"].index(candidates_for(share, size["items"]))
    scores: np.ndarray = np.array(size["scores"])[:, place]
    return scores >= REACHED * size["re-embed"]


def share_reached(sizes: Sequence[dict[str, Any]], share: float) -> float:
    return float(np.mean(np.concatenate([reached(size, share) for size in sizes])))


def fitted_share(sizes: Sequence[dict[str, Any]]) -> float:
    """The rule's share, from the sets that it is fixed on."""
    fixing = [size for size in sizes if size["name"][0] in FITTED_SETS]
    return next(share for share in SHARES if share_reached(fixing, share) >= REACHED)


def first_enough(size: dict[str, Any]) -> int | None:
    """The smallest measured number of candidates whose mean over the draws reaches 95 %."""
    means = np.array(size["scores"]).mean(axis=0)
    enough = [count for count, mean in zip(size["counts"], means, strict=True) if mean >= REACHED * size["re-embed"]]
    return enough[0] if enough else None
