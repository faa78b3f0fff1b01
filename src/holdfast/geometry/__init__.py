"""Pure functions of tensors: the d-Simplex, the sphere, exact nearest neighbours."""

from holdfast.geometry.neighbours import Neighbours, merge_neighbours, nearest
from holdfast.geometry.simplex import DSimplex, grown
from holdfast.geometry.sphere import angle, cosine_matrix, paired_cosine, unit, widened

__all__ = [
    "DSimplex",
    "Neighbours",
    "angle",
    "cosine_matrix",
    "grown",
    "merge_neighbours",
    "nearest",
    "paired_cosine",
    "unit",
    "widened",
]
