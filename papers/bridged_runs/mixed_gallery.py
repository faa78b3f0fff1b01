"""Search in a mixed gallery: items arrive over time, and each is embedded once by the model then in use."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from holdfast.core.errors import HoldfastError
from holdfast.metrics.exposure import EXPOSURE_AT, StoredItems, exposure, same_scores, search_mixed
from holdfast.train.encoders import ModelFeatures, change_basis
from holdfast.train.evaluation.matrix import (
    FeatureMap,
    QueryMaps,
    carried_queries,
    mapped,
    on_device,
    refuse_wrong_maps,
)
from holdfast.train.geometry import unit
from holdfast.vectors import nearest

Scales = Mapping[tuple[int, int], Callable[[np.ndarray], np.ndarray]]


def mixed_gallery(
    models: Sequence[ModelFeatures],
    query_labels: np.ndarray,
    gallery_labels: np.ndarray,
    *,
    arrival: np.ndarray | None = None,
    maps: Sequence[FeatureMap | None] = (),
    query_maps: QueryMaps | None = None,
    scales: Scales | None = None,
    device: torch.device | str = "cpu",
) -> dict[str, Any]:
    """Search results over a gallery of mixed versions, as T models follow each other.

    models: features of each model, oldest first.
    query_labels, gallery_labels: the classes of queries and gallery images.
    arrival: for each gallery image the model, 0 .. T - 1, in use when it arrives; default ``arrivals(..., seed=0)``.
    maps: for each model a function from the previous model's features to its own, or None.
    query_maps: bridges; see ``compatibility_matrix``.
    scales: by (t, k), numbers from 0: an increasing function from cosines of model t's queries with model k's items to
        scores that are merged with those of the other versions; default: cosines are merged as they are.
    device: where the search runs.

    Each item is embedded by the model in use when it arrives, and never again. The result has one value in [0, 1] for
    each model under these keys:
    accuracy: share of its queries with a first hit of their class, among all items that have arrived. NaN if a version
        cannot be compared with the queries.
    reindexed: the same with all items embedded by this model.
    queries: number of queries with an item of their class in the gallery; the others do not count.
    versions: for the last model's queries on the whole gallery, one entry for each version:
        share_of_gallery: its share of the items.
        share_of_hits: its share of first hits; far below the former, its items are rarely shown.
        exposure: by number of first places, "1" and "10": its share of them divided by the share that the same items
            have when everything is re-embedded. 1 is fair. NaN without items, or if a version cannot be compared.
        score_offset: mean cosine of its items as stored minus that of the same items embedded by the last model, over
            pairs of one class, before any scale.
        score_offset_others: the same over pairs of different classes.
    """
    refuse_wrong_maps(maps, query_maps, len(models))
    if len(gallery_labels) == 0:
        raise HoldfastError("the gallery is empty; there is nothing to search")
    count = len(models)
    given = arrivals(gallery_labels, count, 0) if arrival is None else np.asarray(arrival)
    if given.shape != (len(gallery_labels),) or not ((given >= 0) & (given < count)).all():
        raise HoldfastError(f"arrival must hold one number in 0 .. {count - 1} for each gallery image")
    arrived = given.astype(np.int64)
    query_y, gallery_y = np.asarray(query_labels), np.asarray(gallery_labels)
    accuracy, reindexed, counted = [], [], []
    versions: list[_Version] = []
    for t, model in enumerate(models):
        step = maps[t] if maps else None
        if step is not None:
            versions = [version.mapped(step) for version in versions]
        basis = None if model.basis is None else on_device(np.asarray(model.basis), device)
        query = unit(on_device(np.asarray(model.query), device))
        fresh = unit(on_device(np.asarray(model.gallery), device))
        rows = np.flatnonzero(arrived == t)
        versions.append(_Version(rows, fresh[rows], basis, model.full_dim))
        present = np.flatnonzero(arrived <= t)
        findable = np.isin(query_y, gallery_y[present])
        counted.append(int(findable.sum()))
        stored = [
            version.searched_by(
                query, basis, model.full_dim, (query_maps or {}).get((t, k)), (scales or {}).get((t, k))
            )
            for k, version in enumerate(versions)
        ]
        if len(present) == 0:
            accuracy.append(float("nan"))
            reindexed.append(float("nan"))
            continue
        hits = max(EXPOSURE_AT) if t == count - 1 else 1
        fair = present[nearest(query, fresh[present], hits, device=device).indices]
        reindexed.append(_share(gallery_y[fair[:, 0]] == query_y, findable))
        lost = any(items is None and len(version.rows) for items, version in zip(stored, versions, strict=True))
        comparable = [items for items in stored if items is not None]
        shown = None if lost else search_mixed(comparable, hits, device=device).rows
        accuracy.append(float("nan") if shown is None else _share(gallery_y[shown[:, 0]] == query_y, findable))
    at = [number for number in EXPOSURE_AT if number <= len(gallery_y)]
    exposures = [None] * count if shown is None else exposure(shown, fair, arrived, count, at)
    entries = [
        {
            "model": k + 1,
            "items": len(version.rows),
            "share_of_gallery": len(version.rows) / len(arrived),
            "share_of_hits": float("nan") if seen is None else seen.shown[1],
            "exposure": {str(number): float("nan") if seen is None else seen.ratio[number] for number in at},
            **_offsets(query, query_y, gallery_y, items, fresh),
        }
        for k, (version, items, seen) in enumerate(zip(versions, stored, exposures, strict=True))
    ]
    return {"accuracy": accuracy, "reindexed": reindexed, "queries": counted, "versions": entries}


def arrivals(labels: np.ndarray, count: int, seed: int) -> np.ndarray:
    """For each item the model, 0 .. count - 1, in use when it arrives: a seeded, even share of each class."""
    labels = np.asarray(labels)
    arrival = np.empty(len(labels), dtype=np.int64)
    for label in np.unique(labels):
        random = np.random.default_rng([seed, int(label)])
        rows = random.permutation(np.flatnonzero(labels == label))
        arrival[rows] = (np.arange(len(rows)) + random.integers(count)) % count
    return arrival


def arrivals_by_class(labels: np.ndarray, count: int) -> np.ndarray:
    """For each item the model, 0 .. count - 1, in use when it arrives: every class arrives at once, in label order.

    Versions then hold different classes, about as many each. With fewer classes than models, some versions are empty;
    the first and the last are not, if there are at least two classes.
    """
    classes, numbers = np.unique(labels, return_inverse=True)
    if len(classes) < count:
        of_class = np.linspace(0, count - 1, len(classes)).round().astype(np.int64)
    else:
        of_class = np.repeat(np.arange(count), [len(part) for part in np.array_split(classes, count)])
    arrival: np.ndarray = of_class[numbers]
    return arrival


class _Version:
    """The items embedded by one model. rows: of the gallery; stored: their vectors, None if not comparable any more."""

    def __init__(self, rows: np.ndarray, stored: Tensor | None, basis: Tensor | None, full_dim: int) -> None:
        self.rows, self.stored, self.basis, self.full_dim = rows, stored, basis, full_dim

    def mapped(self, step: FeatureMap) -> "_Version":
        """The stored vectors in the next model's space."""
        if self.basis is not None:
            raise HoldfastError("maps between models read full features, but these are compact")
        stored = None if self.stored is None else mapped(self.stored, step)
        return _Version(self.rows, stored, None, 0 if stored is None else stored.shape[1])

    def searched_by(
        self,
        query: Tensor,
        basis: Tensor | None,
        full_dim: int,
        query_map: FeatureMap | None,
        scale: Callable[[np.ndarray], np.ndarray] | None,
    ) -> StoredItems | None:
        """These items with the queries in their space; None if the two cannot be compared."""
        if self.stored is None or (query_map is None and self.full_dim != full_dim):
            return None
        if query_map is not None:
            carried = carried_queries(query, query_map, self.stored.shape[1])
        else:
            carried = change_basis(query, basis, self.basis)
        return StoredItems(self.rows, self.stored, carried, scale or same_scores)


def _offsets(
    query: Tensor, query_labels: np.ndarray, gallery_labels: np.ndarray, items: StoredItems | None, fresh: Tensor
) -> dict[str, float]:
    """Mean cosine as stored minus mean cosine embedded by the last model, over pairs of one class and over the others.

    Means over all pairs are computed from sums, without a matrix of cosines.
    """
    if items is None or len(items.rows) == 0:
        return {"score_offset": float("nan"), "score_offset_others": float("nan")}
    query_y, labels = (on_device(y, fresh.device) for y in (query_labels, gallery_labels[items.rows]))
    own = int(max(query_labels.max(), gallery_labels.max())) + 1
    counts = [torch.bincount(y, minlength=own).double() for y in (query_y, labels)]
    same_pairs = (counts[0] * counts[1]).sum()
    other_pairs = len(query_y) * len(labels) - same_pairs
    means = []
    for q, g in ((items.queries, items.vectors), (query, fresh[items.rows])):
        by_query, by_item = (
            torch.zeros(own, g.shape[1], dtype=torch.float64, device=g.device).index_add_(0, y, z.double())
            for y, z in ((query_y, q), (labels, g))
        )
        same, total = (by_query * by_item).sum(), by_query.sum(0) @ by_item.sum(0)
        means.append((same / same_pairs, (total - same) / other_pairs))  # 0 / 0 is NaN
    (same_stored, other_stored), (same_fresh, other_fresh) = means
    return {
        "score_offset": float(same_stored - same_fresh),
        "score_offset_others": float(other_stored - other_fresh),
    }


def _share(hits: np.ndarray, findable: np.ndarray) -> float:
    return float(hits[findable].mean()) if findable.any() else float("nan")
