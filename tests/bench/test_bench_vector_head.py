"""The bench of the default head on vectors: an untrained head is the raw vectors, and versions are told apart."""

from pathlib import Path

import numpy as np
import pytest
import torch

from holdfast.core.errors import HoldfastError

BENCH = Path(__file__).parents[2] / "bench"
NO_TRAINING = ["train.lr=1e-12", "train.schedule=constant", "train.epochs=1", "buffer.per_class=2"]


@pytest.fixture
def vector_head(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCH))
    import vector_head

    return vector_head


def test_an_untrained_head_scores_as_the_raw_vectors(vector_head):
    labels = np.repeat([f"{n:02}" for n in range(8)], 12)
    centres = np.random.default_rng(0).standard_normal((8, 6)).repeat(12, axis=0)
    features = (centres + np.random.default_rng(1).standard_normal((96, 6))).astype(np.float32)
    names = np.unique(labels)
    found = vector_head.measure(features, labels, [names[:3], names[3:5]], names[5:], 0, NO_TRAINING)
    assert (found["queries"], found["gallery"]) == (18, 18)
    unit = features[60:] / np.linalg.norm(features[60:], axis=1, keepdims=True)
    asked = vector_head.half_of_each_class(np.repeat([0, 1, 2], 12), "query", 0)
    nearest = (unit[asked] @ unit[~asked].T).argmax(1)
    right = (labels[60:][~asked][nearest] == labels[60:][asked]).mean()
    assert found["raw"]["recall@1"] == pytest.approx(right)
    assert 0 < found["raw"]["mAP"] < 1
    assert [one["recall@1"] for one in found["own"]] == pytest.approx([right, right])
    assert found["kept"] == pytest.approx(1)
    assert found["exposure@10"] == pytest.approx([1, 1])
    assert len(found["seconds"]) == 2


def test_exposure_of_a_version_that_queries_do_not_find(vector_head):
    queries = np.arange(60) < 20
    new = torch.nn.functional.normalize(torch.rand(60, 4) + 0.1, dim=1)
    hidden, level = vector_head.exposures([-new, new], queries, 0)
    assert hidden == 0
    assert level > 1


def test_the_classes(vector_head):
    labels = np.array([f"{n:03}" for n in range(200)])
    parts, unseen = vector_head.split_classes(labels, validation=False)
    assert [len(part) for part in parts] == [40, 15, 15, 15, 15]
    assert np.concatenate([*parts, unseen]).tolist() == labels.tolist()
    parts, unseen = vector_head.split_classes(labels, validation=True)
    assert [len(part) for part in parts] == [24, 9, 9, 9, 9]
    assert sorted(np.concatenate([*parts, unseen])) == labels[:100].tolist()
    with pytest.raises(HoldfastError, match="2 classes, 200 are needed"):
        vector_head.split_classes(labels[:2], validation=False)
