"""The other direction: a map of an old model's stored vectors into a new model's space.

New queries then search a converted copy of the index as they are. Between unrelated models this finds more than a map
of the queries does (``bench/index_map.py``): the query keeps all that the new model knows of it. The copy is marked as
derived; no stored vector is changed.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from holdfast.bridges.bridge import pairs_of
from holdfast.bridges.maps import LinearMap, Matrix, mean_residuals, ridge_by_leave_one_out
from holdfast.bridges.scores import ScoreScale, measure_scale
from holdfast.bridges.trial import FIRST, overlap, scores_of_items
from holdfast.core.errors import HoldfastError
from holdfast.core.real_arrays import real_array
from holdfast.core.storage import (
    check_replaceable,
    read_json,
    read_tensors,
    replacing_folder,
    write_json,
    write_tensors,
)
from holdfast.core.wording import per_cent
from holdfast.vectors.lengths import row_lengths, unit, unit_of_any_length
from holdfast.vectors.neighbours import best_columns

INDEX_MAP_FILES = ("index_map.json", "index_map.safetensors")
MEASURED = 1000
"""Pairs that ask as queries when agreement is measured."""
NEIGHBOURS, TEMPERATURE = 10, 0.05
"""Of the correction by near pairs: as for query maps of kind ``local``."""
_LARGEST, _AT_ONCE = 1e9, 1024


@dataclass(frozen=True, eq=False, repr=False)
class IndexMap:
    """A map of stored vectors into a new model's space; made by ``IndexMap.fit`` or ``IndexMap.load``.

    dims: size of the old and of the new space.
    ridge: strength of the penalty of the linear map, chosen by leave-one-out.
    near: (old vectors of the pairs, what the linear map leaves over of each), if adding the mean residual of the ten
        nearest pairs agrees better with a re-embedding by leave-one-out; else None. A pair's own stored vector is then
        converted to nearly the vector that the new model gave it.
    scale: puts cosines with converted vectors on the scale of cosines with the new model's own vectors, so that a
        gallery that holds both can rank their hits together.
    pairs: items, queries or other things that the map was fitted on.
    agreement: overlap@10 with the hits of a full re-embedding, by leave-one-out over the pairs: each pair is searched
        as a map would convert it that was fitted on all others. NaN with fewer than 20 pairs.
    models: what the two spaces are called.

    >>> import numpy as np
    >>> from holdfast.bridges import IndexMap
    >>> rng = np.random.default_rng(0)
    >>> things = rng.standard_normal((200, 6))  # the same things, embedded by two models
    >>> old, new = things @ rng.standard_normal((6, 8)), things @ rng.standard_normal((6, 10))
    >>> index_map = IndexMap.fit(new=new, old=old)
    >>> index_map.dims, index_map.agreement > 0.8
    ((8, 10), True)
    >>> index_map.transform(old[:3]).shape  # a converted copy, unit rows in the new space
    (3, 10)
    """

    dims: tuple[int, int]
    ridge: float
    map: LinearMap
    scale: ScoreScale
    pairs: int
    agreement: float
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
        new_rows, old_rows = pairs_of(new, old)
        fitted, ridge, left_out = ridge_by_leave_one_out(old_rows, new_rows)
        converted, near, agreement = unit(left_out), None, float("nan")
        queries = new_rows[:MEASURED]
        if len(new_rows) >= 2 * FIRST:
            residuals = new_rows - unit(fitted(old_rows))
            corrected = unit(converted + _by_other_pairs(old_rows, residuals))
            wanted, *hits = (
                best_columns(scores_of_items(queries, items), FIRST) for items in (new_rows, converted, corrected)
            )
            agreement, better = (float(overlap(rows, wanted).mean()) for rows in hits)
            if better > agreement:
                converted, near, agreement = corrected, (old_rows, residuals), better
        scale = measure_scale(queries, converted, new_rows, pairs=len(new_rows))
        dims = (old_rows.shape[1], new_rows.shape[1])
        return cls(dims, ridge, fitted, scale, len(new_rows), agreement, dict(models or {}), near)

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
            f"Map of stored vectors from {self.dims[0]:,} to {self.dims[1]:,} numbers, ridge {self.ridge:g}, fitted on "
            f"{self.pairs:,} pairs; its agreement with a re-embedding (overlap@10, leave-one-out) is "
            f"{per_cent(self.agreement, 1)} %"
        )

    def as_json(self) -> dict[str, Any]:
        """Everything but the map, as plain types. ``derived`` marks what is converted by it."""
        return {
            "format": 1,
            "side": "index",
            "derived": True,
            "dims": list(self.dims),
            "ridge": self.ridge,
            "scale": self.scale.as_json(),
            "pairs": self.pairs,
            "agreement": self.agreement,
            "models": self.models,
        }

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
            old_dim, new_dim = (int(size) for size in record["dims"])
            pairs = int(record["pairs"])
            shapes = {"weight": (old_dim, new_dim), "bias": (new_dim,)}
            if "anchors" in tensors:
                shapes |= {"anchors": (pairs, old_dim), "residuals": (pairs, new_dim)}
            if {name: part.shape for name, part in tensors.items()} != shapes or pairs < NEIGHBOURS:
                raise ValueError(f"its tensors do not fit its sizes {record['dims']}")
            if any(part.dtype != np.float32 or not np.abs(part).max() <= _LARGEST for part in tensors.values()):
                raise ValueError("numbers that no fit gives")
            scale = ScoreScale.from_json(record["scale"])
            if not (1 / _LARGEST <= scale.slope <= _LARGEST and abs(scale.offset) <= _LARGEST):
                raise ValueError(f"scores of slope {scale.slope} and offset {scale.offset}")
            agreement = float("nan") if record["agreement"] is None else float(record["agreement"])
            return cls(
                (old_dim, new_dim),
                float(record["ridge"]),
                LinearMap(tensors["weight"], tensors["bias"]),
                scale,
                pairs,
                agreement,
                {str(which): str(name) for which, name in record["models"].items()},
                (tensors["anchors"], tensors["residuals"]) if "anchors" in tensors else None,
            )
        except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
            raise HoldfastError(
                f"{folder}: not a map of an index, or a damaged one ({error!r}); fit it again"
            ) from error


def _by_other_pairs(old: Matrix, residuals: Matrix) -> Matrix:
    """For each pair the mean residual of the pairs nearest to it, itself left out."""
    parts = []
    for start in range(0, len(old), _AT_ONCE):
        cosines = old[start : start + _AT_ONCE] @ old.T
        rows = np.arange(len(cosines))
        cosines[rows, start + rows] = -np.inf
        parts.append(mean_residuals(cosines, residuals, NEIGHBOURS, TEMPERATURE))
    return np.concatenate(parts)
