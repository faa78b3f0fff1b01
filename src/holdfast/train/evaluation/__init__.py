"""The compatibility matrix of a run's models."""

from holdfast.train.evaluation.finished_run import run_models
from holdfast.train.evaluation.matrix import FURTHER_EVALUATIONS, compatibility_matrix, evaluate_run

__all__ = ["FURTHER_EVALUATIONS", "compatibility_matrix", "evaluate_run", "run_models"]
