"""The go/no-go check: may a new model's queries be used on an old gallery? Features of any origin, with evidence.

Named apart from its function, ``holdfast.check``, which a package of that name would hide.
"""

from holdfast.checking.check import check
from holdfast.checking.feature_set import FeatureSet, feature_set
from holdfast.checking.history import check_history
from holdfast.checking.result import CheckResult, HistoryResult

__all__ = ["CheckResult", "FeatureSet", "HistoryResult", "check", "check_history", "feature_set"]
