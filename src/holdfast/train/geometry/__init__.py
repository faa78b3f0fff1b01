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

__all__ = [
    "DSimplex",
    "angle",
    "at_least_float32",
    "cosine_matrix",
    "embed_in_larger_simplex",
    "paired_cosine",
    "unit",
    "unit_of_any_length",
]
