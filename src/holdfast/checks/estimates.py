"""Scores and gains with their intervals."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from holdfast.metrics import gain_interval, mean_interval
from holdfast.metrics.resampling import queries_to_decide, share_interval, units_to_decide


@dataclass(frozen=True)
class Estimate:
    """A number and its two-sided interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Resampling:
    """How intervals are computed.

    confidence: of the two-sided intervals.
    resamples: number of bootstrap resamples.
    seed: of the resamples.
    clusters: the class of each query, to resample classes; None resamples queries.
    """

    confidence: float
    resamples: int
    seed: int
    clusters: np.ndarray | None = None

    @property
    def drawn(self) -> str:
        """What is resampled, in words."""
        return "queries" if self.clusters is None else "classes of queries"

    def units(self, values: np.ndarray) -> int:
        """The number of queries, or of their classes, that are resampled. values: one score per query, perhaps NaN."""
        known = ~np.isnan(values)
        return int(known.sum()) if self.clusters is None else len(np.unique(self.clusters[known]))

    def options(self, known: np.ndarray | slice = slice(None)) -> dict[str, Any]:
        """The options of an interval in ``holdfast.metrics``. known: which queries have a score; default: all."""
        clusters = None if self.clusters is None else self.clusters[known]
        return {"confidence": self.confidence, "resamples": self.resamples, "seed": self.seed, "clusters": clusters}


def mean_estimate(values: np.ndarray, resampling: Resampling) -> Estimate:
    """The mean of one score per query; NaN does not count."""
    known = ~np.isnan(values)
    return Estimate(float(values[known].mean()), *mean_interval(values[known], **resampling.options(known)))


def share_of_means(found: np.ndarray, ceiling: np.ndarray, resampling: Resampling) -> Estimate:
    """mean(found) / mean(ceiling), scores of the same queries; NaN does not count. NaN if mean(ceiling) is zero."""
    known = ~np.isnan(found) & ~np.isnan(ceiling)
    first, second = found[known], ceiling[known]
    share = float(first.mean() / second.mean()) if second.mean() > 0 else math.nan
    return Estimate(share, *share_interval(first, second, **resampling.options(known)))


def gain_estimate(before: np.ndarray, after: np.ndarray, resampling: Resampling) -> Estimate:
    """mean(after) - mean(before), scores of the same queries, on the same resampled queries; NaN does not count."""
    known = ~np.isnan(before) & ~np.isnan(after)
    first, second = before[known], after[known]
    return Estimate(float(second.mean() - first.mean()), *gain_interval(first, second, **resampling.options(known)))


def units_needed(
    before: np.ndarray, after: np.ndarray, gain: Estimate, bound: float, resampling: Resampling
) -> int | None:
    """How many queries, or classes, would put the interval of the gain on one side of ``bound``; see the metrics."""
    ends = (gain.low, gain.high)
    if resampling.clusters is not None:
        return units_to_decide(gain.value, ends, bound, resampling.units(before))
    known = ~np.isnan(before) & ~np.isnan(after)
    return queries_to_decide(before[known], after[known], ends, bound)
