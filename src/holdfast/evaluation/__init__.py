"""Compatibility matrix, the check before a release, and mixed galleries, from features of any framework."""

from holdfast.evaluation.check import check
from holdfast.evaluation.check_mixed import check_mixed
from holdfast.evaluation.feature_files import write_features
from holdfast.evaluation.feature_set import FeatureSet, feature_set
from holdfast.evaluation.history import check_history
from holdfast.evaluation.matrix import compatibility_matrix, evaluate_run
from holdfast.evaluation.mixed import mixed_gallery
from holdfast.evaluation.result import CheckResult, HistoryResult, MixedResult
from holdfast.evaluation.scores import PROTOCOLS

__all__ = [
    "PROTOCOLS",
    "CheckResult",
    "FeatureSet",
    "HistoryResult",
    "MixedResult",
    "check",
    "check_history",
    "check_mixed",
    "compatibility_matrix",
    "evaluate_run",
    "feature_set",
    "mixed_gallery",
    "write_features",
]
