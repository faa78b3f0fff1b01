"""The check before a release: outcomes of queries, estimates, verdicts, mixed indexes and histories of models."""

from holdfast.checks.check import check
from holdfast.checks.check_mixed import check_mixed
from holdfast.checks.compare import Comparison, compare
from holdfast.checks.history import check_history
from holdfast.checks.result import CheckResult, HistoryResult, MixedResult
from holdfast.checks.scores import PROTOCOLS

__all__ = [
    "PROTOCOLS",
    "CheckResult",
    "Comparison",
    "HistoryResult",
    "MixedResult",
    "check",
    "check_history",
    "check_mixed",
    "compare",
]
