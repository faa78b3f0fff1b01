"""Scores and gains with their intervals, for scores of queries and for scores of pairs alike."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from holdfast.evaluation.judge import Judgement, Pairs
from holdfast.evaluation.scores import Score
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
        low, high = _pair_interval(lambda way: _pair_draws(judgement, score, pairs, way), judgement, how)
        return Estimate(pair_score(judgement, score, pairs), max(low, 0.0), high)
    known = ~np.isnan(judgement.values)
    values = judgement.values[known]
    return Estimate(float(values.mean()), *mean_interval(values, **_options(how, known)))


def gain_estimate(
    before: Judgement, after: Judgement, score: Score, pairs: tuple[Pairs | None, Pairs | None], how: Resampling
) -> Estimate:
    """How much better ``after`` scores than ``before``: the same queries, drawn together."""
    first_pairs, second_pairs = pairs
    if first_pairs is not None and second_pairs is not None:

        def draw(way: Resampling) -> np.ndarray:
            return _pair_draws(after, score, second_pairs, way) - _pair_draws(before, score, first_pairs, way)

        gain = pair_score(after, score, second_pairs) - pair_score(before, score, first_pairs)
        return Estimate(gain, *_pair_interval(draw, before, how))
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


def _pair_interval(
    draw: Callable[[Resampling], np.ndarray], judgement: Judgement, how: Resampling
) -> tuple[float, float]:
    """Of a score of pairs or a gain of it: with clusters it spans that of the classes and that of single queries."""
    ways = [how] if how.clusters is None else [how, replace(how, clusters=None)]
    ends = [percentile_interval(draw(way), units(way, judgement), how.confidence) for way in ways]
    low, high = min(low for low, _ in ends), max(high for _, high in ends)
    if low == high:  # as sure as so many queries without any change, not surer
        nothing = np.zeros(units(replace(how, clusters=None), judgement))
        margin = gain_interval(nothing, nothing, confidence=how.confidence, resamples=how.resamples, seed=how.seed)
        low, high = low + margin[0], high + margin[1]
    return max(low, -1.0), min(high, 1.0)


def _pair_draws(judgement: Judgement, score: Score, pairs: Pairs, how: Resampling) -> np.ndarray:
    """The score in every resample of the queries (each brings its pairs along), or of the classes."""
    queries = len(judgement.values)
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
