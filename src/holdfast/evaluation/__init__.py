"""Fills the compatibility matrix and reads it."""

from holdfast.evaluation.matrix import compatibility_matrix
from holdfast.evaluation.mixed import mixed_gallery
from holdfast.evaluation.protocols import PROTOCOLS, SCORES
from holdfast.evaluation.summary import judge_run

__all__ = ["PROTOCOLS", "SCORES", "compatibility_matrix", "judge_run", "mixed_gallery"]
