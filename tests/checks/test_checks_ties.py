"""Exact ties through ``check`` itself: the order of the file decides nothing, and scores are those of all orders."""

import itertools

import numpy as np
import pytest

from holdfast import check, check_history, check_mixed
from holdfast.checks import scores

ITEMS, QUERIES = 6, 12
ORDERS = np.array(list(itertools.permutations(range(ITEMS))))


def by_hand(name, k, grades):
    """The score of one ranking of grades."""
    top = grades[:k]
    relevant = (grades > 0).sum()
    places = np.flatnonzero(top > 0)
    if name == "nDCG":
        best = np.sort(grades)[::-1][:k]
        return (top / np.log2(np.arange(2, len(top) + 2))).sum() / (best / np.log2(np.arange(2, len(best) + 2))).sum()
    if name == "MRR":
        return 1 / (places[0] + 1) if len(places) else 0.0
    if name == "mAP":
        return sum((top[: place + 1] > 0).mean() for place in places) / relevant
    return {"hit": float(len(places) > 0), "P": len(places) / k, "recall": len(places) / relevant}[name]


def over_all_orders(name, k, table, grades):
    """The mean over queries of the mean score of all orders of each query's items that agree with its scores."""
    means = []
    for row, graded in zip(table, grades):
        if graded.any():
            ranked = [order[np.argsort(-row[order], kind="stable")] for order in ORDERS]
            means.append(np.mean([by_hand(name, k, graded[order]) for order in ranked]))
    return np.mean(means)


@pytest.fixture
def tied():
    """Vectors of few values, so that most scores tie, and grades of which some queries have none."""
    rng = np.random.default_rng(0)
    corners = np.array([[1.0, 0, 0], [0, 1, 0], [0, 0, 1]])
    gallery, old, new = (
        np.pad(corners[rng.integers(0, 3, count)], ((0, 0), (0, 1))) for count in (ITEMS, QUERIES, QUERIES)
    )
    old[:, 3], new[:, 3] = np.arange(QUERIES) / 3, -np.arange(QUERIES) / 4  # equal queries would count once
    grades = rng.choice([0.0, 0.0, 1.0, 2.0], (QUERIES, ITEMS))
    grades[3] = 0
    pairs = [(str(q), str(i), grades[q, i]) for q, i in zip(*np.nonzero(grades))]
    return gallery, old, new, grades, pairs


@pytest.mark.parametrize("further", [1, 8])
@pytest.mark.parametrize("name", ["nDCG@3", "nDCG", "MRR@2", "recall@2", "hit@1", "P@2", "mAP"])
def test_scores_are_means_over_all_orders(name, further, tied, monkeypatch):
    monkeypatch.setattr(scores, "FURTHER", further)
    gallery, old, new, grades, pairs = tied
    kind, _, k = name.partition("@")
    k = int(k or ITEMS)
    found = check((gallery,), (old,), (2 * new,), relevance=pairs, score=name)
    for queries, estimate in ((old, found.self_test), (new, found.cross_test)):
        assert estimate.value == pytest.approx(over_all_orders(kind, k, queries @ gallery.T, grades), abs=1e-9)
    ids = np.arange(ITEMS).astype(str)
    parts = [((gallery[:2], None, ids[:2]), None, None), ((gallery[2:], None, ids[2:]), None, None)]
    mixed = check_mixed(parts, (new,), (gallery, None, ids), relevance=pairs, score=name)
    assert mixed.accuracy.value == pytest.approx(found.cross_test.value, abs=1e-9)


@pytest.mark.parametrize("further", [1, 8])
def test_with_classes_and_queries_that_are_items(further, tied, monkeypatch):
    monkeypatch.setattr(scores, "FURTHER", further)
    gallery, _, new, _, _ = tied
    labels, ids = np.array([0, 0, 0, 1, 1, 2]), np.array([f"i{row}" for row in range(ITEMS)])
    for name in ("hit@1", "recall@2", "mAP"):
        kind, _, k = name.partition("@")
        found = check((gallery, labels, ids), (gallery, labels, ids), (2 * new[:6], labels, ids), score=name)
        assert found.stored_queries == ITEMS
        for queries, estimate in ((gallery, found.self_test), (new[:6], found.cross_test)):
            table = queries @ gallery.T
            np.fill_diagonal(table, -9)  # never before another item
            right = (labels[:, None] == labels) & ~np.eye(ITEMS, dtype=bool)
            expected = over_all_orders(kind, int(k or ITEMS), table, right.astype(float))
            assert estimate.value == pytest.approx(expected, abs=1e-9), name
    pair = ((gallery, labels), (gallery, labels)), ((2 * new[:6], labels), (gallery, labels))
    history = check_history(pair, score="hit@1")
    right = (labels[:, None] == labels).astype(float)
    expected = over_all_orders("hit", 1, new[:6] @ gallery.T, right)
    assert history.matrix[1][0].value == pytest.approx(expected, abs=1e-9)


def test_a_file_that_begins_with_the_right_item_is_no_yes():
    """The new model gives every query the same score with every item: with ties to the lower row it scored 1.000."""
    rng = np.random.default_rng(0)
    gallery, old = (np.pad(rng.standard_normal((count, 8)), ((0, 0), (0, 1))) for count in (31, 200))
    nowhere = np.tile(np.eye(9)[8], (200, 1))
    relevance = [(str(query), "0") for query in range(200)]
    for score in ("hit@1", "nDCG@10", "mAP"):
        found = check((gallery,), (old,), (nowhere,), relevance=relevance, groups=np.arange(200), score=score)
        assert found.cross_test.value == pytest.approx(found.chance)
        assert (found.better.answer, found.exit_code) != ("yes", 0)
    assert check((gallery,), (old,), (nowhere,), relevance=relevance, score="hit@1").cross_test.value < 0.033
