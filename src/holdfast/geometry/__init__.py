"""Pure functions of tensors: the d-Simplex, the sphere, exact nearest neighbours."""

from holdfast.geometry.neighbours import Neighbours, merge_neighbours, nearest
from holdfast.geometry.simplex import DSimplex, embed_in_larger_simplex
from holdfast.geometry.sphere import angle, at_least_float32, cosine_matrix, paired_cosine, unit, unit_of_any_length

__all__ = [
    "DSimplex",
    "Neighbours",
    "angle",
    "at_least_float32",
    "cosine_matrix",
    "embed_in_larger_simplex",
    "merge_neighbours",
    "nearest",
    "paired_cosine",
    "unit",
    "unit_of_any_length",
]
