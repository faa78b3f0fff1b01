"""The check's numbers against the evaluation layer, scikit-learn and plain loops."""

import numpy as np
import pytest

from holdfast import check
from holdfast.train.evaluation import compatibility_matrix
from holdfast.vectors import search

SCORES = {"top1": "top1", "recall@5": "top5", "mAP": "mAP"}


@pytest.mark.parametrize("protocol", ["instance", "template"])
@pytest.mark.parametrize("score", SCORES)
def test_equal_to_the_evaluation_layer(score, protocol, sets):
    found = check(**sets, score=score, protocol=protocol, resamples=100)
    models = [
        (sets["queries_old"][0], sets["gallery"][0]),
        (sets["queries_new"][0], sets["gallery_new"][0]),
    ]
    labels = sets["queries_old"][1], sets["gallery"][1]
    C = compatibility_matrix(models, *labels, protocol=protocol, score=SCORES[score])
    assert found.self_test.value == pytest.approx(C[0, 0], abs=1e-12)
    assert found.cross_test.value == pytest.approx(C[1, 0], abs=1e-12)
    assert found.new_self_test.value == pytest.approx(C[1, 1], abs=1e-12)
    assert found.gain.value == pytest.approx(C[1, 0] - C[0, 0], abs=1e-12)
    assert found.gain.low <= found.gain.value <= found.gain.high
    for estimate in (found.self_test, found.cross_test, found.new_self_test):
        assert 0 <= estimate.low <= estimate.value <= estimate.high <= 1


@pytest.mark.parametrize("block_rows", [1, 7, 64, 199])
def test_blocks_change_nothing(block_rows, sets, monkeypatch):
    whole = check(**sets, score="recall@3", resamples=100).as_json()
    monkeypatch.setattr(search, "BLOCK_BYTES", 4 * 16 * block_rows)
    assert check(**sets, score="recall@3", resamples=100).as_json() == whole


def test_scikit_learn_agrees_on_map():
    metrics = pytest.importorskip("sklearn.metrics")
    for seed in range(3):
        rng = np.random.default_rng(seed)
        gallery, old, new = (rng.standard_normal((n, 6)).astype(np.float32) for n in (80, 50, 50))
        gallery_labels, labels = rng.integers(0, 5, 80), rng.integers(0, 5, 50)
        found = check((gallery, gallery_labels), (old, labels), (new, labels), score="mAP", resamples=100)

        def cosines(queries, gallery=gallery):
            unit = [z / np.linalg.norm(z, axis=1, keepdims=True) for z in (queries, gallery)]
            return unit[0] @ unit[1].T

        for queries, estimate in ((old, found.self_test), (new, found.cross_test)):
            table = cosines(queries)
            expected = [
                metrics.average_precision_score(gallery_labels == y, row) for y, row in zip(labels, table, strict=True)
            ]
            assert estimate.value == pytest.approx(np.mean(expected), abs=1e-6)


def test_changes_equal_a_loop(sets):
    found = check(**sets)
    hits = {}
    gallery, gallery_labels = sets["gallery"]
    for which in ("queries_old", "queries_new"):
        features, labels = sets[which]
        hits[which] = [int(np.argmax(gallery @ feature)) for feature in features]
    labels = sets["queries_old"][1]
    right = {k: [gallery_labels[h] == y for h, y in zip(v, labels)] for k, v in hits.items()}
    lost = [i for i in range(600) if right["queries_old"][i] and not right["queries_new"][i]]
    gained = [i for i in range(600) if right["queries_new"][i] and not right["queries_old"][i]]
    assert (found.changes.lost, found.changes.gained) == (len(lost), len(gained))
    assert [entry["query"] for entry in found.changes.lost_queries] == lost
    for entry in found.changes.lost_queries:
        assert entry["old_hit"] == hits["queries_old"][entry["query"]]
        assert entry["new_hit"] == hits["queries_new"][entry["query"]]
        assert entry["taken_for"] == gallery_labels[entry["new_hit"]] != entry["class"]
    worst = found.by_class[0]
    members = [i for i in range(600) if labels[i] == worst["class"]]
    assert worst["queries"] == len(members)
    assert worst["old"] == pytest.approx(np.mean([right["queries_old"][i] for i in members]))
    assert worst["new"] == pytest.approx(np.mean([right["queries_new"][i] for i in members]))
    changes = [entry["change_in_queries"] for entry in found.by_class]
    assert changes == sorted(changes)
    assert sum(changes) == pytest.approx(len(gained) - len(lost))


def test_what_a_new_index_would_add(sets):
    found = check(**sets)
    s, x, n = found.self_test.value, found.cross_test.value, found.new_self_test.value
    assert found.reindex.adds.value == pytest.approx(n - x)
    assert found.reindex.share_reached == pytest.approx((x - s) / (n - s))


def test_chance_is_what_random_features_get():
    rng = np.random.default_rng(0)
    labels, gallery_labels = rng.integers(0, 4, 8_000), rng.choice(4, 300, p=[0.4, 0.3, 0.2, 0.1])
    old, new = (rng.standard_normal((8_000, 8)).astype(np.float32) for _ in range(2))
    gallery = rng.standard_normal((300, 8)).astype(np.float32)
    for score in ("top1", "recall@3"):
        found = check((gallery, gallery_labels), (old, labels), (new, labels), score=score, resamples=100)
        assert found.self_test.value == pytest.approx(found.chance, abs=0.05)


def test_the_old_threshold(clustered):
    """New queries that lie closer to everything: the old threshold lets in more strangers."""
    labels, gallery_labels = np.arange(400) % 8, np.arange(160) % 8
    gallery = clustered(gallery_labels, 0.3, seed=1)
    old = clustered(labels, 0.3, seed=2)
    common = gallery.mean(0) / np.linalg.norm(gallery.mean(0))
    new = old + 0.8 * common
    found = check((gallery, gallery_labels), (old, labels), (new, labels), far=0.05).thresholds
    assert found.old_far == pytest.approx(0.05, abs=1e-3)
    assert found.verdict == "higher"
    assert found.far_change.low > 0
    assert found.new_threshold > found.threshold
    assert found.new_threshold_far <= found.old_far
    same = check((gallery, gallery_labels), (old, labels), (2 * old, labels), threshold=0.7).thresholds
    assert (same.verdict, same.threshold, same.given) == ("holds", 0.7, True)
    assert same.new_far == same.old_far
    # Every pair was drawn from all; the rate of all pairs is near.
    cosines, different = old @ gallery.T, labels[:, None] != gallery_labels[None]
    assert same.old_far == pytest.approx((cosines[different] >= 0.7).mean(), abs=0.01)
