"""Pairs of a bridge as files have them: by id, with labels, with bad rows."""

import time

import numpy as np
import pytest

from holdfast.bridges import read_pairs
from holdfast.bridges.bridge import _different
from holdfast.core.errors import HoldfastError
from holdfast.vectors.lengths import unit

OLD = np.random.default_rng(0).standard_normal((30, 8))
NEW = np.random.default_rng(1).standard_normal((30, 5))
IDS = np.array([f"item {i}" for i in range(30)])


def test_by_id_in_any_order(tmp_path):
    order = np.random.default_rng(2).permutation(30)[:20]
    np.savez(tmp_path / "old.npz", features=OLD, ids=IDS, labels=np.arange(30) % 3, model="first")
    np.savez(tmp_path / "new.npz", features=NEW[order], ids=IDS[order])
    found = read_pairs(tmp_path / "old.npz", tmp_path / "new.npz")
    kept = np.sort(order)
    np.testing.assert_allclose(found.old, OLD[kept], rtol=1e-6)
    np.testing.assert_allclose(found.new, NEW[kept], rtol=1e-6)
    assert found.labels.tolist() == (kept % 3).tolist()
    assert (len(found), found.found, found.only_old, found.only_new) == (20, 20, 10, 0)
    assert found.models == {"old": "first"}
    assert read_pairs(tmp_path / "old.npz", tmp_path / "new.npz", with_labels=False).labels is None


def test_a_draw_is_seeded_and_keeps_pairs_together():
    first, again, other = (read_pairs(OLD, NEW, most=10, seed=seed) for seed in (3, 3, 4))
    assert np.array_equal(first.old, again.old)
    assert not np.array_equal(first.old, other.old)
    rows = [int(np.flatnonzero(np.isclose(NEW, row, atol=1e-6).all(1))[0]) for row in first.new]
    np.testing.assert_allclose(first.old, OLD[rows], rtol=1e-6)
    assert (len(first), first.found) == (10, 30)


def test_only_the_rows_that_are_used_must_be_sound():
    spoilt = OLD.copy()
    spoilt[20] = np.nan
    found = read_pairs((spoilt, None, IDS), (NEW[:15], None, IDS[:15]))
    assert len(found) == 15


def spoilt(row, value):
    rows = NEW.copy()
    rows[row] = value
    return rows


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (OLD, NEW[:29], "old has 30 items and new has 29; without ids in both"),
        ((OLD, None, IDS), (NEW, None, np.arange(30)), "no id is in both .* so no item can be paired"),
        (OLD, spoilt(3, np.nan), r"new: 1 vector is not finite \(row 3\); leave it out"),
        (OLD, spoilt([3, 5], 0), r"new: 2 vectors are zero \(rows 3, 5\); leave them out"),
        ((OLD, np.arange(30)), (NEW, np.arange(30)[::-1]), "30 of 30 items have another label in each"),
        (OLD[0], NEW, "features must be a matrix of numbers"),
        ("missing.npz", NEW, "missing.npz: no such file"),
    ],
)
def test_refusals(old, new, message):
    with pytest.raises(HoldfastError, match=message):
        read_pairs(old, new)
    with pytest.raises(HoldfastError, match="number of pairs must be at least 1, got 0"):
        read_pairs(OLD, NEW, most=0)


@pytest.mark.parametrize("kind", ["both", "new only", "old only"])
def test_copies_are_found_wherever_they_are(kind):
    """Against all pairs of items; copies in one of the two spaces only are different pairs."""
    rng = np.random.default_rng(0)
    new, old = (rng.standard_normal((600, dim)) for dim in (16, 8))
    kept, copies = rng.integers(0, 300, 300), np.arange(300, 600)
    for name, rows in (("old only", new), ("new only", old)):
        if kind != name:
            rows[copies] = rows[kept] * (1 + 1e-6 * rng.standard_normal((300, rows.shape[1])))
    spaces = [unit(rows) for rows in (new, old)]
    near = np.all([rows @ rows.T > 1 - 1e-6 for rows in spaces], axis=0)
    first = near.argmax(axis=1)  # the first item that each is a copy of
    expected = np.flatnonzero(first == np.arange(600))
    assert len(expected) == (300 if kind == "both" else 600)
    assert _different(*spaces).tolist() == expected.tolist()


def test_many_equal_vectors_of_one_model_take_no_time():
    """Every item was compared with every other one: a collapsed model, or a million pairs, took many minutes."""
    old = unit(np.random.default_rng(0).standard_normal((20_000, 8)))
    began = time.perf_counter()
    assert len(_different(unit(np.ones((20_000, 8))), old)) == 20_000
    assert time.perf_counter() - began < 6
