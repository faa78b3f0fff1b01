"""The functions of two-stage search against their slow, obvious forms."""

import numpy as np
import pytest

from holdfast.core.errors import HoldfastError
from holdfast.upgrade.strategies import (
    Candidates,
    blended_queries,
    candidate_scores,
    combined_scores,
    merged_candidates,
    ranked,
    standardised,
)


def slow_standardised(row: np.ndarray) -> list[float]:
    present = [value for value in row if value > -np.inf]
    mean, deviation = np.mean(present), np.std(present)
    return [(value - mean) / deviation if value > -np.inf else -np.inf for value in row]


def test_standardised_scores_leave_missing_ones_out():
    scores = np.random.default_rng(0).random((5, 7))
    scores[2, 5:] = -np.inf
    scores[3, 6] = np.nan
    found = standardised(scores)
    expected = np.array([slow_standardised(np.where(np.isnan(row), -np.inf, row)) for row in scores])
    assert np.allclose(found, expected)


def test_equal_scores_say_nothing_whatever_their_rounding():
    even = np.float32(0.1) + np.zeros((1, 5), np.float32)
    even[0, 0] = np.nextafter(np.float32(0.1), np.float32(1))
    assert standardised(even).tolist() == [[0.0] * 5]
    assert standardised(np.full((1, 3), -np.inf)).tolist() == [[-np.inf] * 3]


def test_the_weights_at_the_ends_give_one_model_s_order():
    rng = np.random.default_rng(1)
    items = np.arange(60).reshape(4, 15)
    old, new = rng.random((4, 15)), rng.random((4, 15))
    for weight, alone in ((0.0, old), (1.0, new)):
        order = ranked(items, combined_scores(old, new, weight)).items
        assert order.tolist() == ranked(items, alone).items.tolist()
    assert np.allclose(combined_scores(old, new, 1.0), new)  # as they are: a threshold on the new score still holds


def test_a_candidate_without_a_new_score_comes_last_in_its_old_order():
    old = np.array([[0.9, 0.8, 0.7, 0.6]])
    new = np.array([[np.nan, 0.1, -np.inf, 0.3]])
    for weight in (1.0, 0.7):
        order = ranked([[0, 1, 2, 3]], combined_scores(old, new, weight)).items
        assert order.tolist() == [[3, 1, 0, 2]]
    alone = ranked([[0, 1, 2, 3]], combined_scores(old, np.full((1, 4), np.nan), 0.7)).items
    assert alone.tolist() == [[0, 1, 2, 3]]  # no new score at all: the old order


def test_merged_candidates_are_those_of_a_slow_merge():
    rng = np.random.default_rng(2)
    first = Candidates(np.array([rng.permutation(30)[:10] for _ in range(6)]), -np.sort(-rng.random((6, 10))))
    second = Candidates(np.array([rng.permutation(30)[:10] for _ in range(6)]), -np.sort(-rng.random((6, 10)) * 3))
    first.scores[1, 7:] = -np.inf
    merged, whole = merged_candidates(first, second, 12), merged_candidates(first, second, 20)
    for query in range(6):
        best: dict[int, float] = {}
        for part in (first, second):
            for item, score in zip(part.items[query], slow_standardised(part.scores[query]), strict=True):
                best[item] = max(best.get(item, -np.inf), score)
        expected = sorted((item for item in best if best[item] > -np.inf), key=lambda item: -best[item])
        assert merged.items[query].tolist() == expected[:12]
        assert whole.items[query, : len(expected)].tolist() == expected  # an item of both takes one place
        assert (whole.scores[query, len(expected) :] == -np.inf).all()
        assert np.allclose(merged.scores[query], [best[item] for item in expected[:12]])


def test_candidate_scores_are_cosines():
    rng = np.random.default_rng(3)
    queries, vectors = rng.standard_normal((4, 8)), 5 * rng.standard_normal((4, 6, 8))
    lengths = np.linalg.norm(queries, axis=1)[:, None] * np.linalg.norm(vectors, axis=2)
    expected = np.array([[query @ row for row in rows] for query, rows in zip(queries, vectors, strict=True)]) / lengths
    vectors[1, 2, 3], vectors[2, 0] = np.inf, 0
    expected[1, 2] = expected[2, 0] = -np.inf
    assert np.allclose(candidate_scores(queries, vectors), expected, atol=1e-5)


def test_a_blend_ranks_by_the_weighted_sum_of_both_scores():
    rng = np.random.default_rng(4)
    old, bridged, stored = (rng.standard_normal((count, 8)) for count in (5, 5, 40))
    stored /= np.linalg.norm(stored, axis=1, keepdims=True)
    unit = [part / np.linalg.norm(part, axis=1, keepdims=True) for part in (old, bridged)]
    scores = 0.7 * unit[0] @ stored.T + 0.3 * unit[1] @ stored.T
    found = blended_queries(old, bridged, 0.3) @ stored.T
    assert np.argsort(-found, axis=1)[:, :5].tolist() == np.argsort(-scores, axis=1)[:, :5].tolist()


@pytest.mark.parametrize(
    ("refused", "message"),
    [
        (lambda: combined_scores([[1.0]], [[1.0]], -0.1), "weight must lie between 0 and 1"),
        (lambda: combined_scores([[1.0]], [[1.0]], float("nan")), "weight must lie between 0 and 1"),
        (lambda: combined_scores([[1.0]], [[1.0, 2.0]], 0.5), "both must be Q x C"),
        (lambda: candidate_scores([[1.0, 0.0]], [[[1.0]]]), "Q x d and Q x C x d"),
        (lambda: blended_queries([[1.0, 0.0]], [[1.0]], 0.5), "must have one shape"),
    ],
)
def test_weights_and_shapes_that_do_not_fit_are_refused(refused, message):
    with pytest.raises(HoldfastError, match=message):
        refused()
