"""Queries carried into the space of old vectors by a function that the caller gives."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from holdfast.core.errors import HoldfastError
from holdfast.core.real_arrays import real_array
from holdfast.vectors.feature_set import FeatureSet
from holdfast.vectors.lengths import unit
from holdfast.vectors.search import VectorProblems, unit_blocks

QueryBridge = Callable[[np.ndarray], ArrayLike]
"""Takes unit queries of a new model, Q x d_new (float32), and returns them in an old model's space, Q x d_old."""


def bridged_queries(bridge: QueryBridge, queries: np.ndarray, new: FeatureSet, stored: FeatureSet) -> np.ndarray:
    """The queries in the space of ``stored``: unit rows; a query of zeros stays zero.

    bridge: any function on queries. Where it has attributes ``dims`` (sizes of the two spaces) or ``models`` (their
        names, "new" and "old"), they must fit the files.
    queries: unit rows of ``new``.
    new: where the queries come from; stored: the vectors that are searched. For messages.
    """
    _check_sizes(getattr(bridge, "dims", None), new, stored)
    _check_models(getattr(bridge, "models", None) or {}, new, stored)
    rows = real_array(bridge(queries), "the bridge's queries", np.float32)
    if rows.shape != (len(queries), stored.dim):
        raise HoldfastError(
            f"the bridge turned {queries.shape} queries into {rows.shape}; "
            f"{stored.name} has vectors of {stored.dim} numbers"
        )
    if not np.isfinite(rows).all():
        raise HoldfastError(f"the bridge gives NaN or infinity for queries of {new.name}; fit it again")
    return unit(rows) * queries.any(1, keepdims=True)


def fitted_notes(
    bridge: QueryBridge | None, queries: np.ndarray, new: FeatureSet, gallery: FeatureSet | None
) -> list[str]:
    """Warnings if the bridge was fitted on what it is judged by. It must say so itself (``was_fitted_on``).

    queries: unit rows of ``new``.
    gallery: items of the new model that decide which hits are right; None if labels or relevance do.
    """
    was_fitted_on = getattr(bridge, "was_fitted_on", None)
    if was_fitted_on is None:
        return []
    found = [(int(was_fitted_on(queries).sum()), len(queries), "queries", new)]
    if gallery is not None:
        blocks = unit_blocks(gallery, VectorProblems(gallery.name, len(gallery)), lambda stage, done, total: None)
        found.append((sum(int(was_fitted_on(rows).sum()) for _, rows in blocks), len(gallery), "items", gallery))
    return [
        f"{part.name}: the bridge was fitted on {fitted:,} of these {count:,} {what}; their scores are too high"
        for fitted, count, what, part in found
        if fitted
    ]


def bridge_record(bridge: QueryBridge | None) -> dict[str, Any] | None:
    """The bridge's own description (``as_json``); None if it has none."""
    describe = getattr(bridge, "as_json", None)
    return None if describe is None else describe()


def _check_sizes(dims: tuple[int, int] | None, new: FeatureSet, stored: FeatureSet) -> None:
    if dims is None:
        return
    for features, size in ((new, dims[0]), (stored, dims[1])):
        if features.dim != size:
            raise HoldfastError(
                f"{features.name}: {features.dim} numbers per vector, but the bridge maps queries of {dims[0]} numbers "
                f"to vectors of {dims[1]}; it belongs to other models"
            )


def _check_models(models: dict[str, str], new: FeatureSet, stored: FeatureSet) -> None:
    for which, features in (("new", new), ("old", stored)):
        wanted = models.get(which)
        if features.model is not None and wanted is not None and features.model != wanted:
            raise HoldfastError(
                f"{features.name}: embedded by model {features.model[:16]}, but the bridge's {which} model is "
                f"{wanted[:16]}; it belongs to other models"
            )
