"""Verification metrics against brute force."""

import math

import numpy as np
import pytest

from holdfast.core.errors import HoldfastError
from holdfast.metrics import pair_scores, roc_auc, tar_at_far, verification_pairs


def tied_pairs(seed):
    rng = np.random.default_rng(seed)
    return rng.integers(0, 6, 40) / 8, rng.random(40) < 0.4


@pytest.mark.parametrize("seed", range(5))
def test_auc_against_all_pairs(seed):
    scores, same = tied_pairs(seed)
    wins = [1.0 if p > n else 0.5 if p == n else 0.0 for p in scores[same] for n in scores[~same]]
    assert roc_auc(scores, same) == pytest.approx(sum(wins) / len(wins), abs=1e-12)


def test_auc_when_all_scores_are_equal():
    assert roc_auc([0.3] * 4, [True, False, False, True]) == 0.5


@pytest.mark.parametrize("far", [0.0, 0.05, 0.25, 0.5, 1.0])
@pytest.mark.parametrize("seed", range(3))
def test_tar_against_every_threshold(seed, far):
    scores, same = tied_pairs(seed)
    best = 0.0
    for threshold in [*scores, math.inf]:
        if np.mean(scores[~same] >= threshold) <= far:
            best = max(best, float(np.mean(scores[same] >= threshold)))
    assert tar_at_far(scores, same, far) == best


def test_tar_does_not_split_equal_scores():
    assert tar_at_far([0.5, 0.5], [True, False], far=0.0) == 0.0
    assert tar_at_far([0.5, 0.5], [True, False], far=1.0) == 1.0


def test_undefined_without_both_kinds():
    assert math.isnan(roc_auc([0.1], [True]))
    assert math.isnan(tar_at_far([0.1], [False], far=0.1))


def test_verification_refusals():
    with pytest.raises(HoldfastError, match="NaN"):
        roc_auc([np.nan, 0.1], [True, False])
    with pytest.raises(HoldfastError, match="one score"):
        roc_auc([0.1], [True, False])
    with pytest.raises(HoldfastError, match="far"):
        tar_at_far([0.1, 0.2], [True, False], far=1.5)


@pytest.mark.parametrize("count", [1, 60, 61])
def test_pairs_are_balanced_distinct_and_right(count):
    rng = np.random.default_rng(3)
    queries, gallery = rng.integers(0, 6, 30), rng.integers(1, 7, 40)
    pairs, same = verification_pairs(queries, gallery, count, seed=5)
    assert pairs.shape == (count, 2)
    assert same.sum() == count - count // 2
    np.testing.assert_array_equal(queries[pairs[:, 0]] == gallery[pairs[:, 1]], same)
    assert len({tuple(pair) for pair in pairs.tolist()}) == count
    np.testing.assert_array_equal(pairs, verification_pairs(queries, gallery, count, seed=5)[0])
    if count > 1:
        assert (pairs != verification_pairs(queries, gallery, count, seed=6)[0]).any()


def test_all_pairs_can_be_drawn_and_no_more():
    queries, gallery = [0, 0, 1], [0, 1, 1, 2]
    pairs, _ = verification_pairs(queries, gallery, 8, seed=0)
    same_pairs = {(q, g) for q in range(3) for g in range(4) if queries[q] == gallery[g]}
    assert {tuple(pair) for pair in pairs[:4].tolist()} == same_pairs
    with pytest.raises(HoldfastError, match="but only 4 exist"):
        verification_pairs(queries, gallery, 10, seed=0)


def test_pair_scores_against_a_loop():
    rng = np.random.default_rng(0)
    queries, gallery = rng.normal(size=(5, 3)), rng.normal(size=(6, 3))
    pairs = np.array([[0, 5], [4, 0], [2, 2]])
    np.testing.assert_allclose(pair_scores(queries, gallery, pairs), [queries[q] @ gallery[g] for q, g in pairs])
