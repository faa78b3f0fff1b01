"""Ranking scores against their definitions, position by position, averaged over every order of the tied items."""

import itertools
import math

import numpy as np
import pytest

from holdfast.core.errors import HoldfastError
from holdfast.metrics.ranking import (
    PlaceCounter,
    Places,
    hit_at,
    mrr,
    ndcg,
    places,
    places_of_hits,
    precision_at,
    ranking_score,
    recall_at,
    ties_beyond,
)

NAMES = ["nDCG@1", "nDCG@3", "nDCG@10", "nDCG", "MRR@2", "MRR", "recall@2", "recall@5", "hit@1", "hit@3", "P@3", "P@9"]
NAMES += ["mAP", "mAP@3"]


def of_one_order(name: str, ranked: list[float], judged: list[float]) -> float:
    """The score by its definition. ranked: the grades in the order shown. judged: the grades of all relevant items."""
    kind, _, cut = name.partition("@")
    k = int(cut) if cut else len(ranked)
    top, total = ranked[:k], len(judged)
    if kind == "nDCG":
        best = sorted(judged, reverse=True)[: k if cut else None]
        gains = (sum(grade / math.log2(place + 2) for place, grade in enumerate(row)) for row in (top, best))
        return next(gains) / next(gains)
    if kind == "MRR":
        return next((1 / (place + 1) for place, grade in enumerate(top) if grade > 0), 0.0)
    if kind == "mAP":
        hits = [place for place, grade in enumerate(top) if grade > 0]
        return sum((number + 1) / (place + 1) for number, place in enumerate(hits)) / total
    found = sum(grade > 0 for grade in top)
    return {"recall": found / total, "hit": float(found > 0), "P": found / k}[kind]


def over_all_orders(name: str, scores: list[float], grades: list[float], unranked: list[float]) -> float:
    """The mean score over every order of the items that agrees with their scores."""
    judged = [grade for grade in [*grades, *unranked] if grade > 0]
    values = [
        of_one_order(name, [grades[i] for i in order], judged)
        for order in itertools.permutations(range(len(scores)))
        if all(scores[a] >= scores[b] for a, b in itertools.pairwise(order))
    ]
    return float(np.mean(values))


@pytest.mark.parametrize("name", NAMES)
def test_ties_count_by_their_expected_value(name):
    draw = np.random.default_rng(3)
    tied = 0
    for case in range(60):
        items = int(draw.integers(1, 7))
        scores = draw.integers(0, 3, items).astype(float)  # often equal
        grades = draw.choice([0, 0, 1, 2, 0.5], items)
        unranked = draw.choice([1, 2], int(draw.integers(0, 3)))
        if not (grades > 0).any() and not len(unranked):
            grades[0] = 1
        ranked = places([scores], [grades])
        nothing = np.zeros(len(unranked), int)
        both = Places(
            1,
            np.concatenate([ranked.query, nothing]),
            np.concatenate([ranked.above, nothing]),
            np.concatenate([ranked.tied, nothing]),
            np.concatenate([ranked.grade, unranked]),
        )
        tied += int((ranked.tied > 1).any())
        expected = over_all_orders(name, scores.tolist(), grades.tolist(), unranked.tolist())
        assert ranking_score(name)(both)[0] == pytest.approx(expected, abs=1e-12), (case, scores, grades, unranked)
    assert tied > 20


@pytest.mark.parametrize("name", NAMES)
def test_without_ties_it_is_the_definition(name):
    draw = np.random.default_rng(4)
    queries, items = 40, 300
    scores = np.stack([draw.permutation(items) for _ in range(queries)]).astype(np.float32)
    grades = np.where(draw.random((queries, items)) < 0.03, draw.integers(1, 4, (queries, items)), 0)
    grades[:, 0] = 1
    values = ranking_score(name)(places(scores, grades))
    for row in range(queries):
        ranked = grades[row][np.argsort(-scores[row])].tolist()
        judged = [grade for grade in ranked if grade > 0]
        assert values[row] == pytest.approx(of_one_order(name, ranked, judged), abs=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_equal_entries_may_share_one(name):
    long = Places(2, [0, 0, 0, 1, 1, 1], [2, 2, 9, 4, 0, 0], [5, 5, 1, 2, 0, 0], [1, 1, 2, 1, 3, 3])
    short = Places(2, [0, 0, 1, 1], [2, 9, 4, 0], [5, 1, 2, 0], [1, 2, 1, 3], [2, 1, 1, 2])
    assert np.array_equal(ranking_score(name)(long), ranking_score(name)(short))


@pytest.mark.parametrize("name", [name for name in NAMES if "@" in name and name != "nDCG@10"])
def test_the_hits_of_a_search_are_enough_unless_they_say_otherwise(name):
    draw = np.random.default_rng(5)
    queries, items, shown = 200, 60, 12
    scores = draw.integers(0, 8, (queries, items)).astype(np.float32)
    grades = np.where(draw.random((queries, items)) < 0.1, draw.integers(1, 3, (queries, items)), 0)
    order = np.argsort(-scores, axis=1, kind="stable")[:, :shown]
    hits, hit_grades = (np.take_along_axis(table, order, axis=1) for table in (scores, grades))
    query, item = np.nonzero(grades)
    score = ranking_score(name)
    exact = score(places(scores, grades))
    found = score(places_of_hits(hits, hit_grades, query, grades[query, item]))
    beyond = ties_beyond(hits, score.k, items)
    assert 0 < beyond.sum() < queries
    np.testing.assert_allclose(found[~beyond], exact[~beyond], atol=1e-12)
    assert not np.allclose(found, exact, equal_nan=True)  # so those named do need to be counted again


def test_blocks_in_any_order_count_the_same():
    draw = np.random.default_rng(6)
    scores = draw.integers(0, 9, (15, 80)).astype(np.float32)
    scores[draw.random((15, 80)) < 0.1] = -np.inf
    scores[draw.random((15, 80)) < 0.1] = np.nan
    grades = (draw.random((15, 80)) < 0.2).astype(float)
    query, item = np.nonzero(grades)
    counter = PlaceCounter(query, item, 15)
    blocks = np.array_split(draw.permutation(80)[:70], 7)  # ten items are in no block
    for block in blocks:
        counter.read(block, scores[:, block])
    for block in reversed(blocks):
        counter.count(scores[:, block])
    found = counter.places()
    ranked = np.concatenate(blocks)
    for entry, (row, number) in enumerate(zip(query, item)):
        others = scores[row, ranked]
        shown = number in ranked and scores[row, number] > -np.inf
        assert found.tied[entry] == ((others == scores[row, number]).sum() if shown else 0)
        assert found.above[entry] == ((others > scores[row, number]).sum() if shown else 0)


def test_a_ranking_that_says_nothing_scores_as_a_random_one():
    """All items tie, so the order of the file says nothing: 1 of 32 has the right class."""
    grades = np.eye(32)
    flat = places(np.full((32, 32), 0.7, np.float32), grades)
    assert np.allclose(hit_at(flat, 1), 1 / 32)
    draw = np.random.default_rng(0)
    random = places(draw.random((20_000, 6)), np.tile([2, 0, 1, 0, 0, 0], (20_000, 1)))
    for name in ("nDCG@3", "mAP", "MRR", "hit@2", "recall@2", "P@2"):
        score = ranking_score(name)
        assert score(random).mean() == pytest.approx(score(random.in_any_order(6))[0], abs=0.006)
    with pytest.raises(HoldfastError, match="but only 1 in all"):
        random.in_any_order(1)


def test_a_million_tied_items_are_no_loop():
    many = Places(2, [0, 1, 1], [0, 10, 500_000], [1_000_000, 1, 3], None, [1000, 1, 2])
    assert hit_at(many, 10)[0] == pytest.approx(1 - math.prod((999_000 - i) / (1_000_000 - i) for i in range(10)))
    assert recall_at(many, 10)[0] == pytest.approx(1e-5)
    # The mean of 1 / place over places 1 .. n, weighted by the chance of each to be the first.
    place = np.arange(1, 999_002, dtype=np.float64)
    chance = 1000 / (1_000_000 - place + 1) * np.concatenate([[1], np.cumprod(1 - 1000 / (1_000_000 - place[:-1] + 1))])
    assert mrr(many)[0] == pytest.approx((chance / place).sum())
    expected = 1 / 11 / 3  # the first relevant item; the others are two of three from place 500,001 on
    inverse = sum(1 / i for i in range(500_001, 500_004))
    expected += 2 * (2 * inverse + 0.5 * (3 - 500_001 * inverse)) / 3 / 3
    assert ranking_score("mAP")(many)[1] == pytest.approx(expected, rel=1e-9)


def test_a_query_without_relevant_items_is_undefined():
    some = Places(3, [2], [0], [0])
    for name in NAMES:
        assert np.array_equal(ranking_score(name)(some), [np.nan, np.nan, 0.0], equal_nan=True)
        assert np.isnan(ranking_score(name)(Places(2, [], [], []))).all()


def test_names():
    assert ranking_score("RECALL@5").name == "recall@5"
    assert ranking_score("map").k is None
    for bad in ("ndcg10", "nDCG@0", "top1", "recall@", "ERR@3"):
        with pytest.raises(HoldfastError, match=r"unknown score .*nDCG@K, MRR@K, recall@K, hit@K, P@K, mAP"):
            ranking_score(bad)
    with pytest.raises(HoldfastError, match="needs the number of hits that count, such as hit@10"):
        ranking_score("hit")


def test_impossible_places_are_refused():
    for wrong in (
        {"query": [1]},
        {"above": [-1]},
        {"tied": [-1]},
        {"grade": [0.0]},
        {"grade": [np.nan]},
        {"count": [0]},
    ):
        with pytest.raises(HoldfastError, match="entry 0 is impossible"):
            Places(**{"queries": 1, "query": [0], "above": [0], "tied": [1], **wrong})
    with pytest.raises(HoldfastError, match="above has the shape"):
        Places(1, [0], [0, 1], [1])
    with pytest.raises(HoldfastError, match="sufficient ties"):
        hit_at(Places(1, [0, 0], [3, 3], [1, 1]), 5)
    with pytest.raises(HoldfastError, match="Q x N both"):
        places([[0.1, 0.2]], [[1]])
    with pytest.raises(HoldfastError, match="found more items of grade 1 than it has"):
        places_of_hits([[0.9, 0.8]], [[1, 1]], query=[0], grade=[1])
    with pytest.raises(HoldfastError, match="at least 1"):
        precision_at(Places(1, [0], [0], [1]), 0)
    with pytest.raises(HoldfastError, match="3 hits are needed"):
        ties_beyond([[0.9, 0.8]], 3, 100)


def test_ndcg_counts_relevant_items_that_are_not_ranked():
    assert ndcg(Places(1, [0, 0], [0, 0], [1, 0]), 10)[0] == pytest.approx(1 / (1 + 1 / math.log2(3)))


def test_equal_vectors_tie_although_a_product_rounds_them_differently():
    """Twenty equal items whose scores differ by rounding, and two that are really better or worse."""
    draw = np.random.default_rng(7)
    noise = draw.choice(np.array([-1.5e-8, 0, 1.5e-8], np.float32), (50, 22))
    scores = np.repeat(draw.uniform(0.2, 0.8, (50, 1)).astype(np.float32), 22, axis=1) + noise
    scores[:, 4] += 0.001
    scores[:, 9] -= 0.001
    grades = np.zeros((50, 22))
    grades[:, 0] = 1
    order = np.argsort(-scores, axis=1, kind="stable")
    hits, hit_grades = (np.take_along_axis(table, order, axis=1) for table in (scores, grades))
    found = places_of_hits(hits, hit_grades, np.arange(50), np.ones(50))
    assert (found.above.tolist(), found.tied.tolist()) == ([1] * 50, [20] * 50)
    assert ties_beyond(hits[:, :12], 3, 22).all()
    counted = places(scores, grades)
    assert ((counted.above == 1) & (counted.tied == 20)).mean() > 0.9  # the grid of six digits may part a few
