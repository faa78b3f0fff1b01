"""The other direction: a map of an old model's stored vectors into a new model's space.

New queries then search a converted copy of the index as they are. Between unrelated models this finds more than a map
of the queries does (``bench/index_map.py``): the query keeps all that the new model knows of it. The copy is marked as
derived; no stored vector is changed.
"""

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from holdfast.bridges.bridge import pairs_of, read_evidence
from holdfast.bridges.choice import BEYOND_CHANCE, Candidate, Evidence, standard_error
from holdfast.bridges.maps import LinearMap, Matrix, mean_residuals, ridge_by_leave_one_out
from holdfast.bridges.saved_numbers import LARGEST, check_record
from holdfast.bridges.score_scale import ScoreScale, measure_scale
from holdfast.bridges.trial import FIRST, overlap, overlap_with_others, scores_of_items
from holdfast.core.errors import HoldfastError
from holdfast.core.real_arrays import real_array
from holdfast.core.storage import (
    check_replaceable,
    read_json,
    read_tensors,
    replacing_folder,
    without_nan,
    write_json,
    write_tensors,
)
from holdfast.core.wording import per_cent
from holdfast.vectors.feature_set import FeatureSet, feature_set
from holdfast.vectors.lengths import row_lengths, unit, unit_of_any_length
from holdfast.vectors.neighbours import best_columns
from holdfast.vectors.search import VectorProblems, unit_blocks

INDEX_MAP_FILES = ("index_map.json", "index_map.safetensors")
MEASURED = 1000
"""Pairs that ask as queries when agreement is measured."""
NEIGHBOURS, TEMPERATURE = 10, 0.05
"""Of the correction by near pairs: as for query maps of kind ``local``."""
_AT_ONCE = 1024


@dataclass(frozen=True, eq=False, repr=False)
class IndexMap:
    """A map of stored vectors into a new model's space; made by ``IndexMap.fit`` or ``IndexMap.load``.

    dims: size of the old and of the new space.
    options: the ridge, the strength of the penalty of the linear map, chosen by leave-one-out.
    scale: puts cosines with converted vectors on the scale of cosines with the new model's own vectors, so that a
        gallery that holds both can rank their hits together.
    evidence: overlap@10 with the hits of a full re-embedding, by leave-one-out over the pairs: each pair is searched as
        a map would convert it that was fitted on all others.
    models: what the two spaces are called.
    near: (old vectors of the pairs, what the linear map leaves over of each), if adding the mean residual of the ten
        nearest pairs agrees better with a re-embedding by leave-one-out; else None. A pair's own stored vector is then
        converted to nearly the vector that the new model gave it.

    >>> import numpy as np
    >>> from holdfast.bridges import IndexMap
    >>> rng = np.random.default_rng(0)
    >>> things = rng.standard_normal((200, 6))  # the same things, embedded by two models
    >>> old, new = things @ rng.standard_normal((6, 8)), things @ rng.standard_normal((6, 10))
    >>> index_map = IndexMap.fit(new=new, old=old)
    >>> index_map.dims, index_map.evidence.chosen.value > 0.8
    ((8, 10), True)
    >>> index_map.transform(old[:3]).shape  # a converted copy, unit rows in the new space
    (3, 10)
    """

    kind: ClassVar[str] = "index"

    dims: tuple[int, int]
    options: dict[str, Any]
    map: LinearMap
    scale: ScoreScale
    evidence: Evidence
    models: dict[str, str] = field(default_factory=dict)
    near: tuple[Matrix, Matrix] | None = None

    @classmethod
    def fit(cls, *, new: ArrayLike, old: ArrayLike, models: Mapping[str, str] | None = None) -> "IndexMap":
        """Fit a map from the old space to the new one.

        new: N x d_new and old: N x d_old; row i of both is the same thing: a stored item, a query of a log, or any text
            or image that both models embedded. Rows of any length.
        models: names of the two models, {"new": ..., "old": ...}.
        Refused: fewer than 10 pairs, NaN or zero rows, different numbers of rows.
        """
        started, (new_rows, old_rows) = time.monotonic(), pairs_of(new, old)
        fitted, ridge, left_out = ridge_by_leave_one_out(old_rows, new_rows)
        converted, near = unit(left_out), None
        queries, first = new_rows[:MEASURED], min(FIRST, len(new_rows) // 2)
        residuals = new_rows - unit(fitted(old_rows))
        corrected = unit(converted + _by_other_pairs(old_rows, residuals))
        wanted, hits, corrected_hits = (
            best_columns(scores_of_items(queries, items), first) for items in (new_rows, converted, corrected)
        )
        is_better = overlap(corrected_hits, wanted).mean() > overlap(hits, wanted).mean()
        if is_better and len(new_rows) >= 2 * FIRST:
            converted, hits, near = corrected, corrected_hits, (old_rows, residuals)
        values, options = overlap(hits, wanted), {"ridge": ridge}
        gains = values - overlap_with_others(hits, wanted)
        evidence = Evidence(
            measure="overlap@10",
            chance=first / (len(new_rows) - 1),
            pairs=len(new_rows),
            held_out=len(queries),
            searched=len(new_rows),
            candidates=(Candidate(cls.kind, options, float(values.mean()), standard_error(values), scaled=True),),
            seconds=time.monotonic() - started,
            beyond_chance=float(gains.mean()) / max(standard_error(gains), 1e-6),
        )
        scale = measure_scale(queries, converted, new_rows, pairs=len(new_rows))
        dims = (old_rows.shape[1], new_rows.shape[1])
        return cls(dims, options, fitted, scale, evidence, dict(models or {}), near)

    @property
    def agrees_beyond_chance(self) -> bool:
        """As of ``Bridge``: whether its hits agree with the new model's more than chance would."""
        return self.evidence.beyond_chance > BEYOND_CHANCE

    def transform(self, stored: ArrayLike) -> Matrix:
        """Stored vectors (N x d_old, of any length) as unit vectors in the new space; zeros stay zero.

        ``index_map(stored)`` is the same.
        """
        z = real_array(stored, "stored vectors", np.float32)
        if z.ndim != 2 or z.shape[1] != self.dims[0]:
            raise HoldfastError(f"stored vectors have shape {tuple(z.shape)}; this map takes N x {self.dims[0]}")
        z = unit_of_any_length(z)
        finite = np.isfinite(z).all(axis=1)
        if not finite.all():
            raise HoldfastError(
                f"{int((~finite).sum())} of {len(z)} stored vectors hold NaN or infinity; leave them out"
            )
        converted = unit(self.map(z))
        if self.near is not None:
            anchors, residuals = self.near
            for start in range(0, len(z), _AT_ONCE):
                some = slice(start, start + _AT_ONCE)
                converted[some] += mean_residuals(z[some] @ anchors.T, residuals, NEIGHBOURS, TEMPERATURE)
            converted = unit(converted)
        return converted * (row_lengths(z) > 0)[:, None]

    def __call__(self, stored: ArrayLike) -> Matrix:
        return self.transform(stored)

    def __repr__(self) -> str:
        return (
            f"Map of stored vectors from {self.dims[0]:,} to {self.dims[1]:,} numbers, fitted on "
            f"{self.evidence.pairs:,} pairs, not judged: its overlap@10 (leave-one-out) is "
            f"{per_cent(self.evidence.chosen.value, 1)} %, by chance {per_cent(self.evidence.chance, 1)} %"
        )

    def as_json(self) -> dict[str, Any]:
        """Everything but the map, as plain types; NaN is None. ``derived`` marks what is converted by it."""
        record: dict[str, Any] = without_nan(
            {
                "format": 1,
                "side": "index",
                "derived": True,
                "kind": self.kind,
                "options": self.options,
                "dims": list(self.dims),
                "scale": self.scale.as_json(),
                "evidence": asdict(self.evidence),
                "agrees_beyond_chance": self.agrees_beyond_chance,
                "models": self.models,
            }
        )
        return record

    def save(self, folder: str | Path) -> None:
        """Write ``index_map.json`` and ``index_map.safetensors`` as one folder; an older one is replaced at once."""
        check_replaceable(Path(folder), INDEX_MAP_FILES)
        with replacing_folder(Path(folder)) as temporary:
            write_json(temporary / INDEX_MAP_FILES[0], self.as_json())
            near = {} if self.near is None else dict(zip(("anchors", "residuals"), self.near, strict=True))
            write_tensors(temporary / INDEX_MAP_FILES[1], {**self.map.tensors(), **near})

    @classmethod
    def load(cls, folder: str | Path) -> "IndexMap":
        """Read a map that ``save`` wrote."""
        folder = Path(folder)
        if not (folder / INDEX_MAP_FILES[0]).is_file():
            raise HoldfastError(f"{folder}: no map of an index here (no {INDEX_MAP_FILES[0]})")
        record = read_json(folder / INDEX_MAP_FILES[0])
        tensors, _ = read_tensors(folder / INDEX_MAP_FILES[1])
        try:
            dims, evidence = tuple(record["dims"]), read_evidence(record["evidence"])
            scale, old_dim, new_dim = ScoreScale.from_json(record["scale"]), *dims
            shapes = {"weight": dims, "bias": (new_dim,)}
            if "anchors" in tensors:
                shapes |= {"anchors": (evidence.pairs, old_dim), "residuals": (evidence.pairs, new_dim)}
            if {name: part.shape for name, part in tensors.items()} != shapes or evidence.pairs < NEIGHBOURS:
                raise ValueError(f"its tensors do not fit its sizes {dims}")
            if any(part.dtype != np.float32 or not np.abs(part).max() <= LARGEST for part in tensors.values()):
                raise ValueError("numbers that no fit gives")
            check_record(cls.kind, record["options"], scale, evidence)
            return cls(
                dims,
                record["options"],
                LinearMap(tensors["weight"], tensors["bias"]),
                scale,
                evidence,
                {str(which): str(name) for which, name in record["models"].items()},
                (tensors["anchors"], tensors["residuals"]) if "anchors" in tensors else None,
            )
        except (AttributeError, KeyError, TypeError, ValueError, IndexError, ArithmeticError) as error:
            raise HoldfastError(
                f"{folder}: not a map of an index, or a damaged one ({error!r}); fit it again"
            ) from error


def convert_index(index_map: IndexMap, stored: FeatureSet) -> FeatureSet:
    """A copy of an index in the new model's space, with its ids and labels; its ``model`` says that it is derived.

    Read in blocks; the copy is in memory. Vectors that cannot be compared (zero, not finite) are refused.
    """
    if stored.dim != index_map.dims[0]:
        raise HoldfastError(
            f"{stored.name}: {stored.dim} numbers per vector, but the map takes {index_map.dims[0]}; it belongs to "
            "another model"
        )
    old, new = (index_map.models.get(which, f"the {which} model") for which in ("old", "new"))
    if stored.model is not None and index_map.models.get("old", stored.model) != stored.model:
        raise HoldfastError(f"{stored.name}: embedded by model {stored.model[:16]}, but the map is of {old[:16]}")
    problems, rows = VectorProblems(stored.name, len(stored)), np.zeros((len(stored), index_map.dims[1]), np.float32)
    for numbers, block in unit_blocks(stored, problems, lambda stage, done, total: None):
        rows[numbers] = index_map(block)
    problems.refuse()
    copy = feature_set(f"{stored.name} (converted)", rows, stored.labels, stored.ids)
    return replace(copy, model=f"derived: vectors of {old} converted to the space of {new}")


def _by_other_pairs(old: Matrix, residuals: Matrix) -> Matrix:
    """For each pair the mean residual of the pairs nearest to it, itself left out."""
    parts = []
    for start in range(0, len(old), _AT_ONCE):
        cosines = old[start : start + _AT_ONCE] @ old.T
        rows = np.arange(len(cosines))
        cosines[rows, start + rows] = -np.inf
        parts.append(mean_residuals(cosines, residuals, NEIGHBOURS, TEMPERATURE))
    return np.concatenate(parts)
