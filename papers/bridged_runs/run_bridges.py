"""Bridges between all models of a run: one kind of map for all of them, fitted on the same images.

A run is judged with one kind, so that nothing is chosen cell by cell of its compatibility matrix.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from holdfast.bridges.choice import (
    BRIDGES,
    FEWEST_PAIRS,
    NONE,
    Candidate,
    Measured,
    candidates_of,
    ranked,
)
from holdfast.bridges.maps import QueryMap, mapped_queries
from holdfast.bridges.score_scale import SAME, ScoreScale
from holdfast.bridges.trial import Trial, split_pairs
from holdfast.core.errors import HoldfastError
from holdfast.vectors.lengths import unit

Cell = tuple[int, int]
"""(t, k): model t's queries in the space of model k < t; numbers from 0, oldest model first."""


@dataclass(frozen=True)
class RunBridges:
    """One bridge for each pair of models of a run, all of one kind; made by ``fit_run_bridges``.

    kind, options: of all bridges.
    pairs: number of images that they are fitted on, the same ones for all pairs of models; seed: of their choice.
    measure: what is measured on held-out images; see ``Evidence``.
    candidates: kind, options and value of each candidate, the chosen one first. value: mean over the pairs of models.
    maps: from queries of model t to the space of model k, by (t, k); empty for kind "none".
    scales: make scores of bridged queries comparable with those of model t's own items, by (t, k).
    plain_scales: the same for queries as they are; without the pairs of models of different sizes.
    """

    kind: str
    options: dict[str, Any]
    pairs: int
    seed: int
    measure: str
    candidates: tuple[dict[str, Any], ...]
    maps: dict[Cell, Callable[[Tensor], Tensor]] = field(default_factory=dict)
    scales: dict[Cell, ScoreScale] = field(default_factory=dict)
    plain_scales: dict[Cell, ScoreScale] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """What records say of these bridges, as plain types."""
        return {
            "kind": self.kind,
            "options": self.options,
            "pairs": self.pairs,
            "seed": self.seed,
            "measure": self.measure,
            "candidates": [dict(one) for one in self.candidates],
        }


def fit_run_bridges(
    galleries: Sequence[ArrayLike],
    bases: Sequence[ArrayLike | None] = (),
    *,
    kind: str = "auto",
    options: Mapping[str, Any] | None = None,
    pairs: int = 1000,
    seed: int = 0,
) -> RunBridges:
    """Fit a bridge from each model of a run to each earlier one.

    galleries: features of the gallery images by each model, G x d_t, oldest first; row i is the same image in all.
    bases: of compact features, full size x d_t for each model; None for full features. Bridges are fitted on the rows
        as they are stored; a basis is only needed to measure queries as they are.
    kind: a name in ``BRIDGES``, "none", or "auto": the candidate with the highest mean value over all pairs of models;
        simpler ones win unless another is better by a standard error. "none" competes if all models have features of
        one size.
    options: of the named kind.
    pairs: images to fit on, a random sample of the gallery; all of them if it has fewer.
    seed: of the sample, and of its split into fitted and held-out images.
    Refused: fewer than 10 images, features that are not finite.
    """
    rows = _sample(len(np.asarray(galleries[0])), pairs, seed)
    vectors = [unit(np.asarray(gallery)[rows]) for gallery in galleries]
    for number, z in enumerate(vectors, start=1):
        if not np.isfinite(z).all():
            raise HoldfastError(f"the gallery features of model {number} hold NaN or infinity; a bridge needs numbers")
    arrays = [None if basis is None else np.asarray(basis, dtype=np.float32) for basis in bases] or [None] * len(
        vectors
    )
    sizes = [z.shape[1] if basis is None else basis.shape[0] for z, basis in zip(vectors, arrays, strict=True)]
    named = candidates_of(kind, dict(options or {}), len(set(sizes)) == 1)
    candidates = named if kind == "auto" else named[-1:]
    split = split_pairs(len(rows), seed, len(np.asarray(galleries[0])))
    values = [np.zeros(len(split.held)) for _ in candidates]  # the mean over pairs of models
    scales: list[dict[Cell, ScoreScale]] = [{} for _ in candidates]
    plain_scales: dict[Cell, ScoreScale] = {}
    measure = ""
    cells = [(t, k) for t in range(len(vectors)) for k in range(t)]
    for t, k in cells:
        new, old = vectors[t], vectors[k]
        plain = _unbridged(new, arrays[t], arrays[k]) if sizes[t] == sizes[k] else None
        trial = Trial(new, old, None, split, plain)
        measure = trial.measure
        unchanged = None if plain is None else trial.measured(NONE, {})
        if unchanged is not None:
            plain_scales[t, k] = unchanged.scale
        for i, (name, given) in enumerate(candidates):
            found = unchanged if name == NONE and unchanged is not None else trial.measured(name, given)
            values[i] += found.values / len(cells)
            scales[i][t, k] = found.scale
    measured = [
        Measured(Candidate(*one, float(mean.mean()) if cells else float("nan"), float("nan")), mean, np.zeros(0), SAME)
        for one, mean in zip(candidates, values, strict=True)
    ]
    order = ranked(measured)
    name, given = candidates[order[0]]
    return RunBridges(
        kind=name,
        options=given,
        pairs=len(rows),
        seed=seed,
        measure=measure,
        candidates=tuple(
            {"kind": one.kind, "options": one.options, "value": one.value}
            for one in (measured[i].candidate for i in order)
        ),
        maps={(t, k): _on_its_device(BRIDGES[name].fit(vectors[t], vectors[k], **given)) for t, k in cells}
        if name != NONE
        else {},
        scales=scales[order[0]],
        plain_scales=plain_scales,
    )


def _sample(count: int, pairs: int, seed: int) -> np.ndarray:
    if min(count, pairs) < FEWEST_PAIRS:
        what = f"{pairs} pairs" if pairs <= count else f"the gallery's {count} images"
        raise HoldfastError(f"{what} are too few for a bridge; at least {FEWEST_PAIRS} are needed")
    return np.sort(np.random.default_rng(seed).choice(count, min(count, pairs), replace=False))


def _unbridged(new: np.ndarray, own: np.ndarray | None, other: np.ndarray | None) -> np.ndarray:
    """Rows of a new model in the basis of an old one, without a bridge; their length is part of the score."""
    if own is not None and other is not None:
        return new @ (own.T @ other)
    return new @ own.T if own is not None else new if other is None else new @ other


def _on_its_device(fitted: QueryMap) -> Callable[[Tensor], Tensor]:
    """The map for queries on any device. It computes on the CPU: one product per query, small beside a search."""

    def carry(queries: Tensor) -> Tensor:
        return torch.from_numpy(mapped_queries(fitted, unit(queries))).to(queries.device)

    return carry
