"""Intervals against plain resampling loops, closed forms and exact tails."""

import math

import numpy as np
import pytest

from holdfast.core.errors import HoldfastError
from holdfast.metrics import (
    draw_weights,
    exact_mcnemar,
    percentile_interval,
    resampled_means,
    roc_auc,
    tar_at_far,
    threshold_at_far,
    weighted_roc_auc,
    weighted_tar_at_far,
)


@pytest.mark.parametrize(("gained", "lost"), [(0, 0), (5, 0), (0, 9), (3, 8), (40, 61), (700, 640)])
def test_mcnemar_is_the_binomial_tail(gained, lost):
    n = gained + lost
    tail = sum(math.comb(n, i) for i in range(min(gained, lost) + 1))
    expected = min(1.0, 2 * tail / 2**n)
    assert exact_mcnemar(gained, lost) == pytest.approx(expected, rel=1e-9)
    assert exact_mcnemar(lost, gained) == exact_mcnemar(gained, lost)


def test_mcnemar_agrees_with_scipy_far_out():
    stats = pytest.importorskip("scipy.stats")
    assert exact_mcnemar(5200, 4800) == pytest.approx(stats.binomtest(5200, 10_000).pvalue, rel=1e-9)


def test_grouped_draws_have_the_distribution_of_drawing_queries():
    values = np.random.default_rng(0).choice([0.0, 0.25, 1.0], 60)
    found = resampled_means(values, resamples=20_000)[:, 0]
    draw = np.random.default_rng(1)
    slow = np.array([np.mean([values[i] for i in draw.integers(0, 60, 60)]) for _ in range(4000)])
    assert found.mean() == pytest.approx(values.mean(), abs=3e-3)
    assert found.std() == pytest.approx(values.std() / math.sqrt(60), rel=0.03)
    for share in (0.05, 0.5, 0.95):
        assert np.quantile(found, share) == pytest.approx(np.quantile(slow, share), abs=0.01)


def test_cells_are_drawn_together():
    values = np.random.default_rng(0).random((2, 50))
    means = resampled_means(np.stack([values[0], values[0], values.sum(0)]), resamples=200)
    assert np.array_equal(means[:, 0], means[:, 1])
    assert np.corrcoef(means[:, 0], means[:, 2])[0, 1] > 0.5


def test_clusters_equal_a_loop_over_clusters():
    rng = np.random.default_rng(0)
    clusters = np.array([3, 3, 3, 1, 1, 7, 7, 7, 7, 9])
    values = rng.random(10)
    weights = np.concatenate(list(draw_weights(4, 300, seed=5)))
    found = resampled_means(values, resamples=300, seed=5, clusters=clusters)[:, 0]
    names = sorted(set(clusters.tolist()))
    for row, mean in zip(weights, found):
        drawn = [v for name, times in zip(names, row) for v in list(values[clusters == name]) * times]
        assert mean == pytest.approx(np.mean(drawn))


def test_blocks_do_not_change_what_is_drawn(monkeypatch):
    whole = np.concatenate(list(draw_weights(50, 40, seed=3)))
    monkeypatch.setattr("holdfast.metrics.resampling._ELEMENTS", 500)
    assert np.array_equal(np.concatenate(list(draw_weights(50, 40, seed=3))), whole)


def test_few_units_are_widened_as_student_asks():
    draws = np.random.default_rng(0).standard_normal(400_000)
    low, high = percentile_interval(draws, units=10**6)
    assert (-low, high) == (pytest.approx(1.96, abs=0.02), pytest.approx(1.96, abs=0.02))
    _, high = percentile_interval(draws, units=10)
    assert high == pytest.approx(2.262 * math.sqrt(10 / 9), abs=0.03)  # t with 9 degrees of freedom, at 97.5 %
    assert percentile_interval(draws, units=1) == (-math.inf, math.inf)


@pytest.mark.parametrize("far", [0.0, 0.01, 0.3, 1.0])
def test_weighted_pairs_equal_repeated_pairs(far):
    rng = np.random.default_rng(2)
    scores, same = rng.integers(0, 12, 60) / 10, rng.random(60) < 0.5
    weights = rng.integers(0, 4, (20, 60))
    tar, auc = weighted_tar_at_far(scores, same, weights, far), weighted_roc_auc(scores, same, weights)
    for row, one_tar, one_auc in zip(weights, tar, auc):
        assert one_tar == pytest.approx(tar_at_far(np.repeat(scores, row), np.repeat(same, row), far))
        assert one_auc == pytest.approx(roc_auc(np.repeat(scores, row), np.repeat(same, row)))
    assert np.isnan(weighted_roc_auc(scores, same, np.where(same, 1, 0))[0])


@pytest.mark.parametrize("far", [0.0, 0.05, 0.5, 1.0])
def test_the_threshold_is_the_lowest_that_keeps_the_rate(far):
    scores = np.random.default_rng(0).integers(0, 30, 200) / 30
    found = threshold_at_far(scores, far)
    assert (scores >= found).mean() <= far
    lower = scores[scores < found]
    assert len(lower) == 0 or (scores >= lower.max()).mean() > far


def test_bad_input():
    with pytest.raises(HoldfastError, match="no queries"):
        resampled_means(np.zeros((2, 0)))
    with pytest.raises(HoldfastError, match="2 queries, but 3 cluster labels"):
        resampled_means(np.zeros((1, 2)), clusters=[1, 2, 3])
