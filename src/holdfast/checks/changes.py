"""What changes for single queries and classes when the new model's queries are used."""

from typing import Any

import numpy as np

from holdfast.checks.query_outcomes import QueryOutcomes
from holdfast.checks.result import Changes
from holdfast.metrics.distributions import sign_test


def changed_queries(
    old: QueryOutcomes,
    new: QueryOutcomes,
    query_names: np.ndarray,
    gallery_names: np.ndarray,
    labels: tuple[np.ndarray, np.ndarray] | None,
) -> Changes:
    """Queries that score higher or lower with the new model.

    query_names: the name of each query.
    gallery_names: the name of each gallery row, or class.
    labels: of every query and of every gallery row; None without classes.
    """
    change = np.nan_to_num(new.values - old.values)
    gained, lost = int((change > 0).sum()), np.flatnonzero(change < 0)

    def named(names: np.ndarray, hit: int) -> Any:
        return None if hit < 0 else names[hit].item()

    listed = [
        {
            "query": query_names[i].item(),
            "old_score": float(old.values[i]),
            "new_score": float(new.values[i]),
            "old_hit": named(gallery_names, old.hits[i]),
            "new_hit": named(gallery_names, new.hits[i]),
            **({} if labels is None else {"class": labels[0][i].item(), "taken_for": named(labels[1], new.hits[i])}),
        }
        for i in lost[np.argsort(change[lost], kind="stable")]
    ]
    return Changes(gained, len(lost), sign_test(gained, len(lost)), listed)


def class_changes(old: np.ndarray, new: np.ndarray, codes: np.ndarray, classes: np.ndarray) -> list[dict[str, Any]]:
    """The mean score of each class under old and new queries, the largest loss (in queries) first.

    old, new: the score of every query; NaN does not count.
    codes: the class number of every query.
    classes: the label of each class number.
    """
    scored = ~np.isnan(old)
    present, member = np.unique(codes[scored], return_inverse=True)
    sizes = np.bincount(member)
    before, after = (np.bincount(member, weights=values[scored]) for values in (old, new))
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
