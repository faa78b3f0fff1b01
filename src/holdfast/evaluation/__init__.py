"""Fills the compatibility matrix and reads it.

The go/no-go check: may a new model's queries be used on an old gallery? Features of any origin, with evidence.

Named apart from its function, ``holdfast.check``, which a package of that name would hide.
"""

from holdfast.evaluation.check import check
from holdfast.evaluation.feature_set import FeatureSet, feature_set
from holdfast.evaluation.history import check_history
from holdfast.evaluation.matrix import compatibility_matrix, judge_run
from holdfast.evaluation.mixed import mixed_gallery
from holdfast.evaluation.protocols import PROTOCOLS, SCORES
from holdfast.evaluation.result import CheckResult, HistoryResult

__all__ = [
    "PROTOCOLS",
    "SCORES",
    "CheckResult",
    "FeatureSet",
    "HistoryResult",
    "check",
    "check_history",
    "compatibility_matrix",
    "feature_set",
    "judge_run",
    "mixed_gallery",
]
