"""Which items a bridge is expected to serve worst: counted on held-out pairs, and predicted from stored vectors."""

import numpy as np
import pytest

from holdfast.bridges import Bridge
from holdfast.bridges.trial import Trial, split_pairs
from holdfast.vectors.lengths import unit


def noisy_pairs(count, noise, seed=0):
    """Pairs in 16 dimensions. Items with a positive first number are unlike in both spaces, by ``noise``."""
    random = np.random.default_rng(seed)
    old = unit(random.standard_normal((count, 16)))
    turn = np.linalg.qr(random.standard_normal((16, 16)))[0]
    moved = random.standard_normal((count, 16)) * (noise * (old[:, :1] > 0))
    return unit((old + moved) @ turn), old


@pytest.mark.parametrize("items", [None, 400])
def test_errors_are_counted_as_a_loop_would(items):
    new, old = noisy_pairs(300, 0.2)
    trial = Trial(new, old, None, split := split_pairs(300, 0, items), None)
    vectors, errors = trial.errors("rotation", {})
    searched = np.concatenate([split.held, split.also_searched]).tolist()
    np.testing.assert_array_equal(vectors, old[searched])

    fitted = Bridge.fit(new=new[split.fitted], old=old[split.fitted], kind="rotation")
    counts = dict.fromkeys(searched, 0)
    for query in split.held.tolist():
        others = [item for item in searched if item != query]
        (bridged,) = fitted(new[query][None])
        shown = sorted(others, key=lambda item: -float(bridged @ old[item]))[:10]
        wanted = sorted(others, key=lambda item: -float(new[query] @ new[item]))[:10]
        for item in set(shown) ^ set(wanted):
            counts[item] += 1
    scale = len(searched) / (20 * len(split.held))
    assert errors.tolist() == pytest.approx([scale * counts[item] for item in searched])
    assert float(errors.mean()) == pytest.approx(1 - trial.measured("rotation", {}).candidate.value)


def test_items_of_a_noisy_region_are_expected_to_have_more_errors():
    new, old = noisy_pairs(600, 0.3)
    bridge = Bridge.fit(new=new, old=old, kind="rotation")
    _, unseen = noisy_pairs(2000, 0.3, seed=1)
    expected = bridge.expected_errors(unseen)
    worse = unseen[:, 0] > 0
    assert float(expected[worse].mean()) > float(expected[~worse].mean()) + 0.02
    assert np.corrcoef(expected, unseen[:, 0])[0, 1] > 0.6


def test_few_pairs_and_a_saved_bridge(tmp_path):
    new, old = noisy_pairs(10, 0.3)
    bridge = Bridge.fit(new=new, old=old, kind="rotation")
    expected = bridge.expected_errors(old)
    assert expected.shape == (10,)
    assert np.isfinite(expected).all()
    bridge.save(tmp_path / "b")
    np.testing.assert_array_equal(Bridge.load(tmp_path / "b").expected_errors(old), expected)
