"""How the features of newer models meet vectors that were stored by version 0 and are not touched."""

from dataclasses import dataclass
from pathlib import Path

import torch
from numpy.typing import ArrayLike
from torch import Tensor

from holdfast.backbones import Encoder
from holdfast.errors import HoldfastError
from holdfast.features.compact import compact_basis
from holdfast.geometry import unit

_SAME = 1e-4


@dataclass(frozen=True)
class StoredSpace:
    """dim: numbers of a full feature z. stored: numbers of a stored vector.

    down: dim x stored, what a feature is multiplied by to meet stored vectors; None where they are features themselves.
    up: dim x stored, what a stored vector h is multiplied by to be compared truly, z . (up h) / |up h|; None where the
    store's own cosine of z down and h, times |z down|, is that already.
    """

    dim: int
    stored: int
    down: Tensor | None = None
    up: Tensor | None = None

    def query(self, z: Tensor) -> Tensor:
        """A full unit feature (dim) as it is put to the store, with the length that belongs to the score."""
        return z if self.down is None else z @ self.down

    def feature(self, stored: Tensor) -> Tensor:
        """A stored vector (or N of them) as a full unit feature."""
        lift = self.up if self.up is not None else self.down
        return unit(stored) if lift is None else unit(unit(stored) @ lift.T)

    def given(self, vector: ArrayLike) -> Tensor:
        """A query that a user gave: a full feature, or a vector as the store holds them."""
        found = torch.as_tensor(vector, dtype=torch.float32).flatten()
        if len(found) not in (self.dim, self.stored):
            also = "" if self.dim == self.stored else f", or stored ones of {self.stored}"
            raise HoldfastError(f"query: {len(found)} numbers; features of {self.dim}{also} can be asked")
        if not bool(found.isfinite().all()) or not bool(found.any()):
            raise HoldfastError("query: zero, or not finite")
        return unit(found) if len(found) == self.dim else self.feature(found)


def stored_space(encoder: Encoder, stored: int, folder: Path) -> StoredSpace:
    """The space of vectors of ``stored`` numbers by ``encoder``, version 0; refused where it did not make them.

    An adopted model's vectors are its input; any other model's are its features, full or compact.
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
    basis = compact_basis(encoder)
    if stored == encoder.dim:
        return StoredSpace(encoder.dim, stored)
    if basis is not None and stored == basis.shape[1]:
        return StoredSpace(encoder.dim, stored, down=basis)
    compact = "" if basis is None else f", compact ones {basis.shape[1]}"
    raise HoldfastError(f"{folder}: its features have {encoder.dim} numbers{compact}, but the stored ones {stored}")


def _is_isometry(weight: Tensor) -> bool:
    gram = weight.T @ weight
    return bool((gram - torch.eye(len(gram))).abs().max() < _SAME)
