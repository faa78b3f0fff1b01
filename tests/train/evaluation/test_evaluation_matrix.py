"""The matrix against plain loops over images."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.checks.scores import templates
from holdfast.core.errors import HoldfastError
from holdfast.metrics import mean_precision, places
from holdfast.train.encoders import ModelFeatures
from holdfast.train.evaluation import compatibility_matrix, evaluate_run

RNG = np.random.default_rng(0)


def unit_rows(rows: int, dim: int, rng=RNG) -> np.ndarray:
    z = rng.standard_normal((rows, dim)).astype(np.float32)
    return z / np.linalg.norm(z, axis=1, keepdims=True)


def models_of(dims: list[int], queries=30, gallery=24, rng=RNG) -> list[ModelFeatures]:
    return [ModelFeatures(unit_rows(queries, dim, rng), unit_rows(gallery, dim, rng)) for dim in dims]


def loop_accuracy(query, query_labels, gallery, gallery_labels, protocol):
    if protocol == "template":
        classes = sorted(set(gallery_labels.tolist()))
        means = [np.mean([g for g, y in zip(gallery, gallery_labels) if y == c], axis=0) for c in classes]
        gallery = np.stack([m / np.linalg.norm(m) for m in means])
        gallery_labels = np.array(classes)
    hits = 0
    for feature, label in zip(query, query_labels):
        scores = [float(np.dot(feature.astype(np.float64), g)) for g in gallery]
        hits += gallery_labels[int(np.argmax(scores))] == label
    return hits / len(query)


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 1000), st.sampled_from(["template", "instance"]), st.integers(1, 4))
def test_equals_loops(seed, protocol, num_models):
    rng = np.random.default_rng(seed)
    models = models_of([5] * num_models, rng=rng)
    query_labels, gallery_labels = rng.integers(0, 4, 30), np.arange(24) % 4
    found = compatibility_matrix(models, query_labels, gallery_labels, protocol=protocol)
    for t in range(num_models):
        for k in range(num_models):
            if k > t:
                assert np.isnan(found[t, k])
            else:
                cell = (models[t].query, query_labels, models[k].gallery, gallery_labels)
                assert found[t, k] == pytest.approx(loop_accuracy(*cell, protocol))


def test_by_hand():
    # Two classes on two axes. The old model's query 1 points the wrong way, the new model's does not.
    gallery = np.eye(2, dtype=np.float32)
    old = ModelFeatures(np.array([[1, 0], [1, 0]], np.float32), gallery)
    new = ModelFeatures(np.array([[1, 0], [0, 1]], np.float32), gallery)
    C = compatibility_matrix([old, new], [0, 1], [0, 1])
    assert C[0, 0] == 0.5
    assert C[1].tolist() == [1.0, 1.0]


def test_templates_are_unit_means_in_label_order():
    features = np.array([[1.0, 0.0], [0.0, 1.0], [0.0, -1.0]], dtype=np.float32)
    vectors, classes = templates(features, np.array([7, 7, 3]))
    assert classes.tolist() == [3, 7]
    np.testing.assert_allclose(vectors, [[0.0, -1.0], [0.5**0.5, 0.5**0.5]], rtol=1e-6)


def test_models_of_different_size_give_nan():
    models = models_of([5, 7, 5])
    C = compatibility_matrix(models, np.arange(30) % 4, np.arange(24) % 4)
    assert np.isnan(C[1, 0])
    assert np.isnan(C[2, 1])
    assert np.isfinite(C[2, 0])
    assert np.isfinite(np.diagonal(C)).all()


def exact_map(query, query_labels, gallery, gallery_labels):
    scores = np.asarray(query, dtype=np.float64) @ np.asarray(gallery, dtype=np.float64).T
    return np.nanmean(mean_precision(places(scores, query_labels[:, None] == gallery_labels)))


def test_evaluate_run_has_the_documented_keys():
    models, labels = models_of([5, 5, 5]), (np.arange(30) % 4, np.arange(24) % 4)
    judged = evaluate_run(models, *labels, extra_scores=["top5", "mAP"])
    assert list(judged) == ["template", "instance"]
    for protocol in judged.values():
        assert {"AC", "AA", "ACA", "AC_tau", "AA_tau", "matrix"} <= protocol.keys()
        assert len(protocol["AC_tau"]) == len(protocol["AA_tau"]) == len(protocol["matrix"]) == 3
    extras = judged["instance"]["extras"]
    assert extras["mAP"][2][1] == pytest.approx(exact_map(models[2].query, labels[0], models[1].gallery, labels[1]))
    assert extras["top5"][2][0] >= judged["instance"]["matrix"][2][0]


@pytest.mark.parametrize("score", ["top1", "recall@3", "top5", "mAP", "auc", "tar@far=0.01"])
def test_every_score_is_one_for_perfect_features(score):
    features = np.eye(4, dtype=np.float32)[np.arange(400) % 4]
    labels = np.arange(400) % 4
    C = compatibility_matrix([(features, features)], labels, labels, protocol="instance", score=score)
    assert C[0, 0] == pytest.approx(1.0)


def test_bad_input():
    models = models_of([5])
    with pytest.raises(HoldfastError, match="template"):
        compatibility_matrix(models, np.zeros(30), np.zeros(24), protocol="mean")
    with pytest.raises(HoldfastError, match="top1"):
        compatibility_matrix(models, np.zeros(30), np.zeros(24), score="f1")
    with pytest.raises(HoldfastError, match=r"gallery of model 1.*23 labels"):
        compatibility_matrix(models, np.zeros(30), np.zeros(23))


def test_length_does_not_matter_and_nan_is_refused():
    models, labels = models_of([5, 5]), (np.arange(30) % 4, np.arange(24) % 4)
    longer = [(m.query * RNG.uniform(0.1, 9, (30, 1)), m.gallery * RNG.uniform(0.1, 9, (24, 1))) for m in models]
    for protocol in ("template", "instance"):
        plain = compatibility_matrix(models, *labels, protocol=protocol)
        assert np.array_equal(plain, compatibility_matrix(longer, *labels, protocol=protocol), equal_nan=True)
    broken = models[1].gallery.copy()
    broken[7] = np.nan
    with pytest.raises(HoldfastError, match=r"gallery of model 2: row 7 is not finite, 1 of 24"):
        compatibility_matrix([models[0], (models[1].query, broken)], *labels)


def test_mean_average_precision_leaves_out_queries_without_a_match():
    models = models_of([5])
    labels, gallery_labels = np.arange(30) % 5, np.arange(24) % 4  # nothing in the gallery is of class 4
    C = compatibility_matrix(models, labels, gallery_labels, protocol="instance", score="mAP")
    assert C[0, 0] == pytest.approx(exact_map(models[0].query, labels, models[0].gallery, gallery_labels))
