"""The gallery as a service has it: items arrive over time, each is embedded once, by the model of its day."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from holdfast.encoders import ModelFeatures, carried_query
from holdfast.errors import HoldfastError
from holdfast.evaluation.protocols import on_device
from holdfast.geometry import nearest, unit
from holdfast.space_map import SpaceMap, carry


def mixed_gallery(
    models: Sequence[ModelFeatures],
    query_labels: np.ndarray,
    gallery_labels: np.ndarray,
    *,
    maps: Sequence[SpaceMap | None] = (),
    seed: int = 0,
    device: torch.device | str = "cpu",
) -> dict[str, Any]:
    """What search over a gallery of mixed versions gives, as T models take over from each other.

    A T-th of each class arrives while each model is current (``arrivals``) and is never embedded again. Per model, in
    [0, 1]: ``accuracy``, the share of its queries that find their class first among all items there so far;
    ``reindexed``, the same with all of them embedded anew by this model, which is what one would pay for; ``queries``,
    how many have an item of their class there at all (the others do not count). NaN where a version there cannot be
    compared with the queries, for then there is no one ranking.
    Under ``versions``, for the last model's queries on the whole gallery, per version: its ``share_of_gallery`` and its
    ``share_of_hits``, the share of queries whose first place it takes (well below the former: its items are buried);
    ``score_offset``, how much higher its items score as stored than they would embedded by the last model, the
    mean over pairs of one class, and ``score_offset_others`` over pairs of different classes.
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
            versions = [version.mapped(step.to(device)) for version in versions]
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
    told = []
    for k, version in enumerate(versions):
        taken = float("nan") if winner is None else (winner == k).double().mean().item()
        offsets = _offsets(query, query_y, gallery_y, basis, model.full_dim, version, fresh)
        told.append(
            {
                "model": k + 1,
                "items": len(version.rows),
                "share_of_gallery": len(version.rows) / len(arrival),
                "share_of_hits": taken,
                "score_offset": offsets[0],
                "score_offset_others": offsets[1],
            }
        )
    return {"accuracy": accuracy, "reindexed": reindexed, "queries": counted, "versions": told}


def arrivals(labels: np.ndarray, count: int, seed: int) -> np.ndarray:
    """For each item the model, 0 .. count - 1, that is current when it arrives: a seeded, even share of each class."""
    labels = np.asarray(labels)
    arrival = np.empty(len(labels), dtype=np.int64)
    for label in np.unique(labels):
        random = np.random.default_rng([seed, int(label)])
        rows = random.permutation(np.flatnonzero(labels == label))
        arrival[rows] = (np.arange(len(rows)) + random.integers(count)) % count
    return arrival


class _Version:
    """The items that came under one model: rows of the gallery, their vectors as stored (None: no longer readable)."""

    def __init__(self, rows: Tensor, stored: Tensor | None, basis: Tensor | None, full_dim: int) -> None:
        self.rows, self.stored, self.basis, self.full_dim = rows, stored, basis, full_dim

    @torch.no_grad()
    def mapped(self, step: SpaceMap) -> "_Version":
        """One model on, for methods that learn a map."""
        if self.basis is not None:
            raise HoldfastError("maps between models read full features, but these are compact")
        fits = self.stored is not None and self.stored.shape[1] == step.enter.in_features
        stored = carry(self.stored, [step]) if fits and self.stored is not None else None
        return _Version(self.rows, stored, None, step.leave.out_features)

    def as_met(self, query: Tensor, basis: Tensor | None, full_dim: int) -> tuple[Tensor, Tensor] | None:
        """Queries and stored vectors whose inner products are cosines; None where the two cannot be compared."""
        if self.stored is None or self.full_dim != full_dim:
            return None
        return carried_query(query, basis, self.basis), self.stored


def _first_places(
    query: Tensor, basis: Tensor | None, full_dim: int, versions: Sequence[_Version]
) -> tuple[Tensor | None, Tensor | None]:
    """Per query the gallery row with the highest score of all versions, and its version; ties go to the older."""
    scores, rows, holders = [], [], []
    for k, version in enumerate(versions):
        if len(version.rows) == 0:
            continue
        met = version.as_met(query, basis, full_dim)
        if met is None:
            return None, None
        found = nearest(*met, 1)
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
    """Mean score as stored minus mean score embedded anew, over pairs of one class and over the others.

    Means over all pairs are products of sums, so that no matrix of scores is made.
    """
    met = version.as_met(query, basis, full_dim)
    if met is None or len(version.rows) == 0:
        return float("nan"), float("nan")
    labels, own = gallery_y[version.rows], int(max(query_y.max(), gallery_y.max())) + 1
    queries, items = torch.bincount(query_y, minlength=own).double(), torch.bincount(labels, minlength=own).double()
    pairs = float((queries * items).sum())
    others = float(len(query_y) * len(labels)) - pairs
    same, total = [], []
    for q, g in (met, (query, fresh[version.rows])):
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
