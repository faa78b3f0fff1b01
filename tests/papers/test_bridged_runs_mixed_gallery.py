"""A gallery of mixed versions against plain loops, and by cases whose answer is known."""

import numpy as np
import pytest
import torch

from holdfast.core.errors import HoldfastError
from holdfast.train.encoders import ModelFeatures
from holdfast.train.space_map import SpaceMap
from papers.bridged_runs.mixed_gallery import arrivals, mixed_gallery

QUERY_Y, GALLERY_Y = np.arange(30) % 4, np.arange(37) % 4


def unit_rows(rows, dim, seed):
    z = np.random.default_rng(seed).standard_normal((rows, dim)).astype(np.float32)
    return z / np.linalg.norm(z, axis=1, keepdims=True)


def models_of(*dims):
    return [ModelFeatures(unit_rows(30, dim, 2 * i), unit_rows(37, dim, 2 * i + 1)) for i, dim in enumerate(dims)]


def by_loops(models, arrival):
    accuracy, anew = [], []
    for t, model in enumerate(models):
        here = np.flatnonzero(arrival <= t)
        stored = np.stack([models[arrival[i]].gallery[i] for i in here])
        findable = np.isin(QUERY_Y, GALLERY_Y[here])
        for gallery, into in ((stored, accuracy), (model.gallery[here], anew)):
            found = GALLERY_Y[here][(model.query @ gallery.T).argmax(1)]
            into.append((found == QUERY_Y)[findable].mean())
    scores = models[-1].query @ stored.T
    fresh = models[-1].query @ models[-1].gallery.T
    versions = []
    for k in range(len(models)):
        items = arrival[here] == k
        same = QUERY_Y[:, None] == GALLERY_Y[None, items]
        offset = (scores - fresh)[:, items]
        share = (arrival[scores.argmax(1)] == k).mean()
        versions.append((items.mean(), share, offset[same].mean(), offset[~same].mean()))
    return accuracy, anew, versions


def test_against_loops():
    models = models_of(6, 6, 6)
    arrival = arrivals(GALLERY_Y, 3, 7)
    found = mixed_gallery(models, QUERY_Y, GALLERY_Y, arrival=arrival)
    accuracy, anew, versions = by_loops(models, arrival)
    np.testing.assert_allclose(found["accuracy"], accuracy)
    np.testing.assert_allclose(found["reindexed"], anew)
    told = [[v[key] for key in ("share_of_gallery", "share_of_hits", "score_offset", "score_offset_others")]
            for v in found["versions"]]  # fmt: skip
    np.testing.assert_allclose(told, versions, atol=1e-6)
    assert found["versions"][-1]["score_offset"] == pytest.approx(0, abs=1e-9)
    assert found["queries"] == [30, 30, 30]


def test_compact_features_change_nothing():
    models = models_of(12, 12)
    bases = [np.linalg.qr(np.random.default_rng(9 + i).standard_normal((12, 5)))[0].astype(np.float32) for i in (0, 1)]
    inside = [ModelFeatures(*(unit(part @ q @ q.T) for part in m[:2])) for m, q in zip(models, bases)]
    compact = [ModelFeatures(m.query @ q, m.gallery @ q, q) for m, q in zip(inside, bases)]
    full, small = (mixed_gallery(one, QUERY_Y, GALLERY_Y) for one in (inside, compact))
    assert small["accuracy"] == full["accuracy"]
    assert small["versions"][0]["score_offset"] == pytest.approx(full["versions"][0]["score_offset"], abs=1e-6)


def unit(z):
    return z / np.linalg.norm(z, axis=1, keepdims=True)


def test_one_space_for_ever():
    """Models that are one model: nothing is lost, nobody is buried, nothing is offset.

    An item is hit as often as in a gallery embedded at once, whenever it came.
    """
    models = models_of(6) * 4
    found = mixed_gallery(models, QUERY_Y, GALLERY_Y, arrival=arrivals(GALLERY_Y, 4, 3))
    assert found["accuracy"] == found["reindexed"]
    hit = (models[0].query @ models[0].gallery.T).argmax(1)
    share = np.bincount(arrivals(GALLERY_Y, 4, 3)[hit], minlength=4) / len(QUERY_Y)
    assert [version["share_of_hits"] for version in found["versions"]] == pytest.approx(share.tolist())
    for version in found["versions"]:
        assert version["score_offset"] == pytest.approx(0, abs=1e-7)


def test_items_of_an_incompatible_model_are_buried():
    """Centred on two axes far apart: the newer queries never find what the older model stored."""
    axis = [np.tile(np.eye(4, dtype=np.float32)[i], (37, 1)) for i in (0, 1)]
    models = [ModelFeatures(axis[0][:30], axis[0]), ModelFeatures(axis[1][:30], axis[1])]
    found = mixed_gallery(models, QUERY_Y, GALLERY_Y)
    old, new = found["versions"]
    assert (old["share_of_hits"], new["share_of_hits"]) == (0, 1)
    assert old["share_of_gallery"] == pytest.approx(0.5, abs=0.06)
    assert old["score_offset"] == pytest.approx(-1)
    assert old["score_offset_others"] == pytest.approx(-1)


def test_sizes_that_differ_leave_no_ranking():
    found = mixed_gallery(models_of(6, 8), QUERY_Y, GALLERY_Y)
    assert np.isfinite(found["accuracy"][0])
    assert np.isnan(found["accuracy"][1])
    assert np.isfinite(found["reindexed"][1])
    assert np.isnan(found["versions"][0]["share_of_hits"])
    assert np.isnan(found["versions"][0]["score_offset"])


def test_maps_carry_old_items():
    models = models_of(6, 6)
    turn = SpaceMap(6, 6, 12)
    with torch.no_grad():
        turned = torch.nn.functional.normalize(turn(torch.from_numpy(models[0].gallery)), dim=1).numpy()
    carried = [ModelFeatures(models[0].query, turned), models[1]]
    found = mixed_gallery(models, QUERY_Y, GALLERY_Y, maps=[None, turn])
    expected = mixed_gallery(carried, QUERY_Y, GALLERY_Y)
    assert found["accuracy"][1] == expected["accuracy"][1]
    for one, other in zip(found["versions"], expected["versions"], strict=True):
        assert one.pop("exposure") == other.pop("exposure")
        assert one == pytest.approx(other, abs=1e-6)
    assert np.isnan(mixed_gallery(models_of(5, 6), QUERY_Y, GALLERY_Y, maps=[None, turn])["accuracy"][1])


def test_arrivals_are_even_and_seeded():
    labels = np.repeat(np.arange(5), [40, 40, 40, 2, 1])
    arrival = arrivals(labels, 4, 0)
    for label in range(3):
        assert np.bincount(arrival[labels == label], minlength=4).tolist() == [10] * 4
    assert np.array_equal(arrival, arrivals(labels, 4, 0))
    assert not np.array_equal(arrival, arrivals(labels, 4, 1))


def test_queries_without_an_item_of_their_class_do_not_count():
    gallery_y = np.array([0] * 36 + [1])
    found = mixed_gallery(models_of(6, 6, 6), QUERY_Y, gallery_y)
    late = int(arrivals(gallery_y, 3, 0)[36])
    ones, zeros = int((QUERY_Y == 1).sum()), int((QUERY_Y == 0).sum())
    assert found["queries"] == [zeros + (ones if t >= late else 0) for t in range(3)]


def test_an_empty_gallery_is_refused():
    model = ModelFeatures(np.eye(3, dtype=np.float32), np.zeros((0, 3), np.float32))
    with pytest.raises(HoldfastError, match="the gallery is empty"):
        mixed_gallery([model], np.arange(3), np.arange(0))
