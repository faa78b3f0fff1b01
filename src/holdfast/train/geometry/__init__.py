"""Pure functions of tensors: the d-Simplex, the sphere."""

from holdfast.train.geometry.simplex import DSimplex, embed_in_larger_simplex
from holdfast.train.geometry.sphere import (
    angle,
    at_least_float32,
    cosine_matrix,
    paired_cosine,
    unit,
    unit_of_any_length,
)
from holdfast.train.geometry.turning import Turn, TurnedSimplex, nearest_map, orthonormal, turn_towards

__all__ = [
    "DSimplex",
    "Turn",
    "TurnedSimplex",
    "angle",
    "at_least_float32",
    "cosine_matrix",
    "embed_in_larger_simplex",
    "nearest_map",
    "orthonormal",
    "paired_cosine",
    "turn_towards",
    "unit",
    "unit_of_any_length",
]
