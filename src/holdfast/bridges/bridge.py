"""A bridge carries a new model's queries into an old model's space.

It is fitted on pairs, items that both models embedded, needs no labels and changes no stored vector. Which kind of map
is used is measured on pairs that it was not fitted on (``choice``).
"""

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
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
    Evidence,
    Trial,
    candidates_of,
    ranked,
    split_pairs,
)
from holdfast.bridges.maps import LinearMap, QueryMap, ridge_weights
from holdfast.bridges.scores import ScoreScale
from holdfast.errors import HoldfastError
from holdfast.geometry import unit
from holdfast.storage import read_json, read_tensors, replacing_folder, without_nan, write_json, write_tensors


@dataclass(frozen=True)
class Bridge:
    """A fitted bridge; made by ``Bridge.fit`` or ``Bridge.load``.

    kind, options: which map. dims: size of the new and of the old space.
    scale: makes scores of bridged queries comparable with scores in the new space.
    residual: d_old + 1 numbers that predict how badly an old vector is served; see ``predicted_residual``.
    models: what the two spaces are called, such as hashes of weights; empty where nobody said.
    """

    kind: str
    options: dict[str, Any]
    dims: tuple[int, int]
    map: QueryMap | None
    scale: ScoreScale
    residual: Tensor
    evidence: Evidence
    models: dict[str, str] = field(default_factory=dict)

    @classmethod
    def fit(
        cls,
        new: ArrayLike | Tensor,
        old: ArrayLike | Tensor,
        *,
        kind: str = "auto",
        options: Mapping[str, Any] | None = None,
        labels: ArrayLike | None = None,
        items: int | None = None,
        same_space: bool | None = None,
        unbridged: ArrayLike | Tensor | None = None,
        models: Mapping[str, str] | None = None,
        seed: int = 0,
    ) -> "Bridge":
        """Fit a bridge from the new space to the old one.

        new: N x d_new and old: N x d_old; row i of both is the same item. Rows of any length, which are normalised.
        kind: "auto" compares ``CANDIDATES`` on held-out pairs; or one of ``BRIDGES``, or "none".
        options: of the named kind, see ``holdfast.bridges.maps``.
        labels: the class of each item, N; None or "" for unknown. With 200 held-out items or more that share a class
            with another one, first hits of the right class decide instead of the overlap.
        items: number of items in the old gallery, if the pairs are a sample of it; see ``choice.split_pairs``.
        same_space: whether queries may be used as they are, so that "none" competes. Default: if the sizes are equal.
        unbridged: N x d_old, the new items as they are compared with old vectors without a bridge, for "none"; needed
            where the two models store one space in different bases. Rows of length at most 1, which are not
            normalised. The caller then converts queries for a bridge of kind "none" itself. Default: ``new``.
        models: names of the two models, kept with the bridge, such as {"new": ..., "old": ...}.
        seed: of the split into fitted and held-out pairs.
        Refused: fewer than 10 pairs, NaN or zero rows, different numbers of rows.

        A named kind is used whatever ``none`` scores; ``evidence`` has both.
        """
        started = time.monotonic()
        new, old = _pairs(new, old)
        plain = _unbridged(unbridged, new, old)
        same = plain is not None and same_space is not False
        candidates = candidates_of(kind, dict(options or {}), same)
        split = split_pairs(len(new), seed, items)
        codes = None if labels is None else _codes(labels, len(new))
        trial = Trial(new, old, codes, split, plain)
        measured = [trial.measured(name, given) for name, given in candidates]
        order = ranked(measured) if kind == "auto" else list(reversed(range(len(measured))))
        best, scale = measured[order[0]].candidate, measured[order[0]].scale
        evidence = Evidence(
            measure=trial.measure,
            chance=trial.chance,
            pairs=len(new),
            held_out=len(split.held),
            searched=len(split.held) + len(split.also_searched),
            candidates=tuple(measured[i].candidate for i in order),
            curve=tuple(trial.curve(best.kind, best.options)) if best.kind != NONE else (),
            seconds=time.monotonic() - started,
            raw_exposure=trial.raw_exposure() if same else None,
            beyond_chance=Trial(new, old, codes, split.unseen_only(), plain).beyond_chance(best.kind, best.options),
        )
        chosen = None if best.kind == NONE else BRIDGES[best.kind].fit(new, old, **best.options)
        residual = _fit_residual(*trial.residuals(best.kind, best.options)) if plain is not None or chosen else _NOTHING
        dims = (new.shape[1], old.shape[1])
        return cls(best.kind, best.options, dims, chosen, scale, residual, evidence, dict(models or {}))

    @torch.no_grad()
    def __call__(self, queries: ArrayLike | Tensor) -> Tensor:
        """Unit queries in the old space, Q x d_old float32; a query of zeros stays zero."""
        z = torch.as_tensor(np.asarray(queries) if not isinstance(queries, Tensor) else queries).float()
        if z.ndim != 2 or z.shape[1] != self.dims[0]:
            raise HoldfastError(f"queries have shape {tuple(z.shape)}; this bridge takes Q x {self.dims[0]}")
        z = unit(z)
        return z if self.map is None else unit(self.map(z)) * (z.norm(dim=1, keepdim=True) > 0)

    def one(self, query: np.ndarray) -> np.ndarray:
        """One query (d_new float32, unit length) as a unit query in the old space, with little overhead."""
        if not isinstance(self.map, LinearMap):
            (found,) = self(query[None]).numpy()
            return np.asarray(found)
        mapped = self.map.one(query)
        mapped /= max(float(np.sqrt(mapped @ mapped)), 1e-12)
        return mapped

    @property
    def helps(self) -> bool:
        """Whether bridged searches among unseen items find more than random hits would, by four standard errors.

        Three would be passed by 5 % of unrelated spaces: the best of several candidates is taken, and hits of similar
        queries depend on each other.
        """
        return self.evidence.beyond_chance > 4

    def predicted_residual(self, old: ArrayLike | Tensor) -> Tensor:
        """How far bridged queries are expected to miss these old vectors, N: 1 - cosine, by linear regression.

        old: N x d_old unit vectors. A backfill re-embeds items with a large value first.
        """
        rows = torch.as_tensor(np.asarray(old) if not isinstance(old, Tensor) else old).float()
        return rows @ self.residual[:-1] + self.residual[-1]

    def summary(self) -> dict[str, Any]:
        """What records of versions say about a bridge, as plain types; NaN is None.

        value, without: the measure on held-out pairs with the bridge and without any; without is None where the two
            spaces cannot be compared.
        exposure, exposure_without: expected exposure of old items by number of first places; 1 means shown as often as
            after re-embedding. Empty with few held-out pairs.
        """
        chosen, without = self.evidence.chosen, self.evidence.without
        found: dict[str, Any] = without_nan(
            {
                "kind": self.kind,
                "options": self.options,
                "measure": self.evidence.measure,
                "value": chosen.value,
                "without": None if without is None else without.value,
                "pairs": self.evidence.pairs,
                "held_out": self.evidence.held_out,
                "exposure": {str(k): ratio for k, ratio in chosen.exposure.items()},
                "exposure_without": None if without is None else {str(k): one for k, one in without.exposure.items()},
                "scale": self.scale.as_json(),
                "helps": self.helps,
            }
        )
        return found

    def as_json(self) -> dict[str, Any]:
        """Everything but the map, as plain types; NaN is None."""
        found: dict[str, Any] = without_nan(
            {
                "format": 1,
                "kind": self.kind,
                "options": self.options,
                "dims": list(self.dims),
                "models": self.models,
                "scale": self.scale.as_json(),
                "evidence": asdict(self.evidence),
                "helps": self.helps,
            }
        )
        return found

    def save(self, folder: str | Path) -> None:
        """Write ``bridge.json`` and ``bridge.safetensors`` as one folder; an older one is replaced at once."""
        with replacing_folder(Path(folder)) as temporary:
            write_json(temporary / "bridge.json", self.as_json())
            learned = {} if self.map is None else {f"map.{name}": part for name, part in self.map.tensors().items()}
            write_tensors(temporary / "bridge.safetensors", {**learned, "residual": self.residual})

    @classmethod
    def load(cls, folder: str | Path) -> "Bridge":
        """Read a bridge that ``save`` wrote."""
        folder = Path(folder)
        record = read_json(folder / "bridge.json")
        tensors, _ = read_tensors(folder / "bridge.safetensors")
        try:
            kind, dims = record["kind"], tuple(record["dims"])
            learned = {name.removeprefix("map."): part for name, part in tensors.items() if name.startswith("map.")}
            bridge = cls(
                kind,
                record["options"],
                dims,
                None if kind == NONE else BRIDGES[kind].from_tensors(learned),
                ScoreScale.from_json(record["scale"]),
                tensors["residual"],
                _evidence(record["evidence"]),
                record["models"],
            )
            bridge(torch.zeros(1, dims[0]))
        except (KeyError, TypeError, ValueError, RuntimeError, IndexError) as error:
            raise HoldfastError(f"{folder}: not a bridge, or a damaged one ({error!r}); fit it again") from error
        return bridge


_NOTHING = torch.zeros(1)


def _fit_residual(old: Tensor, residuals: Tensor) -> Tensor:
    """Weights and bias of a ridge regression from old vectors to residuals."""
    mean, level = old.mean(0), residuals.mean()
    weight = ridge_weights(old - mean, (residuals - level)[:, None], 1.0)[:, 0]
    return torch.cat([weight, (level - mean @ weight)[None]])


def _evidence(record: Mapping[str, Any]) -> Evidence:
    candidates = tuple(
        Candidate(**{**_with_nan(one), "exposure": _exposure(one["exposure"])}) for one in record["candidates"]
    )
    curve = tuple((count, value) for count, value in record["curve"])
    raw = None if record["raw_exposure"] is None else _exposure(record["raw_exposure"])
    return Evidence(**{**_with_nan(record), "candidates": candidates, "curve": curve, "raw_exposure": raw})


def _exposure(record: Mapping[str, Any]) -> dict[int, float]:
    return {int(k): float("nan") if ratio is None else ratio for k, ratio in record.items()}


def _with_nan(record: Mapping[str, Any]) -> dict[str, Any]:
    return {name: float("nan") if value is None else value for name, value in record.items()}


def _codes(labels: ArrayLike, count: int) -> Tensor:
    """Class numbers, -1 where a label is unknown."""
    given = [None if label in (None, "") else str(label) for label in np.asarray(labels, dtype=object).tolist()]
    if len(given) != count:
        raise HoldfastError(f"{len(given)} labels for {count} pairs; one each is needed")
    numbers = {label: number for number, label in enumerate(dict.fromkeys(given))}
    return torch.tensor([-1 if label is None else numbers[label] for label in given])


def _unbridged(given: ArrayLike | Tensor | None, new: Tensor, old: Tensor) -> Tensor | None:
    """The new items as queries without a bridge, N x d_old; None if there is no such form."""
    if given is None:
        return new if new.shape == old.shape else None
    rows = torch.as_tensor(np.asarray(given) if not isinstance(given, Tensor) else given).detach().float().cpu()
    if rows.shape != old.shape:
        raise HoldfastError(f"unbridged has shape {tuple(rows.shape)}; old has {tuple(old.shape)}")
    return rows


def _pairs(new: ArrayLike | Tensor, old: ArrayLike | Tensor) -> tuple[Tensor, Tensor]:
    both = []
    for name, given in (("new", new), ("old", old)):
        z = torch.as_tensor(np.asarray(given) if not isinstance(given, Tensor) else given).detach().float().cpu()
        if z.ndim != 2:
            raise HoldfastError(f"{name} has shape {tuple(z.shape)}; a bridge is fitted on matrices, one row per item")
        bad = ~torch.isfinite(z).all(1)
        if bool(bad.any()):
            raise HoldfastError(f"{name}: {int(bad.sum())} of {len(z)} rows hold NaN or infinity; leave them out")
        empty = z.norm(dim=1) == 0
        if bool(empty.any()):
            raise HoldfastError(f"{name}: {int(empty.sum())} of {len(z)} rows are zero; leave them out")
        both.append(unit(z))
    if len(both[0]) != len(both[1]):
        raise HoldfastError(f"new has {len(both[0])} rows and old {len(both[1])}; row i of both must be the same item")
    if len(both[0]) < FEWEST_PAIRS:
        raise HoldfastError(f"{len(both[0])} pairs are too few for a bridge; at least {FEWEST_PAIRS} are needed")
    return both[0], both[1]
