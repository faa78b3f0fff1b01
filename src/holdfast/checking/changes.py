"""Who changed: queries that were right and become wrong, and the classes that lose most."""

from typing import Any

import numpy as np

from holdfast.checking.judge import Judgement
from holdfast.checking.result import Changes
from holdfast.metrics import exact_mcnemar


def changed_queries(
    old: Judgement,
    new: Judgement,
    query_names: np.ndarray,
    gallery_names: np.ndarray,
    labels: tuple[np.ndarray, np.ndarray] | None,
) -> Changes:
    """By the first hit, whatever the score. ``gallery_names``: what a hit's number stands for.

    labels: of every query, and of everything that can be hit; None where there are no classes.
    """
    known = ~np.isnan(old.values)
    before, after = old.right[:, 0] & known, new.right[:, 0] & known
    lost, gained = np.flatnonzero(before & ~after), int((~before & after).sum())

    def named(names: np.ndarray, hit: int) -> Any:
        return None if hit < 0 else names[hit].item()

    listed = [
        {
            "query": query_names[i].item(),
            "old_hit": named(gallery_names, old.hits[i, 0]),
            "new_hit": named(gallery_names, new.hits[i, 0]),
            **({} if labels is None else {"class": labels[0][i].item(), "taken_for": named(labels[1], new.hits[i, 0])}),
        }
        for i in lost
    ]
    return Changes(gained, len(lost), exact_mcnemar(gained, len(lost)), listed)


def class_changes(old: np.ndarray, new: np.ndarray, codes: np.ndarray, classes: np.ndarray) -> list[dict[str, Any]]:
    """Each class's mean score under old and new queries, the largest loss (in queries) first.

    old, new: the score of every query. codes: the class number of every query.
    """
    present, member = np.unique(codes, return_inverse=True)
    sizes = np.bincount(member)
    before, after = (np.bincount(member, weights=values) for values in (old, new))
    order = np.argsort(after - before, kind="stable")
    return [
        {
            "class": classes[present[i]].item(),
            "queries": int(sizes[i]),
            "old": float(before[i] / sizes[i]),
            "new": float(after[i] / sizes[i]),
            "change_in_queries": float(after[i] - before[i]),
        }
        for i in order
    ]
