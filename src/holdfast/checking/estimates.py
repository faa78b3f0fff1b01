"""Scores and gains with their intervals, for scores of queries and for scores of pairs alike."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from holdfast.checking.judge import Judgement, Pairs
from holdfast.checking.scores import Score
from holdfast.metrics import (
    draw_weights,
    gain_interval,
    mean_interval,
    percentile_interval,
    roc_auc,
    tar_at_far,
    weighted_roc_auc,
    weighted_tar_at_far,
)

_WEIGHTS_AT_ONCE = 1 << 21


@dataclass(frozen=True)
class Estimate:
    """A number and its two-sided interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Resampling:
    """How intervals are made: their confidence, how many resamples, the seed, and the classes (or None) to draw."""

    confidence: float
    resamples: int
    seed: int
    clusters: np.ndarray | None = None


def score_estimate(judgement: Judgement, score: Score, pairs: Pairs | None, how: Resampling) -> Estimate:
    """The score of one set of queries on one gallery."""
    if pairs is not None:
        draws = pair_draws(judgement, score, pairs, len(judgement.values), how)
        ends = percentile_interval(draws, units(how, judgement), how.confidence)
        return Estimate(pair_score(judgement, score, pairs), *ends)
    known = ~np.isnan(judgement.values)
    values = judgement.values[known]
    return Estimate(float(values.mean()), *mean_interval(values, **_options(how, known)))


def gain_estimate(
    before: Judgement, after: Judgement, score: Score, pairs: tuple[Pairs | None, Pairs | None], how: Resampling
) -> Estimate:
    """How much better ``after`` scores than ``before``: the same queries, drawn together."""
    if pairs[0] is not None and pairs[1] is not None:
        count = len(before.values)
        draws = [pair_draws(j, score, p, count, how) for j, p in zip((before, after), pairs) if p is not None]
        gain = pair_score(after, score, pairs[1]) - pair_score(before, score, pairs[0])
        return Estimate(gain, *percentile_interval(draws[1] - draws[0], units(how, before), how.confidence))
    known = ~np.isnan(before.values) & ~np.isnan(after.values)
    first, second = before.values[known], after.values[known]
    return Estimate(float(second.mean() - first.mean()), *gain_interval(first, second, **_options(how, known)))


def units(how: Resampling, judgement: Judgement) -> int:
    """How many queries, or classes of them, are drawn from."""
    known = ~np.isnan(judgement.values)
    return int(known.sum()) if how.clusters is None else len(np.unique(how.clusters[known]))


def pair_score(judgement: Judgement, score: Score, pairs: Pairs) -> float:
    if score.kind == "auc":
        return roc_auc(judgement.scored, pairs.same)
    return tar_at_far(judgement.scored, pairs.same, score.far)


def pair_draws(judgement: Judgement, score: Score, pairs: Pairs, queries: int, how: Resampling) -> np.ndarray:
    """The score in every resample of the queries (each brings its pairs along), or of the classes."""
    member = np.arange(queries) if how.clusters is None else np.unique(how.clusters, return_inverse=True)[1]
    height = max(1, _WEIGHTS_AT_ONCE // len(pairs.query))
    found = []
    for block in draw_weights(int(member.max()) + 1, how.resamples, how.seed):
        for start in range(0, len(block), height):
            weights = block[start : start + height, member[pairs.query]]
            if score.kind == "auc":
                found.append(weighted_roc_auc(judgement.scored, pairs.same, weights))
            else:
                found.append(weighted_tar_at_far(judgement.scored, pairs.same, weights, score.far))
    return np.concatenate(found)


def _options(how: Resampling, known: np.ndarray) -> dict[str, Any]:
    clusters = None if how.clusters is None else how.clusters[known]
    return {"confidence": how.confidence, "resamples": how.resamples, "seed": how.seed, "clusters": clusters}
