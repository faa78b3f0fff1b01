"""One ranking over items of several versions, and how often the items of each version are shown in it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from holdfast.core.real_arrays import real_array
from holdfast.vectors import nearest

EXPOSURE_AT = (1, 10)
"""The numbers of first places at which exposure is reported."""


def same_scores(cosines: NDArray[Any]) -> NDArray[Any]:
    """The scale of a version with scores that are merged unchanged."""
    return cosines


@dataclass(frozen=True)
class StoredItems:
    """The items of one version in a mixed gallery.

    rows: the number of each item in the whole gallery, n.
    vectors: their stored unit vectors, n x d; an array, or a tensor on the device of the search.
    queries: all queries in the space of these vectors, Q x d; bridged, if the version has a bridge. As ``vectors``.
    scale: an increasing function from cosines to scores that can be compared between versions.
    """

    rows: NDArray[np.int64]
    vectors: Any
    queries: Any
    scale: Callable[[NDArray[Any]], NDArray[Any]] = same_scores


class MixedHits(NamedTuple):
    """The best items per query, best first: numbers of items, position of their version, and merged scores; Q x k."""

    rows: NDArray[np.int64]
    versions: NDArray[np.int64]
    scores: NDArray[Any]


def search_mixed(
    stored: Sequence[StoredItems], k: int, *, own: NDArray[np.int64] | None = None, device: Any = "cpu"
) -> MixedHits:
    """The ``k`` best items of all versions for each query, by merged score; equal scores go to the older version.

    stored: the items of each version, oldest first. Versions without items are allowed.
    k: hits per query; at most as many as there are items.
    own: for each query the number of an item that it must not find, Q: the item itself. None if queries are no items.
    device: where cosines are computed; see ``nearest``.
    """
    hits_of_versions: list[MixedHits] = []
    for version, items in enumerate(stored):
        if len(items.rows) == 0:
            continue
        hits = nearest(items.queries, items.vectors, k + (own is not None), device=device)
        rows, scores = items.rows[hits.indices], items.scale(hits.scores)
        if own is not None:
            scores = np.where(rows == own[:, None], np.float32(-np.inf), scores)
        hits_of_versions.append(MixedHits(rows, np.full_like(rows, version), scores))
    merged = MixedHits(*(np.concatenate(parts, axis=1) for parts in zip(*hits_of_versions, strict=True)))
    order = np.argsort(-merged.scores, axis=1, kind="stable")[:, :k]
    return MixedHits(*(np.take_along_axis(part, order, 1) for part in merged))


@dataclass(frozen=True)
class Exposure:
    """How often the items of one version are shown among the first places.

    items: share of all items that the version holds, in [0, 1].
    shown: share of the first k places that its items take, by k.
    fair: the share that the same items take when every item is embedded by the newest model, by k.
    ratio: ``shown`` / ``fair`` by k. 1 means no change; below 1 the items are shown less often. NaN if fair is zero.
    """

    items: float
    shown: dict[int, float]
    fair: dict[int, float]

    @property
    def ratio(self) -> dict[int, float]:
        return {k: exposure_ratio(self.shown[k], self.fair[k]) for k in self.shown}


def exposure_ratio(shown: float, fair: float) -> float:
    """Share of places that a version's items take, relative to a full re-embedding; NaN if ``fair`` is zero."""
    return shown / fair if fair > 0 else float("nan")


def exposure(
    shown: ArrayLike, fair: ArrayLike, version_of: ArrayLike, versions: int, at: Sequence[int] = EXPOSURE_AT
) -> list[Exposure]:
    """The exposure of each version.

    shown: numbers of the items found in the mixed gallery, Q x k, best first.
    fair: numbers of the items found by the same queries when everything is re-embedded, Q x k.
    version_of: the version of each item, 0 .. versions - 1.
    versions: how many versions there are.
    at: numbers of first places; those above k are left out.
    """
    of = real_array(version_of, "version_of")
    holders = [of[real_array(hits, name)] for hits, name in ((shown, "shown"), (fair, "fair"))]
    most = min(hits.shape[1] for hits in holders)
    counted = [k for k in at if k <= most]

    def shares(hits: NDArray[Any], version: int) -> dict[int, float]:
        return {k: float((hits[:, :k] == version).mean()) for k in counted}

    return [
        Exposure(float((of == version).mean()), *(shares(hits, version) for hits in holders))
        for version in range(versions)
    ]
