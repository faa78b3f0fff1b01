"""The verdict is never surer than its queries: small samples, high chance, scores that cannot be wrong."""

import math

import numpy as np
import pytest

from holdfast import check, check_history
from holdfast.checks.scores import parse_score
from holdfast.core.errors import HoldfastError
from holdfast.metrics import gain_interval


@pytest.mark.parametrize(("queries", "lost_share"), [(20, 0.092), (40, 0.048), (100, 0.02), (100, 0.06), (400, 0.0051)])
def test_non_inferiority_is_not_said_too_often(queries, lost_share):
    """The true gain is what was asked for and all changes are losses: over all outcomes, by their exact chances."""
    wrongly = 0.0
    for lost in range(min(queries, 40) + 1):
        after = (np.arange(queries) >= lost).astype(float)
        if gain_interval(np.ones(queries), after).low > -lost_share:
            wrongly += math.comb(queries, lost) * lost_share**lost * (1 - lost_share) ** (queries - lost)
    assert wrongly <= 0.026


def test_few_changed_scores_are_no_certainty():
    scores = np.linspace(0.1, 0.9, 12)
    same = gain_interval(scores, scores)
    assert same.low < -0.1
    assert same.high > 0.1
    later = scores + np.where(np.arange(12) < 3, 0.05, 0)
    assert gain_interval(scores, later).low < 0


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


@pytest.mark.parametrize("score", ["top1", "recall@7", "recall@30", "mAP"])
def test_chance_is_exact(score):
    """Against random orders of a small gallery."""
    rng = np.random.default_rng(0)
    right = np.array([1, 5, 12])
    orders = rng.permuted(np.tile(np.arange(30), (20_000, 1)), axis=1)
    for count, found in zip(right, parse_score(score).by_chance(right, 30), strict=True):
        hits = orders < count
        if score == "mAP":
            slow = ((hits.cumsum(1) / np.arange(1, 31) * hits).sum(1) / count).mean()
        else:
            slow = hits[:, : parse_score(score).k].any(1).mean()
        assert found == pytest.approx(slow, abs=0.012)


def test_an_unrelated_space_is_reported_by_other_scores(sets):
    labels = sets["queries_old"][1]
    strange = np.random.default_rng(0).standard_normal((600, 16)), labels
    found = check(sets["gallery"], sets["queries_old"], strange, score="recall@30", resamples=300)
    assert "unrelated" in found.reason


@pytest.mark.parametrize("score", ["top1", "mAP"])
def test_one_class_cannot_be_judged(score):
    """Every hit is right, so that any model would be called not inferior."""
    features, labels = np.random.default_rng(0).standard_normal((40, 6)), np.zeros(40, int)
    with pytest.raises(HoldfastError, match="one class"):
        check((features, labels), (features, labels), (2 * features, labels), score=score)


def test_more_hits_than_items_cannot_be_judged(sets):
    gallery = sets["gallery"]
    for score in ("recall@200", "recall@999"):
        with pytest.raises(HoldfastError, match="K is too large for the gallery"):
            check(gallery, sets["queries_old"], sets["queries_new"], score=score)
        with pytest.raises(HoldfastError, match="K is too large for the gallery"):
            check_history([(sets["queries_old"], gallery), (sets["queries_new"], gallery)], score=score)
    one = sets["gallery"][0][:1], sets["gallery"][1][:1]
    with pytest.raises(HoldfastError, match="the same for any features"):
        check(one, sets["queries_old"], sets["queries_new"])
    assert check(**sets, score="recall@150", resamples=100).chance < 1


def test_confidence_needs_resamples(sets):
    with pytest.raises(HoldfastError, match=r"at least 20000 at confidence 0.9999"):
        check(**sets, confidence=0.9999)
