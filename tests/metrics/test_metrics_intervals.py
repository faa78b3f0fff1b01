"""Intervals against exact tests, slow references and simulations with a known truth."""

import math
from pathlib import Path

import numpy as np
import pytest

from holdfast.core.errors import HoldfastError
from holdfast.metrics.distributions import fair_coin_tail, incomplete_beta, student_quantile
from holdfast.metrics.intervals import (
    gain_interval,
    lower_bound,
    mean_interval,
    ratio_interval,
    repeated_queries,
    same_answers,
    units_needed,
)

BENCH = Path(__file__).parents[2] / "bench"


def paired(gained: int, lost: int, queries: int) -> tuple[np.ndarray, np.ndarray]:
    before, after = np.zeros(queries), np.zeros(queries)
    after[:gained] = 1
    before[gained : gained + lost] = 1
    return before, after


@pytest.mark.parametrize(("right", "queries"), [(1, 5), (3, 20), (20, 20), (90, 100), (700, 1000), (9990, 10_000)])
def test_hits_have_the_exact_interval_of_clopper_and_pearson(right, queries):
    found = mean_interval([1.0] * right + [0.0] * (queries - right))
    assert incomplete_beta(right, queries - right + 1, found.low) == pytest.approx(0.025, rel=0.06)
    if right < queries:
        assert 1 - incomplete_beta(right + 1, queries - right, found.high) == pytest.approx(0.025, rel=0.06)
    else:
        assert found.high == 1


@pytest.mark.parametrize("queries", [50, 300, 5000])
@pytest.mark.parametrize(("gained", "lost"), [(5, 0), (6, 0), (7, 1), (9, 1), (12, 3), (30, 14), (30, 16)])
def test_a_gain_is_shown_exactly_if_mcnemar_says_so(gained, lost, queries):
    before, after = paired(gained, lost, queries)
    assert (gain_interval(before, after).low > 0) == (fair_coin_tail(lost, gained + lost) < 0.025)
    assert gain_interval(after, before).high == pytest.approx(-gain_interval(before, after).low)


def test_the_bound_is_the_quantile_of_a_bayesian_bootstrap_with_the_worst_value():
    draw = np.random.default_rng(0)
    for values in (draw.normal(0.05, 0.3, 60).clip(-1, 1), draw.choice([0, 0, 0, 0.3, -0.7], 40), np.array([0.2, 0.9])):
        weights = draw.exponential(size=(200_000, len(values) + 1))
        means = weights @ np.append(values, -1.0) / weights.sum(1)
        assert (means < lower_bound(values, -1.0, 0.025)).mean() == pytest.approx(0.025, abs=0.0015)


def test_nothing_changed_in_few_queries_is_not_sure():
    """The rule of three: 300 queries without a loss may hide one of 1.2 points, 400 one of 0.9."""
    for queries in (100, 300, 368, 5000):
        same = gain_interval(np.ones(queries), np.ones(queries))
        assert same.low == pytest.approx(0.025 ** (1 / queries) - 1, rel=0.01)
        assert same.high == -same.low
    assert lower_bound([0.0] * 10, 0.0, 0.025) == 0


def test_a_query_counts_once_however_often_it_is_asked():
    draw = np.random.default_rng(1)
    before, after = draw.random(60), draw.random(60)
    once = gain_interval(before, after)
    often = gain_interval(np.tile(before, 20), np.tile(after, 20), repeats=np.tile(np.arange(60), 20))
    assert (often.value, often.low, often.high) == pytest.approx((once.value, once.low, once.high))
    assert (often.queries, often.distinct, often.units) == (1200, 60, 60)
    # Also if one of them is asked more often than others, and if the vectors say which.
    vectors = draw.standard_normal((60, 16))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    asked = np.concatenate([np.arange(60), np.zeros(500, int)])
    noise = 1e-4 * draw.standard_normal((560, 16))
    repeats = repeated_queries(vectors[asked] + noise, vectors[asked])
    assert np.array_equal(repeats, asked)
    skewed = gain_interval(before[asked], after[asked], repeats=repeats, groups=asked % 12)
    assert skewed.value == pytest.approx(once.value)
    assert (skewed.distinct, skewed.groups) == (60, 12)
    # A query must be the same for both models.
    assert np.array_equal(repeated_queries(vectors[asked], np.eye(560)), np.arange(560))


def group_bound_by_matrices(values: np.ndarray, groups: np.ndarray, member: np.ndarray) -> tuple[float, float]:
    """CR2's standard error and Satterthwaite's degrees of freedom from their matrices, for the model of the mean."""
    n = len(values)
    hat = np.full((n, n), 1 / n)
    residuals = values - values.mean()
    degrees, variance = [], 0.0
    contrasts = []
    for group in groups:
        rows = member == group
        block = np.eye(rows.sum()) - hat[np.ix_(rows, rows)]
        eigenvalues, vectors = np.linalg.eigh(block)
        adjust = vectors @ np.diag(eigenvalues**-0.5) @ vectors.T
        variance += (adjust @ residuals[rows]).sum() ** 2 / n**2
        contrasts.append(adjust.sum(0) @ (np.eye(n) - hat)[rows])
    for working in (np.eye(n), (member[:, None] == member).astype(float)):
        inner = np.array(contrasts) @ working @ np.array(contrasts).T
        degrees.append(np.trace(inner) ** 2 / (inner**2).sum())
    return math.sqrt(variance), min(degrees)


def test_groups_give_the_cluster_robust_interval():
    draw = np.random.default_rng(2)
    for sizes in ([6] * 12, [1, 2, 3, 30, 4, 9, 2, 2, 11, 5, 5, 7]):
        member = np.repeat(np.arange(len(sizes)), sizes)
        gains = (draw.normal(0, 0.3, len(sizes))[member] + draw.normal(0, 0.05, len(member))).clip(-1, 1)
        found = gain_interval(np.maximum(-gains, 0), np.maximum(gains, 0), groups=member)
        error, degrees = group_bound_by_matrices(gains, np.arange(len(sizes)), member)
        half = student_quantile(0.975, degrees) * error
        assert found.clustered
        assert (found.units, found.groups, found.unit) == (12, 12, "groups of queries")
        # One side is that of the plain t interval; the other one is moved outwards, because the groups are skewed.
        ends = sorted([(gains.mean() - half) - found.low, found.high - (gains.mean() + half)])
        assert ends[0] == pytest.approx(0, abs=1e-9)
        assert 0 < ends[1] < half
        assert found.design_effect > 2
    single = np.arange(len(gains))
    assert group_bound_by_matrices(gains, single, single)[1] == pytest.approx(len(gains) - 1)


def test_groups_never_make_it_narrower():
    draw = np.random.default_rng(3)
    before, after = (draw.random(200) < 0.5).astype(float), (draw.random(200) < 0.5).astype(float)
    alone = gain_interval(before, after)
    balanced = np.argsort(np.argsort(after - before, kind="stable")) % 20  # every group has the same mix
    grouped = gain_interval(before, after, groups=balanced)
    assert (grouped.low, grouped.high) == (alone.low, alone.high)
    assert not grouped.clustered
    assert (grouped.units, grouped.groups, grouped.unit) == (200, 20, "queries")
    assert grouped.design_effect < 0.3
    singles = gain_interval(before, after, groups=np.arange(200))
    assert (singles.low, singles.groups, singles.clustered) == (alone.low, None, False)
    assert math.isnan(singles.design_effect)


def test_few_groups_are_called_uncertain():
    draw = np.random.default_rng(4)
    before, after = draw.random(90), draw.random(90)
    few = gain_interval(before, after, groups=np.arange(90) % 9)
    assert few.uncertain == "the queries are of 9 groups, too few to show how much groups differ"
    assert gain_interval(before, after, groups=np.arange(90) % 10).uncertain is None
    one = gain_interval(before, after, groups=["all"] * 90)
    assert (one.low, one.high, one.units) == (-1, 1, 1)
    assert one.uncertain is not None


def test_the_ratio_covers_what_the_difference_does_not_refuse():
    draw = np.random.default_rng(5)
    below = draw.random(150)
    above = below * draw.random(150)
    found = ratio_interval(above, below)
    assert found.low < found.value < found.high
    assert found.value == pytest.approx(above.mean() / below.mean())
    spread = (above - found.value * below).std() / below.mean() / math.sqrt(150)  # the delta method
    for width in (found.value - found.low, found.high - found.value):
        assert 1.96 * spread < width < 1.96 * spread + 2 / 150 / below.mean()  # one imagined query more
    equal = ratio_interval(below, below)
    assert equal.low < 0.99 < 1 < equal.high
    assert math.isnan(ratio_interval(below, np.zeros(150)).value)
    rare = [1.0] + [0.0] * 9, [0.0] * 9 + [1.0]
    found = ratio_interval(*rare)
    assert found.low < 0.05 < 20 < found.high < math.inf
    assert ratio_interval(*rare, groups=np.arange(10) // 2).high == math.inf  # both groups may be the odd one


def test_so_many_queries_would_decide():
    before, after = paired(12, 8, 200)
    for bound in (0.0, -0.01):
        assert gain_interval(before, after).low < bound
        needed = units_needed(before, after, bound)
        for share, decided in ((1.05 * needed / 200, True), (0.8 * needed / 200, False)):
            more = paired(round(12 * share), round(8 * share), round(200 * share))
            assert (gain_interval(*more).low > bound) is decided
    assert units_needed(before, before, 0.0) is None
    assert units_needed(*paired(1, 0, 5000), 0.0) is not None
    groups = np.arange(200) // 10
    assert gain_interval(before, after, groups=groups).units == 20
    assert 100 < units_needed(before, after, -0.01, groups=groups) < 1000  # groups of ten queries


def test_groups_are_queries_with_the_same_answers():
    assert same_answers([3, 0, 3, 0, 1], [7, 9, 8, 9, 9], 5).tolist() == [0, 1, 2, 3, 4]
    assert same_answers([3, 0, 3, 0, 1, 1], [7, 9, 8, 7, 9, 7], 5).tolist() == [0, 0, 2, 3, 4]
    assert same_answers([], [], 2).tolist() == [0, 1]


def test_bad_input():
    for scores in ([], [[1.0]], [np.nan]):
        with pytest.raises(HoldfastError, match="one known number per query"):
            mean_interval(scores)
    with pytest.raises(HoldfastError, match=r"must lie in 0 \.\. 1"):
        mean_interval([70.0, 20.0])
    with pytest.raises(HoldfastError, match="same queries"):
        gain_interval([1.0], [1.0, 0.0])
    with pytest.raises(HoldfastError, match="same queries"):
        ratio_interval([1.0], [1.0, 0.0])
    with pytest.raises(HoldfastError, match=r"at least 0\.5 and below 1"):
        mean_interval([1.0], confidence=95)
    for name in ("groups", "repeats"):
        with pytest.raises(HoldfastError, match=f"{name}: one label per query"):
            mean_interval([1.0, 0.0], **{name: [1]})
    with pytest.raises(HoldfastError, match="must be Q x d"):
        repeated_queries(np.eye(3), np.eye(2))


@pytest.mark.parametrize(
    "name",
    [
        "independent, hit@1, 60 queries",
        "independent, nDCG@10, 300 queries",
        "independent, hit@1 changes rarely and one way, 300 queries",
        "repeated, hit@1, 60 queries x 5",
        "classes, hit@1, 15 of 20",
        "classes, nDCG@10, 15 of about 20",
        "classes, nDCG@10, 40 of 20",
        "classes, hit@1, 200 of 5",
    ],
)
def test_a_yes_is_rarely_false(monkeypatch, name):
    """bench/false_yes.py with fewer samples: at most 4 %, and three standard errors of 300 samples."""
    monkeypatch.syspath_prepend(BENCH)
    from false_yes import LOSS, designs, shares_of_yes

    design = designs({})[name]
    for gain in (0.0, -LOSS):
        assert shares_of_yes(design, gain, gain, 300)["yes"] <= 0.04 + 3 * math.sqrt(0.025 * 0.975 / 300)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["independent, hit@1, 300 queries", "repeated, hit@1, 60 queries x 5", "classes, hit@1, 15 of 20"]
)
def test_a_yes_of_check_itself_is_rarely_false(monkeypatch, name):
    monkeypatch.syspath_prepend(BENCH)
    from false_yes import LOSS, checked, designs, shares_through_check

    design = designs({})[name]
    drawn = design(np.random.default_rng(0), 0.05)
    result = checked(drawn, 0)
    assert result.gain.value == pytest.approx(drawn.gains.mean())
    assert result.distinct == len(np.unique(np.arange(len(drawn.gains)) if drawn.repeats is None else drawn.repeats))
    for gain in (0.0, -LOSS):
        assert shares_through_check(design, gain, 100)["yes"] <= 0.04 + 3 * math.sqrt(0.025 * 0.975 / 100)


def test_a_plain_interval_would_often_be_wrong_and_a_true_gain_is_shown(monkeypatch):
    """So that the designs above can fail at all."""
    monkeypatch.syspath_prepend(BENCH)
    from false_yes import designs, independent, shares_of_yes

    for name in ("repeated, nDCG@10, 300 queries x 20", "classes, nDCG@10, 40 of 20"):
        assert shares_of_yes(designs({})[name], 0.0, 0.0, 100)["plain_yes"] > 0.07
    assert shares_of_yes(independent(300, "nDCG@10"), 0.05, 0.0, 100)["yes"] > 0.5
