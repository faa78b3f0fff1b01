"""The check before a release: outcomes of queries, estimates, verdicts, mixed indexes and histories of models."""

from typing import TYPE_CHECKING, Any

from holdfast.checks.check import check
from holdfast.checks.check_mixed import check_mixed
from holdfast.checks.history import check_history
from holdfast.checks.result import CheckResult, HistoryResult, MixedResult
from holdfast.checks.scores import PROTOCOLS

if TYPE_CHECKING:
    from holdfast.checks.comparison import Comparison, compare

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


def __getattr__(name: str) -> Any:
    """``compare`` and ``Comparison`` when asked for: they import the bridges, which ``check`` does not need."""
    if name not in ("compare", "Comparison"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from holdfast.checks import comparison

    return getattr(comparison, name)
