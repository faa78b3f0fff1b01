"""Files given in each other's place: they would give numbers, and often a "yes", about another question."""

import numpy as np

from holdfast.core.errors import HoldfastError
from holdfast.vectors import nearest
from holdfast.vectors.feature_set import FeatureSet
from holdfast.vectors.lengths import unit
from holdfast.vectors.search import float32

_QUERIES, _ROWS = 200, 5000
"""So many queries are compared with so many stored vectors, evenly taken from all."""
_STRANGE, _OWN = 0.3, 0.5
"""How near queries of another model and of the stored vectors' own model come: measured 0.17 and 0.79 for two relatives
(MiniLM with 3 and 6 layers, CACM), about 0 and 0.7 to 1 for unrelated models."""
_LEAST_SPREAD = 0.05  # of cosines: in spaces of few numbers, vectors of no model are as near


def refuse_equal_queries(old: FeatureSet, new: FeatureSet) -> None:
    """Refuse one set of vectors given as the queries of both models: it never loses anything."""
    if old.dim != new.dim or len(old) != len(new):
        return
    step = 4096
    for start in range(0, len(old), step):
        stop = min(start + step, len(old))
        if not np.array_equal(old.rows.block(start, stop), new.rows.block(start, stop), equal_nan=True):
            return
    raise HoldfastError(
        f"{old.name}, {new.name}: the old and the new queries are the same vectors; give those of the old model and "
        "those of the new one"
    )


def refuse_exchanged_queries(gallery: FeatureSet, old: FeatureSet, new: FeatureSet) -> None:
    """Refuse old queries that do not belong to the old gallery while the new ones do.

    Two models of one size are easily exchanged. A query of the model that embedded the gallery lies about as near to
    some stored vector as stored vectors lie to each other; a query of another model does not.
    """
    if not old.dim == new.dim == gallery.dim:
        return
    stored = unit(_some(gallery, _ROWS))
    if len(stored) < 2:
        return
    among_stored = _median_best(stored[:_QUERIES], stored, 2)
    of_old, of_new = (_nearness(unit(_some(queries, _QUERIES)), stored, among_stored) for queries in (old, new))
    if of_old < _STRANGE and of_new > _OWN:
        raise HoldfastError(
            f"{old.name}: the old queries do not lie in the space of {gallery.name}, and the new ones "
            f"({new.name}) do; were the files of the two models exchanged?"
        )


def _some(features: FeatureSet, most: int) -> np.ndarray:
    """Up to ``most`` usable vectors, evenly taken."""
    rows = np.unique(np.linspace(0, len(features) - 1, min(most, len(features))).round().astype(np.int64))
    vectors = float32(features.rows.take(rows))
    return np.asarray(vectors[np.isfinite(vectors).all(1) & vectors.any(1)])


def _nearness(queries: np.ndarray, stored: np.ndarray, among_stored: float) -> float:
    """The median best cosine of the queries, on a scale from 0 (their numbers in another order) to 1 (stored vectors).

    NaN without usable vectors, and where the two ends do not differ.
    """
    if not len(queries):
        return float("nan")
    strange = queries[:, np.random.default_rng(0).permutation(queries.shape[1])]
    best, by_chance = (_median_best(rows, stored, 1) for rows in (queries, strange))
    spread = among_stored - by_chance
    return (best - by_chance) / spread if spread > _LEAST_SPREAD else float("nan")


def _median_best(queries: np.ndarray, stored: np.ndarray, k: int) -> float:
    return float(np.median(nearest(queries, stored, k).scores[:, -1]))
