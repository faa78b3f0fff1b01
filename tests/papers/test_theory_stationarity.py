"""Measured stationarity: against plain loops, on sampled caps where the theorem holds, and where it does not."""

import math

import numpy as np
import pytest

from holdfast.core.errors import HoldfastError
from holdfast.train.geometry import DSimplex
from papers.stationary.theorems import compare_models, sample_cap


def caps_of(angle, *, d=8, per_class=30, seed=0, turned=None):
    """Features on caps around the vertices of a simplex, which ``turned`` may move."""
    random = np.random.default_rng(seed)
    prototypes = DSimplex(d + 1).dense().numpy()
    axes = prototypes if turned is None else prototypes @ turned.T
    features = np.concatenate([sample_cap(axis, angle, per_class, random) for axis in axes])
    return features, np.repeat(np.arange(d + 1), per_class), prototypes


def test_against_plain_loops():
    random = np.random.default_rng(0)
    old, new = random.standard_normal((9, 4)), random.standard_normal((9, 4))
    labels = np.array([0, 0, 0, 1, 1, 2, 2, 2, 2])
    before, after = random.standard_normal((3, 4)), random.standard_normal((3, 4))
    found = compare_models(old, new, labels, before, after)

    def unit(v):
        return v / np.linalg.norm(v)

    def distance(a, b):
        return 1 - unit(a) @ unit(b)

    for same, pairs in ((True, found.same), (False, found.different)):
        kt, kk = [], []
        for i in range(9):
            for j in range(9):
                if i != j and (labels[i] == labels[j]) == same:
                    kt.append(distance(old[i], new[j]))
                    kk.append(distance(old[i], old[j]))
        kt, kk = np.array(kt), np.array(kk)
        assert pairs.count == len(kt)
        assert pairs.share == pytest.approx(((kt <= kk) if same else (kt >= kk)).mean())
        assert (pairs.kt, pairs.kk) == pytest.approx((kt.mean(), kk.mean()))
        held = []
        for one in range(3):
            for other in range(3):
                chosen = [
                    n
                    for n, (i, j) in enumerate(
                        (i, j) for i in range(9) for j in range(9) if i != j and (labels[i] == labels[j]) == same
                    )
                    if (labels[i], labels[j]) == (one, other)
                ]
                if chosen:
                    held.append(
                        kt[chosen].mean() <= kk[chosen].mean() if same else kt[chosen].mean() >= kk[chosen].mean()
                    )
        assert pairs.by_class == pytest.approx(np.mean(held))
    for label in range(3):
        own = [unit(row) for row in old[labels == label]]
        mean, prototype = unit(np.mean(own, 0)), unit(before[label])
        assert found.old_class_mean[label] == pytest.approx(math.acos(mean @ prototype))
        angles = [math.acos(row @ prototype) for row in own]
        assert found.old_cap[label] == pytest.approx(np.quantile(angles, 0.95))
        assert found.moved[label] == pytest.approx(math.acos(prototype @ unit(after[label])))
    assert found.same_image == pytest.approx(np.mean([distance(a, b) for a, b in zip(old, new)]))


def test_caps_that_shrink_are_compatible_on_average():
    old, labels, prototypes = caps_of(math.radians(60))
    new, _, _ = caps_of(math.radians(30), seed=1)
    found = compare_models(old, new, labels, prototypes, prototypes)
    assert found.shrank.all()
    assert found.moved.max() == 0
    assert found.same.kt < found.same.kk
    assert found.different.kt > found.different.kk
    assert 0.5 < found.same.share < 1  # on average, not for every pair
    assert found.same_image == pytest.approx(found.same.kt, abs=0.05)  # independent, as A2 has it
    grown = compare_models(new, old, labels, prototypes, prototypes)
    assert not grown.shrank.any()
    assert grown.same.kt > grown.same.kk


def test_a_cap_is_nested_only_if_it_shrank_by_more_than_its_prototype_moved():
    old, labels, prototypes = caps_of(math.radians(50))
    new, _, _ = caps_of(math.radians(45), seed=1)
    assert compare_models(old, new, labels, prototypes, prototypes).nested.all()
    turn = np.linalg.qr(np.random.default_rng(3).standard_normal((8, 8)))[0]
    moved = compare_models(old, new @ turn.T, labels, prototypes, prototypes @ turn.T)
    assert moved.shrank.all()
    assert not moved.nested.any()
    found = moved.to_json([str(n) for n in range(9)])
    assert (found["shrank"], found["nested"]) == (1, 0)


def test_prototypes_that_turn_break_it():
    old, labels, prototypes = caps_of(math.radians(50))
    turn = np.linalg.qr(np.random.default_rng(3).standard_normal((8, 8)))[0]
    new, _, _ = caps_of(math.radians(30), seed=1, turned=turn)
    found = compare_models(old, new, labels, prototypes, prototypes @ turn.T)
    assert found.shrank.all()  # A3 alone is not enough
    assert np.degrees(found.moved).min() > 5
    assert found.same.kt > found.same.kk


def test_blocks_change_nothing(monkeypatch):
    old, labels, prototypes = caps_of(1.0, per_class=7)
    new, _, _ = caps_of(0.8, per_class=7, seed=2)
    whole = compare_models(old, new, labels, prototypes, prototypes)
    monkeypatch.setattr("papers.stationary.theorems.stationarity._BLOCK", 200)
    parts = compare_models(old, new, labels, prototypes, prototypes)
    assert vars(parts.same) == pytest.approx(vars(whole.same))
    assert vars(parts.different) == pytest.approx(vars(whole.different))


def test_refusals_and_undefined():
    old, labels, prototypes = caps_of(1.0, per_class=2)
    with pytest.raises(HoldfastError, match="cannot be compared"):
        compare_models(old, old[:, :-1], labels, prototypes, prototypes)
    with pytest.raises(HoldfastError, match=r"labels must be 0\.\.8"):
        compare_models(old, old, labels + 1, prototypes, prototypes)
    lone = compare_models(old[::2], old[::2], labels[::2], prototypes, prototypes)
    assert lone.same.count == 0
    assert math.isnan(lone.same.share)
    assert math.isnan(lone.same.by_class)
    assert 0 <= lone.different.by_class <= 1
