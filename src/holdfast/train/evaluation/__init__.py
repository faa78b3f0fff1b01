"""The compatibility matrix of a run's models, galleries that hold items of several, and bridges between them."""

from holdfast.train.evaluation.finished_run import run_models
from holdfast.train.evaluation.matrix import compatibility_matrix, evaluate_run
from holdfast.train.evaluation.mixed_gallery import mixed_gallery

__all__ = ["compatibility_matrix", "evaluate_run", "mixed_gallery", "run_models"]
