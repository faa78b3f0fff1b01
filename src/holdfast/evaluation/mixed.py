"""Search in a mixed gallery: items arrive over time, and each is embedded once by the model then in use."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from holdfast.encoders import ModelFeatures, change_basis
from holdfast.errors import HoldfastError
from holdfast.evaluation.matrix import FeatureMap, mapped
from holdfast.evaluation.protocols import on_device
from holdfast.geometry import nearest, unit


def mixed_gallery(
    models: Sequence[ModelFeatures],
    query_labels: np.ndarray,
    gallery_labels: np.ndarray,
    *,
    maps: Sequence[FeatureMap | None] = (),
    seed: int = 0,
    device: torch.device | str = "cpu",
) -> dict[str, Any]:
    """Search results over a gallery of mixed versions, as T models follow each other.

    models: features of each model, oldest first.
    query_labels, gallery_labels: the classes of queries and gallery images.
    maps: for each model a function from the previous model's features to its own, or None.
    seed: of the order in which items arrive.
    device: where the search runs.

    A T-th of each class arrives while each model is in use (``arrivals``) and is never embedded again. The result has
    one value in [0, 1] for each model under these keys:
    accuracy: share of its queries with a first hit of their class, among all items that have arrived. NaN if a version
        cannot be compared with the queries.
    reindexed: the same with all items embedded by this model.
    queries: number of queries with an item of their class in the gallery; the others do not count.
    versions: for the last model's queries on the whole gallery, one entry for each version:
        share_of_gallery: its share of the items.
        share_of_hits: its share of first hits; far below the former, its items are rarely shown.
        score_offset: mean score of its items as stored minus that of the same items embedded by the last model, over
            pairs of one class.
        score_offset_others: the same over pairs of different classes.
    """
    if maps and len(maps) != len(models):
        raise HoldfastError(f"{len(maps)} maps for {len(models)} models; give one (or None) for each model")
    count = len(models)
    arrival = on_device(arrivals(gallery_labels, count, seed), device)
    query_y, gallery_y = on_device(query_labels, device), on_device(gallery_labels, device)
    accuracy, reindexed, counted = [], [], []
    versions: list[_Version] = []
    for t, model in enumerate(models):
        step = maps[t] if maps else None
        if step is not None:
            versions = [version.mapped(step) for version in versions]
        basis = None if model.basis is None else on_device(np.asarray(model.basis), device)
        query = unit(on_device(np.asarray(model.query), device))
        fresh = unit(on_device(np.asarray(model.gallery), device))
        rows = (arrival == t).nonzero().squeeze(1)
        versions.append(_Version(rows, fresh[rows], basis, model.full_dim))
        present = (arrival <= t).nonzero().squeeze(1)
        findable = torch.isin(query_y, gallery_y[present])
        counted.append(int(findable.sum()))
        again = nearest(query, fresh[present], 1).indices[:, 0]
        reindexed.append(_share(gallery_y[present][again] == query_y, findable))
        first, _ = _first_places(query, basis, model.full_dim, versions)
        accuracy.append(float("nan") if first is None else _share(gallery_y[first] == query_y, findable))
    first, winner = _first_places(query, basis, model.full_dim, versions)
    entries = []
    for k, version in enumerate(versions):
        taken = float("nan") if winner is None else (winner == k).double().mean().item()
        offsets = _offsets(query, query_y, gallery_y, basis, model.full_dim, version, fresh)
        entries.append(
            {
                "model": k + 1,
                "items": len(version.rows),
                "share_of_gallery": len(version.rows) / len(arrival),
                "share_of_hits": taken,
                "score_offset": offsets[0],
                "score_offset_others": offsets[1],
            }
        )
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


class _Version:
    """The items embedded by one model. rows: of the gallery; stored: their vectors, None if not comparable any more."""

    def __init__(self, rows: Tensor, stored: Tensor | None, basis: Tensor | None, full_dim: int) -> None:
        self.rows, self.stored, self.basis, self.full_dim = rows, stored, basis, full_dim

    def mapped(self, step: FeatureMap) -> "_Version":
        """The stored vectors in the next model's space."""
        if self.basis is not None:
            raise HoldfastError("maps between models read full features, but these are compact")
        stored = None if self.stored is None else mapped(self.stored, step)
        return _Version(self.rows, stored, None, 0 if stored is None else stored.shape[1])

    def comparable(self, query: Tensor, basis: Tensor | None, full_dim: int) -> tuple[Tensor, Tensor] | None:
        """Queries and stored vectors with cosines as inner products; None if the two cannot be compared."""
        if self.stored is None or self.full_dim != full_dim:
            return None
        return change_basis(query, basis, self.basis), self.stored


def _first_places(
    query: Tensor, basis: Tensor | None, full_dim: int, versions: Sequence[_Version]
) -> tuple[Tensor | None, Tensor | None]:
    """Per query the gallery row with the highest score of all versions, and its version; ties go to the older."""
    scores, rows, holders = [], [], []
    for k, version in enumerate(versions):
        if len(version.rows) == 0:
            continue
        pair = version.comparable(query, basis, full_dim)
        if pair is None:
            return None, None
        found = nearest(*pair, 1)
        scores.append(found.scores[:, 0])
        rows.append(version.rows[found.indices[:, 0]])
        holders.append(torch.full_like(rows[-1], k))
    best = torch.stack(scores).argmax(0, keepdim=True)  # the first of equals
    return tuple(torch.stack(part).gather(0, best)[0] for part in (rows, holders))  # type: ignore[return-value]


def _offsets(
    query: Tensor,
    query_y: Tensor,
    gallery_y: Tensor,
    basis: Tensor | None,
    full_dim: int,
    version: _Version,
    fresh: Tensor,
) -> tuple[float, float]:
    """Mean score as stored minus mean score embedded by the last model, over pairs of one class and over the others.

    Means over all pairs are computed from sums, without a matrix of scores.
    """
    pair = version.comparable(query, basis, full_dim)
    if pair is None or len(version.rows) == 0:
        return float("nan"), float("nan")
    labels, own = gallery_y[version.rows], int(max(query_y.max(), gallery_y.max())) + 1
    queries, items = torch.bincount(query_y, minlength=own).double(), torch.bincount(labels, minlength=own).double()
    pairs = float((queries * items).sum())
    others = float(len(query_y) * len(labels)) - pairs
    same, total = [], []
    for q, g in (pair, (query, fresh[version.rows])):
        by_query, by_item = (
            torch.zeros(own, g.shape[1], dtype=torch.float64, device=g.device).index_add_(0, y, z.double())
            for y, z in ((query_y, q), (labels, g))
        )
        same.append(float((by_query * by_item).sum()))
        total.append(float(by_query.sum(0) @ by_item.sum(0)))
    different = (total[0] - same[0]) - (total[1] - same[1])
    return (
        (same[0] - same[1]) / pairs if pairs else float("nan"),
        different / others if others else float("nan"),
    )


def _share(hits: Tensor, findable: Tensor) -> float:
    return hits[findable].double().mean().item() if bool(findable.any()) else float("nan")
