"""The verdict is never surer than its queries: small samples, high chance, scores that cannot be wrong."""

import math

import numpy as np
import pytest

from holdfast import check, check_history
from holdfast.checks.right_answers import ListedAnswers
from holdfast.checks.scores import chance
from holdfast.core.errors import HoldfastError
from holdfast.metrics import Places, gain_interval, ranking_score


@pytest.mark.parametrize(("queries", "lost_share"), [(20, 0.092), (40, 0.048), (100, 0.02), (100, 0.06), (400, 0.0051)])
def test_non_inferiority_is_not_said_too_often(queries, lost_share):
    """The true gain is what was asked for and all changes are losses: over all outcomes, by their exact chances."""
    wrongly = 0.0
    for lost in range(min(queries, 40) + 1):
        after = (np.arange(queries) >= lost).astype(float)
        if gain_interval(np.ones(queries), after).low > -lost_share:
            wrongly += math.comb(queries, lost) * lost_share**lost * (1 - lost_share) ** (queries - lost)
    assert wrongly <= 0.026


def scattered(labels, right, rng):
    """Unit features that find their class in a gallery of one direction per class where ``right``, else another."""
    target = np.where(right, labels, (labels + rng.integers(1, 2, len(labels))) % 2)
    return np.hstack([np.eye(2)[target], 0.2 * rng.standard_normal((len(labels), 6))])


def test_where_chance_is_high_a_space_is_not_called_unrelated():
    """Two classes: 62 and 56 right of 100. The cross-test's interval reaches chance, but nothing is shown."""
    labels, rng = np.arange(100) % 2, np.random.default_rng(0)
    old, new = (scattered(labels, rng.permutation(100) < right, rng) for right in (62, 56))
    found = check((np.eye(2, 8), np.arange(2)), (old, labels), (new, labels), groups=np.arange(100))
    assert found.self_test.low > found.chance == 0.5 > found.cross_test.low
    assert found.gain.high > 0
    assert found.verdict == "not shown"


def test_a_worse_space_is_not_called_unrelated_where_chance_is_high():
    """Two classes: 80 and 58 right of 100. The new space is worse, but 58 may be better than the 50 of chance."""
    labels, rng = np.arange(100) % 2, np.random.default_rng(0)
    old, new, strange = (scattered(labels, rng.permutation(100) < right, rng) for right in (80, 58, 48))
    found = check((np.eye(2, 8), np.arange(2)), (old, labels), (new, labels), max_loss=0.3, groups=np.arange(100))
    assert found.self_test.low > found.chance == 0.5 > found.cross_test.low
    assert found.reason == "the whole interval of the gain lies below no gain"
    assert found.loss.answer == "not shown"
    found = check((np.eye(2, 8), np.arange(2)), (old, labels), (strange, labels), max_loss=0.3, groups=np.arange(100))
    assert "unrelated" in found.reason
    assert found.loss.answer == "no"


def test_too_few_queries_are_never_called_unrelated():
    labels = np.arange(8)
    found = check((np.eye(8), labels), (np.eye(8), labels), (np.eye(8)[::-1], labels))
    assert (found.self_test.value, found.cross_test.value) == (1, 0)
    assert found.verdict == "not shown"
    assert "8 queries are too few" in found.reason


@pytest.mark.parametrize("name", ["hit@1", "hit@7", "recall@7", "P@3", "MRR@9", "nDCG@10", "mAP"])
def test_chance_is_exact(name):
    """Against random orders of a small gallery; one right item is not in it and is never found."""
    rng, score = np.random.default_rng(0), ranking_score(name)
    for count in (1, 5, 12):
        items = np.append(np.arange(count), -1)
        grades = 1.0 + np.arange(count + 1) % 3
        answers = ListedAnswers(1, 30, np.zeros(count + 1, int), items, grades)
        orders = rng.permuted(np.tile(np.arange(30), (4_000, 1)), axis=1)
        found = Places(4_000, np.repeat(np.arange(4_000), count + 1),
                       np.hstack([orders[:, :count], np.zeros((4_000, 1), int)]).ravel(),
                       np.tile(items >= 0, 4_000).astype(int), np.tile(grades, 4_000))  # fmt: skip
        assert chance(score, answers, 30) == pytest.approx(score(found).mean(), abs=0.025)


def test_an_unrelated_space_is_reported_by_other_scores(sets):
    labels = sets["queries_old"][1]
    strange = np.random.default_rng(0).standard_normal((600, 16)), labels
    found = check(sets["gallery"], sets["queries_old"], strange, score="hit@30")
    assert "unrelated" in found.reason


@pytest.mark.parametrize("score", ["hit@1", "mAP"])
def test_one_class_cannot_be_judged(score):
    """Every hit is right, so that any model would be called not inferior."""
    features, labels = np.random.default_rng(0).standard_normal((40, 6)), np.zeros(40, int)
    with pytest.raises(HoldfastError, match="one class"):
        check((features, labels), (features, labels), (2 * features, labels), score=score)


def test_more_hits_than_items_cannot_be_judged(sets):
    gallery = sets["gallery"]
    for score in ("hit@200", "hit@999"):
        with pytest.raises(HoldfastError, match="K is too large for the gallery"):
            check(gallery, sets["queries_old"], sets["queries_new"], score=score)
        with pytest.raises(HoldfastError, match="K is too large for the gallery"):
            check_history([(sets["queries_old"], gallery), (sets["queries_new"], gallery)], score=score)
    one = sets["gallery"][0][:1], sets["gallery"][1][:1]
    with pytest.raises(HoldfastError, match="the same for any features"):
        check(one, sets["queries_old"], sets["queries_new"])
    assert check(**sets, score="hit@150").chance < 1
