"""How features of models and the vectors of an attached store are compared."""

from dataclasses import dataclass
from pathlib import Path

import torch
from numpy.typing import ArrayLike
from torch import Tensor

from holdfast.core.errors import HoldfastError
from holdfast.core.real_arrays import check_real
from holdfast.train.encoders import Encoder
from holdfast.train.encoders.compact import compact_basis
from holdfast.train.geometry import unit, unit_of_any_length

_ISOMETRY_TOLERANCE = 1e-4


@dataclass(frozen=True)
class StoredSpace:
    """How full features z and stored vectors h are compared.

    dim: numbers of z.
    stored: numbers of h.
    down: dim x stored; z @ down is the query to the store. None if stored vectors are full features.
    up: dim x stored; the true cosine is z . (up h) / |up h|. None if it equals the store's cosine times |z @ down|.
    """

    dim: int
    stored: int
    down: Tensor | None = None
    up: Tensor | None = None

    def query(self, z: Tensor) -> Tensor:
        """A full unit feature (dim) as a query to the store; its length is a factor of the score."""
        return z if self.down is None else z @ self.down

    def feature(self, stored: Tensor) -> Tensor:
        """A stored vector (or N of them) as full unit features."""
        lift = self.up if self.up is not None else self.down
        return unit(stored) if lift is None else unit(unit(stored) @ lift.T)

    def plain_query(self, features: Tensor) -> Tensor:
        """Full unit features (N x dim) as queries to the store without a bridge, of length at most 1."""
        return unit(self.query(features)) if self.up is not None else self.query(features)

    def given(self, vector: Tensor) -> Tensor:
        """The full feature of a user's query: a full feature, or a vector as the store holds them."""
        if len(vector) not in (self.dim, self.stored):
            also = "" if self.dim == self.stored else f", or stored ones of {self.stored}"
            raise HoldfastError(f"query: {len(vector)} numbers; expected features of {self.dim}{also}")
        return unit(vector) if len(vector) == self.dim else self.feature(vector)


def checked_vector(given: ArrayLike) -> Tensor:
    """A user's query as a unit vector, 1-D; refused if it is zero or not finite."""
    check_real(given, "query")
    try:
        found = torch.as_tensor(given, dtype=torch.float32).flatten()
    except (TypeError, ValueError, RuntimeError):
        raise HoldfastError("query: a vector is a list of numbers") from None
    if not bool(found.isfinite().all()) or not bool(found.any()):
        raise HoldfastError("query: zero, or not finite")
    return unit_of_any_length(found)


def stored_space(encoder: Encoder, stored: int, folder: Path) -> StoredSpace:
    """How features of ``encoder``, version 0, and vectors of ``stored`` numbers are compared; refused if sizes differ.

    Stored vectors are the input of an adopted model, and the features, full or compact, of any other model.
    """
    if "adopted" in encoder.info:
        if stored != encoder.feature_dim:
            raise HoldfastError(
                f"{folder}: adopted from vectors of {encoder.feature_dim} numbers, but the stored ones have {stored}"
            )
        if encoder.projection is None:
            return StoredSpace(encoder.dim, stored)
        weight = encoder.projection.weight.detach().float()
        if encoder.dim >= stored and _is_isometry(weight):
            return StoredSpace(encoder.dim, stored, down=weight)
        return StoredSpace(encoder.dim, stored, down=weight, up=weight)
    basis, dim = compact_basis(encoder), encoder.embedding_dim
    if stored == dim:
        return StoredSpace(dim, stored)
    if basis is not None and stored == basis.shape[1]:
        return StoredSpace(dim, stored, down=basis)
    compact = "" if basis is None else f", compact ones {basis.shape[1]}"
    raise HoldfastError(f"{folder}: its features have {dim} numbers{compact}, but the stored ones {stored}")


def _is_isometry(weight: Tensor) -> bool:
    gram = weight.T @ weight
    return bool((gram - torch.eye(len(gram))).abs().max() < _ISOMETRY_TOLERANCE)
