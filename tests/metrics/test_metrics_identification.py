"""Search metrics against brute force."""

import math

import numpy as np
import pytest

from holdfast.core.errors import HoldfastError
from holdfast.metrics import average_precision, mean_average_precision, queries_without_match, top_k_accuracy


def brute_force_map(queries, query_labels, gallery, gallery_labels):
    values = []
    for query, label in zip(queries, query_labels, strict=True):
        ranked = sorted(range(len(gallery)), key=lambda i: (-float(np.dot(query, gallery[i])), i))
        found, precisions = 0, []
        for rank, index in enumerate(ranked, start=1):
            if gallery_labels[index] == label:
                found += 1
                precisions.append(found / rank)
        if precisions:
            values.append(sum(precisions) / len(precisions))
    return sum(values) / len(values)


def unit(rng, n, d):
    x = rng.normal(size=(n, d))
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def test_top_k_against_a_loop():
    rng = np.random.default_rng(0)
    ranked, labels = rng.integers(0, 5, (40, 3)), rng.integers(0, 5, 40)
    assert top_k_accuracy(ranked, labels) == sum(labels[i] in ranked[i] for i in range(40)) / 40


def test_top_k_undefined_and_refused():
    assert math.isnan(top_k_accuracy(np.zeros((0, 3)), np.zeros(0)))
    with pytest.raises(HoldfastError, match="Q x k"):
        top_k_accuracy([1, 2], [1, 2])


@pytest.mark.parametrize("chunk", [1, 7, 1000])
def test_map_against_brute_force(chunk):
    rng = np.random.default_rng(1)
    queries, gallery = unit(rng, 30, 4), unit(rng, 50, 4)
    query_labels, gallery_labels = rng.integers(0, 7, 30), rng.integers(0, 5, 50)
    found = mean_average_precision(queries, query_labels, gallery, gallery_labels, chunk=chunk)
    assert found == pytest.approx(brute_force_map(queries, query_labels, gallery, gallery_labels), abs=1e-12)
    assert queries_without_match(query_labels, gallery_labels) == int((query_labels >= 5).sum()) > 0


def test_map_ties_go_to_the_lower_index():
    gallery = [[1.0, 0.0]] * 3
    assert mean_average_precision([[1.0, 0.0]], [1], gallery, [1, 0, 0]) == 1.0
    assert mean_average_precision([[1.0, 0.0]], [1], gallery, [0, 0, 1]) == pytest.approx(1 / 3)


def test_map_without_any_match_is_undefined():
    assert math.isnan(mean_average_precision([[1.0]], [3], [[1.0]], [0]))


def test_map_refusals():
    with pytest.raises(HoldfastError, match="Q x d"):
        mean_average_precision([[1.0, 0.0]], [0], [[1.0]], [0])
    with pytest.raises(HoldfastError, match="one label"):
        mean_average_precision([[1.0]], [0, 1], [[1.0]], [0])
    with pytest.raises(HoldfastError, match="NaN"):
        mean_average_precision([[np.nan]], [0], [[1.0]], [0])


def test_average_precision_of_a_list_cut_short():
    assert average_precision([True, False], num_relevant=4) == 0.25
    assert math.isnan(average_precision([False, False], num_relevant=0))
    with pytest.raises(HoldfastError, match="2 relevant items ranked, but num_relevant is 1"):
        average_precision([True, True], num_relevant=1)
