"""The check's numbers against the evaluation layer, scikit-learn and plain loops."""

import numpy as np
import pytest

from holdfast import check
from holdfast.train.evaluation import compatibility_matrix
from holdfast.vectors import search

SCORES = {"hit@1": "top1", "hit@5": "top5", "mAP": "mAP"}


@pytest.mark.parametrize("protocol", ["instance", "template"])
@pytest.mark.parametrize("score", SCORES)
def test_equal_to_the_evaluation_layer(score, protocol, sets):
    found = check(**sets, score=score, protocol=protocol)
    models = [
        (sets["queries_old"][0], sets["gallery"][0]),
        (sets["queries_new"][0], sets["gallery_new"][0]),
    ]
    labels = sets["queries_old"][1], sets["gallery"][1]
    C = compatibility_matrix(models, *labels, protocol=protocol, score=SCORES[score])
    near = 1e-6 if score == "mAP" else 1e-12  # scores that differ by less than a millionth are tied
    assert found.self_test.value == pytest.approx(C[0, 0], abs=near)
    assert found.cross_test.value == pytest.approx(C[1, 0], abs=near)
    assert found.new_self_test.value == pytest.approx(C[1, 1], abs=near)
    assert found.gain.value == pytest.approx(C[1, 0] - C[0, 0], abs=near)
    assert found.gain.low <= found.gain.value <= found.gain.high
    for estimate in (found.self_test, found.cross_test, found.new_self_test):
        assert 0 <= estimate.low <= estimate.value <= estimate.high <= 1


@pytest.mark.parametrize("block_rows", [1, 7, 64, 199])
def test_blocks_change_nothing(block_rows, sets, monkeypatch):
    whole = check(**sets, score="hit@3").as_json()
    monkeypatch.setattr(search, "BLOCK_BYTES", 4 * 16 * block_rows)
    assert check(**sets, score="hit@3").as_json() == whole


def test_scikit_learn_agrees_on_map():
    metrics = pytest.importorskip("sklearn.metrics")
    for seed in range(3):
        rng = np.random.default_rng(seed)
        gallery, old, new = (rng.standard_normal((n, 6)).astype(np.float32) for n in (80, 50, 50))
        gallery_labels, labels = rng.integers(0, 5, 80), rng.integers(0, 5, 50)
        found = check((gallery, gallery_labels), (old, labels), (new, labels), score="mAP")

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
    assert sorted(entry["query"] for entry in found.changes.lost_queries) == lost
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
    for score in ("hit@1", "hit@3"):
        found = check((gallery, gallery_labels), (old, labels), (new, labels), score=score)
        assert found.self_test.value == pytest.approx(found.chance, abs=0.05)
