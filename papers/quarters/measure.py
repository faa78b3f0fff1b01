"""Numbers of one search: recall, mAP, exposure of each version, and what a score threshold lets through."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import Tensor

from holdfast.metrics import Places, hit_at, mean_precision, threshold_at_far
from holdfast.metrics.exposure import StoredItems, exposure

FIRST = 10
FALSE_ACCEPTS = 0.01
"""Share of items of other classes that pass the threshold which is chosen on the first version's gallery."""


def ranking(stored: Sequence[StoredItems]) -> np.ndarray:
    """Numbers of all items for each query, best first: Q x N. The order of equal scores is arbitrary."""
    return np.argsort(-merged_scores(stored), axis=1)


def merged_scores(stored: Sequence[StoredItems]) -> np.ndarray:
    """The score of each item for each query: Q x N."""
    merged = np.empty((len(stored[0].queries), sum(len(one.rows) for one in stored)), dtype=np.float32)
    for one in stored:
        merged[:, one.rows] = one.scale(np.asarray(one.queries) @ np.asarray(one.vectors).T)
    return merged


def blended(old: Sequence[StoredItems], bridged: Sequence[StoredItems], share: float) -> np.ndarray:
    """The ranking by (1 - share) x the old query's score + share x the bridged query's: Q x N.

    old, bridged: the same items, searched by the old models' queries and by the new model's through bridges.
    """
    merged = (1 - share) * merged_scores(old) + share * merged_scores(bridged)
    return np.argsort(-merged, axis=1)


def rescored(ranked: np.ndarray, count: int, queries: Tensor, gallery: Tensor) -> np.ndarray:
    """``ranked`` with the first ``count`` items of each query in the order of another model's scores: Q x N.

    queries, gallery: unit vectors of all queries and items under that model.
    """
    first = ranked[:, :count]
    scores = np.einsum("qd,qnd->qn", queries.numpy(), gallery.numpy()[first])
    order = np.argsort(-scores, axis=1, kind="stable")
    return np.concatenate([np.take_along_axis(first, order, 1), ranked[:, count:]], axis=1)


def one_version(vectors: Tensor, queries: Tensor) -> list[StoredItems]:
    """A gallery with vectors of one version only."""
    return [StoredItems(np.arange(len(vectors)), vectors, queries)]


def scores(ranked: np.ndarray, query_codes: np.ndarray, gallery_codes: np.ndarray) -> dict[str, float]:
    """recall@1, recall@10 and mAP of a ranking of all items.

    recall@k: share of queries with an item of their class among the first k.
    """
    query, place = np.nonzero(gallery_codes[ranked] == query_codes[:, None])
    right = Places(len(ranked), query, place, np.ones_like(place))
    return {
        "recall@1": float(hit_at(right, 1).mean()),
        "recall@10": float(hit_at(right, FIRST).mean()),
        "mAP": float(mean_precision(right).mean()),
    }


def exposures(shown: np.ndarray, fair: np.ndarray, version_of: np.ndarray, versions: int) -> list[float]:
    """The exposure ratio at 10 of each version, oldest first.

    shown, fair: rankings in the mixed gallery and with everything re-embedded.
    """
    found = exposure(shown[:, :FIRST], fair[:, :FIRST], version_of, versions, at=(FIRST,))
    return [one.ratio[FIRST] for one in found]


class Threshold:
    """A score threshold that lets 1 % of the items of other classes through, chosen on the first version's gallery."""

    def __init__(self, queries: Tensor, gallery: Tensor, query_codes: np.ndarray, gallery_codes: np.ndarray) -> None:
        self.same = query_codes[:, None] == gallery_codes[None, :]
        self.value = threshold_at_far((queries @ gallery.T).numpy()[~self.same], FALSE_ACCEPTS)

    def passed(self, queries: Tensor, gallery: Tensor) -> dict[str, float]:
        """Shares of the pairs of different and of the same class that pass."""
        accepted = (queries @ gallery.T).numpy() >= self.value
        return {"other": float(accepted[~self.same].mean()), "same": float(accepted[self.same].mean())}


def grown_gallery(count: int, versions: int, seed: int) -> np.ndarray:
    """The version that embedded each item of a gallery that grew by an equal part with each version."""
    return np.random.default_rng([seed, 5]).permutation(np.arange(count) * versions // count)


def rounded(value: Any) -> Any:
    """Floats with six digits after the point, in nested lists and dicts."""
    if isinstance(value, dict):
        return {key: rounded(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [rounded(one) for one in value]
    return round(value, 6) if isinstance(value, float) else value
