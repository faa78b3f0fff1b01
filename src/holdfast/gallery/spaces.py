"""Where vectors lie: full features, their compact form by version, and the way from one version to another."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from holdfast.errors import HoldfastError
from holdfast.features.compact import carried_query, compacted
from holdfast.gallery.versions import Version

OUTSIDE = 1e-3
"""How much of a full feature's length may lie outside its model's span: rounding leaves some 1e-7."""


def stored_form(version: Version, basis: Callable[[], Tensor | None], given: ArrayLike, what: str) -> np.ndarray:
    """One vector of a version, full or compact, of any length, as it is stored: unit, float32.

    A full feature that its model cannot have made is refused: its compact form would be another vector.
    """
    try:
        vector = np.asarray(given, dtype=np.float32)
    except (TypeError, ValueError):
        raise HoldfastError(f"{what}: a vector is a list of numbers") from None
    if vector.ndim != 1 or vector.size not in (version.dim, version.stored_dim):
        sizes = " or ".join(str(size) for size in sorted({version.dim, version.stored_dim}))
        shape = " x ".join(str(side) for side in vector.shape) or "one number"
        raise HoldfastError(f"{what}: {shape}, but a vector of version {version.number} has {sizes} numbers")
    if not np.isfinite(vector).all():
        raise HoldfastError(f"{what}: NaN or infinity in the vector")
    length = float(np.linalg.norm(vector.astype(np.float64)))
    if length < 1e-30:
        raise HoldfastError(f"{what}: a zero vector has no direction")
    vector = (vector / length).astype(np.float32)
    if vector.size == version.stored_dim:
        return vector
    own = basis()
    assert own is not None
    return unit_row(compacted(torch.from_numpy(vector)[None], own)[0].numpy(), what, version.number)


def unit_row(row: np.ndarray, what: str, number: int) -> np.ndarray:
    """The compact form of a unit feature (1-D), made unit again where rounding left it a little off."""
    length = float(np.linalg.norm(row))
    if not np.isfinite(length):
        raise HoldfastError(f"{what}: version {number} gives NaN or infinity")
    if length < 1e-6:
        raise HoldfastError(f"{what}: version {number} gives a zero feature, which has no direction")
    if abs(length - 1) > OUTSIDE:
        outside = f"only {length:.3f} of its length lies where features of version {number} lie"
        raise HoldfastError(f"{what}: {outside}; is the vector another model's?")
    return row / np.float32(length)


class Carriage:
    """Carries stored vectors of one version to where another version's lie; each small matrix is made once."""

    def __init__(self, basis_of: Callable[[int], Tensor | None]) -> None:
        self._basis_of = basis_of
        self._matrices: dict[tuple[int, int], np.ndarray] = {}

    def carry(self, vectors: np.ndarray, source: Version, target: Version) -> np.ndarray:
        """N x stored_dim of ``source`` -> N x stored_dim of ``target``; the length, at most 1, belongs to the score."""
        if source.number == target.number:
            return vectors
        pair = (source.number, target.number)
        if pair not in self._matrices:
            own, other = self._basis_of(source.number), self._basis_of(target.number)
            identity = torch.eye(source.stored_dim)
            self._matrices[pair] = carried_query(identity, own, other).contiguous().numpy()
        product: Any = vectors @ self._matrices[pair]
        return np.ascontiguousarray(product, dtype=np.float32)
