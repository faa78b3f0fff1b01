"""How features of models and the vectors of an attached store are compared."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from holdfast.core.errors import HoldfastError
from holdfast.core.real_arrays import real_array
from holdfast.gallery.gallery_versions import VersionCandidate
from holdfast.vectors.lengths import unit, unit_of_any_length


@dataclass(frozen=True)
class StoredSpace:
    """How full features z and stored vectors h are compared.

    dim: numbers of z.
    stored: numbers of h.
    down: dim x stored with orthonormal columns; z @ down is the query to the store, and its length is a factor of the
        score. None if stored vectors are full features.
    """

    dim: int
    stored: int
    down: np.ndarray | None = None

    def query(self, z: np.ndarray) -> np.ndarray:
        """Full unit features (dim, or N x dim) as queries to the store."""
        return z if self.down is None else z @ self.down

    def feature(self, stored: np.ndarray) -> np.ndarray:
        """A stored vector (or N of them) as full unit features."""
        return unit(stored) if self.down is None else unit(unit(stored) @ self.down.T)

    def given(self, vector: np.ndarray) -> np.ndarray:
        """The full feature of a user's query: a full feature, or a vector as the store holds them."""
        if len(vector) not in (self.dim, self.stored):
            also = "" if self.dim == self.stored else f", or stored ones of {self.stored}"
            raise HoldfastError(f"query: {len(vector)} numbers; expected features of {self.dim}{also}")
        return unit(vector) if len(vector) == self.dim else self.feature(vector)


def checked_vector(given: ArrayLike) -> np.ndarray:
    """A user's query as a unit vector, 1-D; refused if it is zero or not finite."""
    try:
        with np.errstate(over="ignore"):  # infinite numbers are refused below
            vector = real_array(given, "query").astype(np.float32).flatten()
    except (TypeError, ValueError):
        raise HoldfastError("query: a vector is a list of numbers") from None
    if not np.isfinite(vector).all() or not vector.any():
        raise HoldfastError("query: zero, or not finite")
    return unit_of_any_length(vector)


def stored_space(candidate: VersionCandidate, stored: int) -> StoredSpace:
    """How features of version 0 and vectors of ``stored`` numbers are compared; refused if their sizes differ.

    The store holds the full or the compact features of the model.
    """
    basis, dim = candidate.basis, candidate.dim
    if stored == dim:
        return StoredSpace(dim, stored)
    if basis is not None and stored == basis.shape[1]:
        return StoredSpace(dim, stored, basis)
    compact = "" if basis is None else f", compact ones {basis.shape[1]}"
    raise HoldfastError(f"{candidate.source}: its features have {dim} numbers{compact}, but the stored ones {stored}")
