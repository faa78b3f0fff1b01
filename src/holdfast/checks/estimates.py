"""Scores and gains with their intervals, for queries that repeat and queries that belong together."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from holdfast.metrics import intervals
from holdfast.metrics.intervals import Interval


@dataclass(frozen=True)
class Estimate:
    """A number and its two-sided interval."""

    value: float
    low: float
    high: float

    @classmethod
    def of(cls, interval: Interval) -> "Estimate":
        return cls(interval.value, interval.low, interval.high)


@dataclass(frozen=True)
class Design:
    """How the queries of a check were drawn, and how sure its intervals are.

    confidence: of the two-sided intervals.
    groups: of each query: those of one group gain and lose together; None if none are known.
    repeats: of each query: the same queries have the same number, and count once.
    """

    confidence: float
    groups: np.ndarray | None = None
    repeats: np.ndarray | None = None

    def options(self, known: np.ndarray) -> dict[str, Any]:
        """The options of an interval in ``holdfast.metrics.intervals``. known: which queries have a score."""
        groups, repeats = (None if part is None else part[known] for part in (self.groups, self.repeats))
        return {"confidence": self.confidence, "groups": groups, "repeats": repeats}


def mean_interval(values: np.ndarray, design: Design) -> Interval:
    """The mean of one score per query; NaN does not count."""
    known = ~np.isnan(values)
    return intervals.mean_interval(values[known], **design.options(known))


def mean_estimate(values: np.ndarray, design: Design) -> Estimate:
    return Estimate.of(mean_interval(values, design))


def share_of_means(found: np.ndarray, ceiling: np.ndarray, design: Design) -> Estimate:
    """mean(found) / mean(ceiling), scores of the same queries; NaN does not count. NaN if mean(ceiling) is zero."""
    known = ~np.isnan(found) & ~np.isnan(ceiling)
    return Estimate.of(intervals.ratio_interval(found[known], ceiling[known], **design.options(known)))


def gain_interval(before: np.ndarray, after: np.ndarray, design: Design) -> Interval:
    """mean(after) - mean(before), scores of the same queries; NaN does not count."""
    known = ~np.isnan(before) & ~np.isnan(after)
    return intervals.gain_interval(before[known], after[known], **design.options(known))


def gain_estimate(before: np.ndarray, after: np.ndarray, design: Design) -> Estimate:
    return Estimate.of(gain_interval(before, after, design))


def units_needed(before: np.ndarray, after: np.ndarray, design: Design, bound: float) -> int | None:
    """How many queries, or groups, would put the interval of the gain on one side of ``bound``; see the metrics."""
    known = ~np.isnan(before) & ~np.isnan(after)
    return intervals.units_needed(before[known], after[known], bound, **design.options(known))
