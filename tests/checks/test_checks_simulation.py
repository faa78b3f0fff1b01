"""Are the intervals right? Simulated features with a known true gain, 500 samples of queries each.

The gallery is fixed, and so is a large pool of queries that stands for all there could be: the gain over the pool is
the true one. Every sample is judged as ``check`` judges its queries.
"""

import numpy as np
import pytest

from holdfast.checks.estimates import Estimate, Resampling, gain_estimate, share_of_means
from holdfast.checks.query_outcomes import ClassGroundTruth, run_queries
from holdfast.checks.scores import parse_score
from holdfast.checks.verdict import MAX_LOSS, YES, answer_about, better_answer
from holdfast.metrics import gain_interval
from holdfast.vectors.feature_set import feature_set

SIMULATIONS = 500
POOL = 30_000


def pool_of(clustered, score, new_noise):
    """Old and new score of every query of the pool on one gallery, and their classes."""
    gallery_labels = np.repeat(np.arange(60), 4)
    labels = np.arange(POOL) % 60
    gallery = feature_set("gallery", clustered(gallery_labels, 0.3, seed=1), gallery_labels)
    queries = [clustered(labels, noise, seed=s) for s, noise in ((2, 0.35), (3, new_noise))]
    view = run_queries(
        gallery, ClassGroundTruth(labels, gallery_labels), queries, parse_score(score), protocol="instance"
    )
    return [outcomes.values for outcomes in view.outcomes], labels


def simulate(old, new, draw_rows, clusters=None):
    """The share of simulations whose interval covers the true gain, and the share called better."""
    truth = new.mean() - old.mean()
    covered = better = 0
    for seed in range(SIMULATIONS):
        rows = draw_rows(np.random.default_rng(seed))
        how = Resampling(0.95, 1000, seed, None if clusters is None else clusters[rows])
        gain = gain_estimate(old[rows], new[rows], how)
        covered += gain.low <= truth <= gain.high
        better += better_answer(gain, len(rows), "queries").answer == YES
    return truth, covered / SIMULATIONS, better / SIMULATIONS


@pytest.mark.slow
@pytest.mark.parametrize(("score", "queries"), [("top1", 150), ("top1", 1000), ("recall@5", 400), ("mAP", 200)])
def test_the_true_gain_is_covered(score, queries, clustered):
    (old, new), _ = pool_of(clustered, score, new_noise=0.3)
    truth, covered, _ = simulate(old, new, lambda draw: draw.integers(0, POOL, queries))
    assert truth > 0.02
    assert 0.92 <= covered <= 0.98


@pytest.mark.slow
@pytest.mark.parametrize(("score", "queries"), [("top1", 60), ("top1", 1000), ("mAP", 200)])
def test_without_a_true_gain_better_is_rarely_said(score, queries, clustered):
    """Each query comes twice, once with old and new swapped, so that the true gain is exactly 0."""
    (old, new), _ = pool_of(clustered, score, new_noise=0.33)
    both = [np.append(old, new), np.append(new, old)]
    truth, covered, better = simulate(*both, lambda draw: draw.integers(0, 2 * POOL, queries))
    assert truth == pytest.approx(0, abs=1e-12)
    assert 0.92 <= covered <= 0.99  # few changed queries: the interval errs on the wide side
    assert better <= 0.05


@pytest.mark.slow
def test_queries_that_stand_and_fall_by_class(clustered):
    """Classes are drawn, and half of them lose what the others gain: only the clustered interval holds."""
    (old, new), labels = pool_of(clustered, "top1", new_noise=0.3)
    new = np.where(labels % 2 == 0, new, np.minimum(old, new) * (old > 0))
    of_class = [np.flatnonzero(labels == name)[:20] for name in range(60)]
    pool = np.concatenate(of_class)
    truth = new[pool].mean() - old[pool].mean()
    shares = {}
    for clustering in (None, labels):
        covered = 0
        for seed in range(SIMULATIONS):
            drawn = np.random.default_rng(seed).integers(0, 60, 25)
            rows = np.concatenate([of_class[name] for name in drawn])
            units = None if clustering is None else np.repeat(np.arange(25), 20)  # a class drawn twice counts twice
            how = Resampling(0.95, 1000, seed, units)
            gain = gain_estimate(old[rows], new[rows], how)
            covered += gain.low <= truth <= gain.high
        shares["plain" if clustering is None else "clustered"] = covered / SIMULATIONS
    assert 0.92 <= shares["clustered"] <= 0.98
    assert shares["plain"] < 0.9


def lose(values, step, seed=0):
    """The values lowered by ``step`` in so many places that their mean falls by exactly the accepted loss."""
    lowered = values.copy()
    places = np.random.default_rng(seed).permutation(np.flatnonzero(values >= step))
    lowered[places[: round(MAX_LOSS * len(values) / step)]] -= step
    return lowered


@pytest.mark.slow
@pytest.mark.parametrize(("score", "queries"), [("top1", 60), ("top1", 300), ("top1", 1000), ("mAP", 200)])
def test_at_a_loss_of_exactly_the_margin_yes_is_rarely_said(score, queries, clustered):
    """Each query comes twice, once with old and new swapped; then one point is taken off."""
    (old, new), _ = pool_of(clustered, score, new_noise=0.33)
    before, after = np.append(old, new), lose(np.append(new, old), 1.0 if score == "top1" else 0.2)
    assert after.mean() - before.mean() == pytest.approx(-MAX_LOSS, abs=1e-6)
    said = 0
    for seed in range(SIMULATIONS):
        rows = np.random.default_rng(seed).integers(0, 2 * POOL, queries)
        how = Resampling(0.95, 1000, seed)
        gain = gain_estimate(before[rows], after[rows], how)
        said += answer_about(gain, MAX_LOSS, queries, "queries").answer == YES
    assert said / SIMULATIONS <= 0.05 + 2 * (0.05 * 0.95 / SIMULATIONS) ** 0.5


@pytest.mark.slow
@pytest.mark.parametrize(("score", "queries"), [("top1", 150), ("top1", 1000), ("mAP", 200)])
def test_the_true_share_kept_is_covered(score, queries, clustered):
    """The ceiling is a gallery with less noise, searched by the same queries."""
    (_, new), labels = pool_of(clustered, score, new_noise=0.3)
    gallery_labels = np.repeat(np.arange(60), 4)
    gallery = feature_set("gallery", clustered(gallery_labels, 0.25, seed=4), gallery_labels)
    queries_new = [clustered(labels, 0.3, seed=3)]
    truth = ClassGroundTruth(labels, gallery_labels)
    (outcomes,) = run_queries(gallery, truth, queries_new, parse_score(score), protocol="instance").outcomes
    ceiling = outcomes.values
    share = new.mean() / ceiling.mean()
    assert 0.8 < share < 0.999
    covered = 0
    for seed in range(SIMULATIONS):
        rows = np.random.default_rng(seed).integers(0, POOL, queries)
        how = Resampling(0.95, 1000, seed)
        found = share_of_means(new[rows], ceiling[rows], how)
        covered += found.low <= share <= found.high
    assert 0.92 <= covered / SIMULATIONS <= 0.99


def test_in_short_yes_is_rarely_said_at_the_margin():
    """Two hundred simulations of 300 queries of which 3 % change, with a true loss of exactly one point."""
    rng, said = np.random.default_rng(0), 0
    for _ in range(200):
        change = rng.choice([1.0, -1.0, 0.0], p=[0.01, 0.02, 0.97], size=300)
        before = np.where(change > 0, 0.0, 1.0)
        gain = Estimate.of(gain_interval(before, before + change))
        said += answer_about(gain, MAX_LOSS, 300, "queries").answer == YES
    assert said <= 18  # 5 % are 10, and three standard deviations of 200 simulations are 9
