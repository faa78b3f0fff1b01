"""A bridge carries a new model's queries into an old model's space.

It is fitted on pairs, items that both models embedded, needs no labels and changes no stored vector. Which kind of map
is used is measured on pairs that it was not fitted on.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from holdfast.bridges.maps import Affine, LambdaOrthogonal, Local, QueryMap, ResidualMLP, Rotation
from holdfast.bridges.scores import ScoreScale, measure_scale
from holdfast.errors import HoldfastError, unknown_name
from holdfast.geometry import nearest, unit
from holdfast.storage import read_json, read_tensors, replacing_folder, write_json, write_tensors

NONE = "none"
BRIDGES: dict[str, type[QueryMap]] = {one.kind: one for one in (Rotation, Affine, LambdaOrthogonal, ResidualMLP, Local)}
"""Kinds of map by name. ``none`` uses queries as they are and needs spaces of equal size."""

CANDIDATES: tuple[tuple[str, dict[str, Any]], ...] = (
    (NONE, {}),
    ("rotation", {}),
    ("rotation", {"centred": True}),
    ("affine", {"ridge": 0.1}),
    ("affine", {"ridge": 1.0}),
    ("local", {}),
)
"""What ``auto`` compares: a few seconds at 2,000 pairs. Kinds trained by gradient steps are compared when named."""

FEWEST_PAIRS = 10
OVERLAP_FROM = 50
"""Held-out pairs from which on hits are compared; below, the rank of an item's own stored vector is."""
HELD_OUT = 0.3
MOST_HELD_OUT = 1000
CURVE = (50, 100, 200, 500, 1000, 2000, 5000)


@dataclass(frozen=True)
class Candidate:
    """One kind of map, measured on held-out pairs.

    value: mean over held-out items of the measure, in [0, 1]; higher is better.
    error: standard error of ``value``.
    """

    kind: str
    options: dict[str, Any]
    value: float
    error: float


@dataclass(frozen=True)
class Evidence:
    """How a bridge was chosen.

    measure: "overlap@10" (share of the ten nearest items of the new space that the bridged search shows) or
    "reciprocal rank" (of an item's own stored vector). chance: the value of random hits.
    pairs: all pairs; held_out: those of them that no candidate was fitted on.
    curve: (pairs fitted on, value) of the chosen kind on nested subsets of the pairs.
    """

    measure: str
    chance: float
    pairs: int
    held_out: int
    candidates: tuple[Candidate, ...]
    curve: tuple[tuple[int, float], ...] = ()
    seconds: float = 0.0

    @property
    def chosen(self) -> Candidate:
        """The candidate with the highest value; simpler ones win ties within one standard error of the difference."""
        return self.candidates[0]


@dataclass(frozen=True)
class Bridge:
    """A fitted bridge; made by ``Bridge.fit`` or ``Bridge.load``.

    kind, options: which map. dims: size of the new and of the old space.
    scale: makes scores of bridged queries comparable with scores in the new space.
    models: what the two spaces are called, such as hashes of weights; empty where nobody said.
    """

    kind: str
    options: dict[str, Any]
    dims: tuple[int, int]
    map: QueryMap | None
    scale: ScoreScale
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
        models: Mapping[str, str] | None = None,
        seed: int = 0,
    ) -> "Bridge":
        """Fit a bridge from the new space to the old one.

        new: N x d_new and old: N x d_old; row i of both is the same item. Rows of any length, which are normalised.
        kind: "auto" compares ``CANDIDATES`` on held-out pairs; or one of ``BRIDGES``, or "none".
        options: of the named kind, see ``holdfast.bridges.maps``.
        models: names of the two models, kept with the bridge, such as {"new": ..., "old": ...}.
        seed: of the split into fitted and held-out pairs.
        Refused: fewer than 10 pairs, NaN or zero rows, different numbers of rows.
        """
        started = time.monotonic()
        new, old = _pairs(new, old)
        candidates = _candidates(kind, dict(options or {}), new.shape[1] == old.shape[1])
        held, fitted = _split(len(new), seed)
        trial = _Trial(new, old, held, fitted)
        measured = [trial.measured(name, given) for name, given in candidates]
        order = _ranked(measured)
        best = measured[order[0]].candidate
        scale = measured[order[0]].scale
        evidence = Evidence(
            measure=trial.measure,
            chance=trial.chance,
            pairs=len(new),
            held_out=len(held),
            candidates=tuple(measured[i].candidate for i in order),
            curve=tuple(trial.curve(best.kind, best.options)) if best.kind != NONE else (),
            seconds=time.monotonic() - started,
        )
        chosen = None if best.kind == NONE else BRIDGES[best.kind].fit(new, old, **best.options)
        dims = (new.shape[1], old.shape[1])
        return cls(best.kind, best.options, dims, chosen, scale, evidence, dict(models or {}))

    @torch.no_grad()
    def __call__(self, queries: ArrayLike | Tensor) -> Tensor:
        """Unit queries in the old space, Q x d_old float32; a query of zeros stays zero."""
        z = torch.as_tensor(np.asarray(queries) if not isinstance(queries, Tensor) else queries).float()
        if z.ndim != 2 or z.shape[1] != self.dims[0]:
            raise HoldfastError(f"queries have shape {tuple(z.shape)}; this bridge takes Q x {self.dims[0]}")
        z = unit(z)
        return z if self.map is None else unit(self.map(z)) * (z.norm(dim=1, keepdim=True) > 0)

    @property
    def helps(self) -> bool:
        """Whether bridged searches find more than random hits would, by three standard errors."""
        best = self.evidence.chosen
        return best.value - 3 * best.error > self.evidence.chance

    def as_json(self) -> dict[str, Any]:
        return {
            "format": 1,
            "kind": self.kind,
            "options": self.options,
            "dims": list(self.dims),
            "models": self.models,
            "scale": self.scale.as_json(),
            "evidence": asdict(self.evidence),
            "helps": self.helps,
        }

    def save(self, folder: str | Path) -> None:
        """Write ``bridge.json`` and ``bridge.safetensors`` as one folder; an older one is replaced at once."""
        with replacing_folder(Path(folder)) as temporary:
            write_json(temporary / "bridge.json", self.as_json())
            write_tensors(temporary / "bridge.safetensors", {} if self.map is None else self.map.tensors())

    @classmethod
    def load(cls, folder: str | Path) -> "Bridge":
        """Read a bridge that ``save`` wrote."""
        folder = Path(folder)
        record = read_json(folder / "bridge.json")
        tensors, _ = read_tensors(folder / "bridge.safetensors")
        try:
            kind, dims = record["kind"], tuple(record["dims"])
            evidence = dict(record["evidence"])
            evidence["candidates"] = tuple(Candidate(**one) for one in evidence["candidates"])
            evidence["curve"] = tuple((count, value) for count, value in evidence["curve"])
            known: dict[str, Any] = {
                key: float("nan") if value is None else value for key, value in record["scale"].items()
            }
            loaded = None if kind == NONE else BRIDGES[kind].from_tensors(tensors)
            bridge = cls(
                kind, record["options"], dims, loaded, ScoreScale(**known), Evidence(**evidence), record["models"]
            )
            bridge(torch.zeros(1, dims[0]))
        except (KeyError, TypeError, ValueError, RuntimeError, IndexError) as error:
            raise HoldfastError(f"{folder}: not a bridge, or a damaged one ({error!r}); fit it again") from error
        return bridge


@dataclass(frozen=True)
class _Measured:
    candidate: Candidate
    values: Tensor
    scale: ScoreScale


class _Trial:
    """Candidates fitted on some pairs and measured on the others."""

    def __init__(self, new: Tensor, old: Tensor, held: Tensor, fitted: Tensor) -> None:
        self._fit_new, self._fit_old = new[fitted], old[fitted]
        self._new, self._old = new[held], old[held]
        self._by_hits = len(held) >= OVERLAP_FROM
        self.measure = "overlap@10" if self._by_hits else "reciprocal rank"
        others = len(held) - 1
        ranks = 1 / torch.arange(1, len(held) + 1, dtype=torch.float64)
        self.chance = min(1.0, 10 / others) if self._by_hits else float(ranks.mean())
        self._wanted = _neighbours(self._new, self._new) if self._by_hits else None

    def measured(self, kind: str, options: Mapping[str, Any]) -> _Measured:
        bridged = self._bridged(kind, options, len(self._fit_new))
        values = self._values(bridged)
        error = float(values.std() / len(values) ** 0.5) if len(values) > 1 else float("nan")
        candidate = Candidate(kind, dict(options), float(values.mean()), error)
        return _Measured(candidate, values, measure_scale(bridged, self._old, self._new))

    def curve(self, kind: str, options: Mapping[str, Any]) -> list[tuple[int, float]]:
        """The measure against the number of pairs, on nested subsets of the fitted pairs."""
        total = len(self._fit_new)
        counts = [count for count in CURVE if FEWEST_PAIRS <= count < total] + [total]
        return [(count, float(self._values(self._bridged(kind, options, count)).mean())) for count in counts]

    def _bridged(self, kind: str, options: Mapping[str, Any], count: int) -> Tensor:
        if kind == NONE:
            return self._new
        fitted = BRIDGES[kind].fit(self._fit_new[:count], self._fit_old[:count], **options)
        with torch.no_grad():
            return unit(fitted(self._new))

    def _values(self, bridged: Tensor) -> Tensor:
        """One number in [0, 1] per held-out item."""
        if self._wanted is not None:
            found = _neighbours(bridged, self._old)
            return (found[:, :, None] == self._wanted[:, None, :]).any(2).double().mean(1)
        scores = bridged @ self._old.T
        own = scores.diagonal()[:, None]
        return 1 / (scores > own).sum(1).add(1).double()


def _neighbours(queries: Tensor, gallery: Tensor) -> Tensor:
    """The ten nearest other rows of the gallery, Q x 10; row i of both is the same item."""
    found = nearest(queries, gallery, 11).indices
    own = found == torch.arange(len(queries))[:, None]
    own[:, -1] |= ~own.any(1)  # where the item itself is not among the eleven, the last one goes
    return found[~own].view(len(queries), -1)


def _ranked(measured: Sequence[_Measured]) -> list[int]:
    """Indices of candidates, best first. An earlier candidate wins unless a later one is better by a standard error."""
    best = 0
    for i in range(1, len(measured)):
        gain = measured[i].values - measured[best].values
        if float(gain.mean()) > float(gain.std()) / len(gain) ** 0.5:
            best = i
    rest = sorted((i for i in range(len(measured)) if i != best), key=lambda i: -measured[i].candidate.value)
    return [best, *rest]


def _candidates(kind: str, options: dict[str, Any], same_size: bool) -> list[tuple[str, dict[str, Any]]]:
    if kind == "auto":
        if options:
            raise HoldfastError(f"options {', '.join(options)} belong to one kind; name it, such as kind='rotation'")
        return [(name, dict(given)) for name, given in CANDIDATES if name != NONE or same_size]
    if kind not in (NONE, *BRIDGES):
        raise unknown_name("kind of bridge", kind, ["auto", NONE, *BRIDGES])
    if kind == NONE and not same_size:
        raise HoldfastError("kind 'none' uses queries as they are, but the two spaces have different sizes")
    return [(kind, options)]


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


def _split(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Held-out and fitted rows, in random order."""
    order = torch.randperm(count, generator=torch.Generator().manual_seed(seed))
    held = min(MOST_HELD_OUT, max(3, round(HELD_OUT * count)))
    return order[:held], order[held:]
