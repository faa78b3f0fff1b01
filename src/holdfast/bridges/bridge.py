"""A bridge carries a new model's queries into an old model's space.

It is fitted on pairs, items that both models embedded, needs no labels and changes no stored vector. Which kind of map
is used is measured on pairs that it was not fitted on (``choice``).
"""

import itertools
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from holdfast.bridges.choice import (
    BEYOND_CHANCE,
    BRIDGES,
    FEWEST_PAIRS,
    NONE,
    Candidate,
    Evidence,
    as_good,
    candidates_of,
    ranked,
    short_form,
)
from holdfast.bridges.maps import LinearMap, Matrix, QueryMap, mapped_queries, ridge_weights
from holdfast.bridges.saved_numbers import check_record, check_tensors
from holdfast.bridges.score_scale import ScoreScale
from holdfast.bridges.trial import Trial, split_items, split_pairs
from holdfast.core.errors import HoldfastError
from holdfast.core.real_arrays import check_real, real_array
from holdfast.core.storage import (
    check_replaceable,
    read_json,
    read_tensors,
    replacing_folder,
    without_nan,
    write_json,
    write_tensors,
)
from holdfast.core.wording import per_cent, with_options
from holdfast.vectors.lengths import row_lengths, unit, unit_of_any_length
from holdfast.vectors.search import float32

BRIDGE_FILES = ("bridge.json", "bridge.safetensors")
_FINGERPRINT, _SAME, _COPY = 8, 1e-2, 1e-3
"""Numbers of a fingerprint; the largest difference between those of one vector as float32 and rounded to bfloat16; and
between those of an item that was embedded twice, which can differ in the last bits.

Those of different vectors differ by about 1, so that all eight are close only for the same vector.
"""
_AXES, _CELL, _PRIMES = 3, 4, (1, 1_000_003, 1_000_000_000_039)
"""Grids that copies are looked for with: numbers of a fingerprint, and the width of a cell in ``_COPY``."""


@dataclass(frozen=True, eq=False, repr=False)
class Bridge:
    """A fitted bridge; made by ``Bridge.fit`` or ``Bridge.load``.

    kind, options: which map. dims: size of the new and of the old space.
    scale: makes scores of bridged queries comparable with scores in the new space.
    error_weights: d_old + 1 numbers that predict how badly an old vector is served; see ``expected_errors``.
    models: what the two spaces are called, such as hashes of weights; empty if unknown.
    fitted: fingerprints of the new model's vectors that its map was fitted on, N x 8; see ``was_fitted_on``.

    >>> import numpy as np
    >>> from holdfast import Bridge
    >>> rng = np.random.default_rng(0)
    >>> old = rng.standard_normal((60, 8))
    >>> new = old @ np.linalg.qr(rng.standard_normal((8, 8)))[0]  # the same items, by a model with rotated vectors
    >>> bridge = Bridge.fit(new=new, old=old)
    >>> bridge.kind, bridge.dims
    ('rotation', (8, 8))
    >>> queries = bridge.transform(new[:3])  # unit vectors in the old space
    >>> bool(np.allclose(queries, old[:3] / np.linalg.norm(old[:3], axis=1, keepdims=True), atol=1e-5))
    True
    """

    kind: str
    options: dict[str, Any]
    dims: tuple[int, int]
    map: QueryMap | None
    scale: ScoreScale
    error_weights: Matrix
    evidence: Evidence
    models: dict[str, str] = field(default_factory=dict)
    fitted: Matrix = field(default_factory=lambda: np.zeros((0, _FINGERPRINT), dtype=np.float32))

    @classmethod
    def fit(
        cls,
        *,
        new: ArrayLike,
        old: ArrayLike,
        kind: str = "auto",
        options: Mapping[str, Any] | None = None,
        labels: ArrayLike | None = None,
        items: int | None = None,
        queries: ArrayLike | None = None,
        same_space: bool | None = None,
        unbridged: ArrayLike | None = None,
        models: Mapping[str, str] | None = None,
        seed: int = 0,
    ) -> "Bridge":
        """Fit a bridge from the new space to the old one.

        new: N x d_new and old: N x d_old; row i of both is the same item. Rows of any length, which are normalised.
            Pairs that are equal in both but for rounding count once.
        kind: "auto" compares ``CANDIDATES`` on held-out pairs; or one of ``BRIDGES``, or "none".
        options: of the named kind, see ``holdfast.bridges.maps``.
        labels: the class of each item, N; None, "" or NaN for unknown. With 200 held-out items or more that share a
            class with another one, first hits of the right class decide instead of the overlap; not if hits of the new
            model itself match the labels no better than random hits.
        items: number of items in the old gallery, if the pairs are a sample of it; see ``trial.split_pairs``.
        queries: N booleans, which pairs are queries of a log and not stored items. Maps are fitted on both together,
            but only items are held out and searched. Default: none.
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
        new_rows, old_rows = pairs_of(new, old)
        plain = _unbridged(unbridged, new_rows, old_rows)
        codes = None if labels is None else _codes(labels, len(new_rows))
        asked = np.zeros(len(new_rows), dtype=bool) if queries is None else real_array(queries, "queries").astype(bool)
        if asked.shape != (len(new_rows),) or len(new_rows) - asked.sum() < FEWEST_PAIRS:
            raise HoldfastError(
                f"queries: {asked.sum()} of {len(asked)} for {len(new_rows)} pairs; give a boolean for each pair, and "
                f"at least {FEWEST_PAIRS} items"
            )
        different = _different(new_rows, old_rows)
        if FEWEST_PAIRS <= len(different) < len(new_rows):
            # A copy of a held-out item among the fitted ones would make every map look good that memorises pairs.
            new_rows, old_rows = new_rows[different], old_rows[different]
            plain = None if plain is None else plain[different]
            codes, asked = None if codes is None else codes[different], asked[different]
        if same_space and plain is None:
            raise HoldfastError("same_space: vectors of different sizes cannot be compared as they are; leave it out")
        same = plain is not None and same_space is not False
        candidates = candidates_of(kind, dict(options or {}), same)
        split = split_pairs(len(new_rows), seed, items) if not asked.any() else split_items(asked, seed, items)
        trial = Trial(new_rows, old_rows, codes, split, plain)
        measured = [trial.measured(name, given) for name, given in candidates]
        order = ranked(measured) if kind == "auto" else list(reversed(range(len(measured))))
        dims = (new_rows.shape[1], old_rows.shape[1])
        short = short_form(measured[order[0]].candidate, dims) if kind == "auto" else None
        if short is not None:
            measured.append(trial.measured(measured[order[0]].candidate.kind, short))
            order.insert(0 if as_good(measured[-1], measured[order[0]]) else 1, len(measured) - 1)
        best, scale = measured[order[0]].candidate, measured[order[0]].scale
        evidence = Evidence(
            measure=trial.measure,
            chance=trial.chance,
            pairs=len(new_rows),
            held_out=len(split.held),
            searched=len(split.held) + len(split.also_searched),
            candidates=tuple(measured[i].candidate for i in order),
            curve=tuple(trial.curve(best.kind, best.options)) if best.kind != NONE else (),
            seconds=time.monotonic() - started,
            raw_exposure=trial.raw_exposure or None,
            # A search cannot separate equal vectors, such as those of a collapsed model: all queries get one ranking.
            beyond_chance=0.0
            if min(len(_different(new_rows)), len(_different(old_rows))) < FEWEST_PAIRS
            else trial.beyond_chance(best.kind, best.options),
        )
        chosen = None if best.kind == NONE else BRIDGES[best.kind].fit(new_rows, old_rows, **best.options)
        error_weights = _fit_errors(*trial.errors(best.kind, best.options))
        fitted = _fingerprints(new_rows if chosen is not None else new_rows[:0])
        names = dict(models or {})
        return cls(best.kind, best.options, dims, chosen, scale, error_weights, evidence, names, fitted)

    def transform(self, queries: ArrayLike) -> Matrix:
        """Unit queries in the old space, Q x d_old float32; a query of zeros stays zero.

        queries: Q x d_new, rows of any length. ``bridge(queries)`` is the same.
        """
        z = real_array(queries, "queries", np.float32)
        if z.ndim != 2 or z.shape[1] != self.dims[0]:
            raise HoldfastError(f"queries have shape {tuple(z.shape)}; this bridge takes Q x {self.dims[0]}")
        z = unit_of_any_length(z)
        finite = np.isfinite(z).all(axis=1)
        if not finite.all():
            raise HoldfastError(f"{int((~finite).sum())} of {len(z)} queries hold NaN or infinity; leave them out")
        return z if self.map is None else mapped_queries(self.map, z) * (row_lengths(z) > 0)[:, None]

    def __call__(self, queries: ArrayLike) -> Matrix:
        return self.transform(queries)

    def one(self, query: Matrix) -> Matrix:
        """One query (d_new float32, unit length) as a unit query in the old space, with little overhead."""
        if not isinstance(self.map, LinearMap):
            (mapped,) = self.transform(query[None])
            return np.asarray(mapped)
        mapped = self.map(query)
        mapped /= max(float(np.sqrt(mapped @ mapped)), 1e-12)
        return mapped

    def was_fitted_on(self, new: ArrayLike) -> NDArray[np.bool_]:
        """Which of these vectors of the new model the map was fitted on, by their values: N booleans."""
        asked = _fingerprints(unit_of_any_length(new))
        ordered = self.fitted[self.fitted[:, 0].argsort()]
        first = np.searchsorted(ordered[:, 0], asked[:, 0] - _SAME)
        last = np.searchsorted(ordered[:, 0], asked[:, 0] + _SAME)
        was_fitted = np.zeros(len(asked), dtype=bool)
        for place in range(int((last - first).max(initial=0))):  # few: only those with nearly the same first number
            rows = np.flatnonzero(first + place < last)
            near = np.abs(ordered[first[rows] + place] - asked[rows]) <= _SAME
            was_fitted[rows] |= near.all(axis=1)
        return was_fitted

    @property
    def agrees_beyond_chance(self) -> bool:
        """Whether bridged searches among unseen items agree with the new model more than chance would.

        By four standard errors. It does not say that people find more than with the old model.
        """
        return self.evidence.beyond_chance > BEYOND_CHANCE

    def expected_errors(self, old: ArrayLike) -> Matrix:
        """How often these items are expected to be wrongly among the first hits or wrongly missing, N.

        By linear regression from held-out pairs; the mean over items like these is 1 - overlap@10. A backfill
        re-embeds items with a large value first.

        old: N x d_old unit vectors.
        """
        errors: Matrix = real_array(old, "old", np.float32) @ self.error_weights[:-1] + self.error_weights[-1]
        return errors

    def __repr__(self) -> str:
        evidence, plain = self.evidence, self.evidence.without
        measures = {"reciprocal rank": "mean reciprocal rank", "top1": "share of right first hits"}
        measure = measures.get(evidence.measure, evidence.measure)
        without = "" if plain is None or self.kind == NONE else f", without a bridge {per_cent(plain.value, 1)} %"
        chance = "more than chance" if self.agrees_beyond_chance else "no more than chance"
        return (
            f"Bridge from {self.dims[0]:,} to {self.dims[1]:,} numbers by {with_options(self.kind, self.options)}, "
            f"fitted on {evidence.pairs:,} pairs; it agrees {chance}, not judged: "
            f"its {measure} on {evidence.held_out:,} held-out pairs "
            f"is {per_cent(evidence.chosen.value, 1)} %{without}, by chance {per_cent(evidence.chance, 1)} %"
        )

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
                "agrees_beyond_chance": self.agrees_beyond_chance,
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
                "agrees_beyond_chance": self.agrees_beyond_chance,
            }
        )
        return found

    def save(self, folder: str | Path) -> None:
        """Write ``bridge.json`` and ``bridge.safetensors`` as one folder; an older one is replaced at once.

        Refused: a folder with other files in it.
        """
        check_replaceable(Path(folder), BRIDGE_FILES)
        with replacing_folder(Path(folder)) as temporary:
            write_json(temporary / "bridge.json", self.as_json())
            learned = {} if self.map is None else {f"map.{name}": part for name, part in self.map.tensors().items()}
            others = {"error_weights": self.error_weights, "fitted": self.fitted}
            write_tensors(temporary / "bridge.safetensors", {**learned, **others})

    @classmethod
    def load(cls, folder: str | Path) -> "Bridge":
        """Read a bridge that ``save`` wrote."""
        folder = Path(folder)
        if not (folder / "bridge.json").is_file():
            other = " of queries; IndexMap.load reads the map of stored vectors" * (folder / "index_map.json").is_file()
            raise HoldfastError(f"{folder}: no bridge{other} here (no bridge.json); fit one with holdfast bridge")
        record = read_json(folder / "bridge.json")
        tensors, _ = read_tensors(folder / "bridge.safetensors")
        try:
            kind, dims = record["kind"], tuple(record["dims"])
            learned = {name.removeprefix("map."): part for name, part in tensors.items() if name.startswith("map.")}
            check_tensors(tensors, dims, _FINGERPRINT)
            bridge = cls(
                kind,
                record["options"],
                dims,
                None if kind == NONE else BRIDGES[kind].from_tensors(learned),
                ScoreScale.from_json(record["scale"]),
                tensors["error_weights"],
                read_evidence(record["evidence"]),
                record["models"],
                tensors["fitted"],
            )
            check_record(bridge.kind, bridge.options, bridge.scale, bridge.evidence)
        except (AttributeError, KeyError, TypeError, ValueError, IndexError, ArithmeticError) as error:
            raise HoldfastError(f"{folder}: not a bridge, or a damaged one ({error!r}); fit it again") from error
        return bridge


def _fingerprints(new: Matrix) -> Matrix:
    """Eight numbers for each unit vector, N x 8: its products with random directions, the same in every process."""
    directions = np.random.default_rng(new.shape[1]).standard_normal((new.shape[1], _FINGERPRINT))
    return (new.astype(np.float64) @ directions).astype(np.float32)


def _fit_errors(old: Matrix, errors: NDArray[np.float64]) -> Matrix:
    """Weights and bias of a ridge regression from old vectors to errors; strongly shrunk, because counts are noisy."""
    mean, level = old.mean(axis=0), errors.mean()
    weight = ridge_weights(old - mean, (errors - level)[:, None], 10.0)[:, 0]
    return np.append(weight, level - mean @ weight).astype(np.float32)


def read_evidence(record: Mapping[str, Any]) -> Evidence:
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


def _codes(labels: ArrayLike, count: int) -> NDArray[np.int64]:
    """Class numbers, -1 where a label is unknown: None, "" or NaN, as in a column of a table."""
    check_real(labels, "labels")
    names = [
        None if label in (None, "") or label != label else str(label)
        for label in np.asarray(labels, dtype=object).tolist()
    ]
    if len(names) != count:
        raise HoldfastError(f"{len(names)} labels for {count} pairs; one each is needed")
    numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
    return np.array([-1 if name is None else numbers[name] for name in names])


def _unbridged(given: ArrayLike | None, new: Matrix, old: Matrix) -> Matrix | None:
    """The new items as queries without a bridge, N x d_old; None if there is no such form."""
    if given is None:
        return new if new.shape == old.shape else None
    rows = real_array(given, "unbridged", np.float32)
    if rows.shape != old.shape:
        raise HoldfastError(f"unbridged has shape {tuple(rows.shape)}; old has {tuple(old.shape)}")
    return rows


def _different(*spaces: Matrix) -> NDArray[np.int64]:
    """Row numbers of the items, without those that are copies of an earlier one in all spaces, but for rounding."""
    marks = np.concatenate([_fingerprints(rows) for rows in spaces], axis=1)
    rows = np.arange(len(marks))
    # Only items in one cell of a grid over a few numbers of each space are compared, so that the time grows little
    # faster than their number. Copies that a grid separates are in one cell of another grid, shifted by half a cell.
    axes = [space * _FINGERPRINT + number for number in range(_AXES) for space in range(len(spaces))][:_AXES]
    for shift in itertools.product((0.0, 0.5), repeat=_AXES):
        cells = np.floor(marks[:, axes] / (_CELL * _COPY) + shift).astype(np.int64)
        cell = (cells * _PRIMES).sum(axis=1)  # equal cells have equal numbers, and different ones rarely do
        before = -1
        while before != len(rows):
            before, ahead = len(rows), 1
            rows = rows[np.argsort(cell[rows], kind="stable")]
            while len(these := np.flatnonzero(cell[rows[ahead:]] == cell[rows[:-ahead]])):
                pairs = rows[these], rows[these + ahead]
                equal = (np.abs(marks[pairs[0]] - marks[pairs[1]]) <= _COPY).all(axis=1)
                rows = rows[~np.isin(rows, np.maximum(*pairs)[equal])]
                ahead += 1
            rows = np.sort(rows)
    return rows


def pairs_of(new: ArrayLike, old: ArrayLike) -> tuple[Matrix, Matrix]:
    """Both rows of each pair at length 1; refused if they cannot be fitted on."""
    both = []
    for name, given in (("new", new), ("old", old)):
        rows = real_array(given, name)
        if rows.ndim != 2 or rows.shape[1] == 0:
            raise HoldfastError(
                f"{name} has shape {tuple(rows.shape)}; a bridge is fitted on matrices, one row per item"
            )
        z = float32(rows)
        finite = np.isfinite(z).all(axis=1)
        if not finite.all():
            raise HoldfastError(f"{name}: {int((~finite).sum())} of {len(z)} rows hold NaN or infinity; leave them out")
        empty = row_lengths(z) == 0
        if empty.any():
            raise HoldfastError(f"{name}: {int(empty.sum())} of {len(z)} rows are zero; leave them out")
        both.append(unit(z))
    if len(both[0]) != len(both[1]):
        raise HoldfastError(f"new has {len(both[0])} rows and old {len(both[1])}; row i of both must be the same item")
    if len(both[0]) < FEWEST_PAIRS:
        raise HoldfastError(f"{len(both[0])} pairs are too few for a bridge; at least {FEWEST_PAIRS} are needed")
    return both[0], both[1]
