"""Student's t and the binomial distribution against closed forms, sums and, where it is there, scipy."""

import math
from statistics import NormalDist

import pytest

from holdfast.core.errors import HoldfastError
from holdfast.metrics.distributions import fair_coin_tail, incomplete_beta, student_quantile


@pytest.mark.parametrize("probability", [0.01, 0.4, 0.5, 0.9, 0.975, 0.9999])
def test_the_quantiles_of_one_and_two_degrees_are_closed_forms(probability):
    assert student_quantile(probability, 1) == pytest.approx(
        math.tan(math.pi * (probability - 0.5)), rel=1e-9, abs=1e-12
    )
    both = 4 * probability * (1 - probability)
    assert student_quantile(probability, 2) == pytest.approx(2 * (probability - 0.5) * math.sqrt(2 / both), rel=1e-9)


@pytest.mark.parametrize("degrees", [1999.9, 2000.1, 1e7])
def test_many_degrees_are_nearly_normal_and_the_two_ways_meet(degrees):
    z = NormalDist().inv_cdf(0.975)
    series = z + (z**3 + z) / (4 * degrees) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * degrees**2)
    assert student_quantile(0.975, degrees) == pytest.approx(series, rel=1e-9)


@pytest.mark.parametrize("degrees", [0.7, 1.5, 3.3, 14.2, 299, 1500, 40_000])
def test_scipy_agrees(degrees):
    stats = pytest.importorskip("scipy.stats")
    for probability in (0.2, 0.75, 0.975, 0.995):
        assert student_quantile(probability, degrees) == pytest.approx(stats.t.ppf(probability, degrees), rel=1e-9)


@pytest.mark.parametrize(("heads", "tosses"), [(0, 1), (3, 9), (9, 9), (400, 1000), (0, 60)])
def test_the_coin_is_a_sum_of_binomials(heads, tosses):
    expected = sum(math.comb(tosses, i) for i in range(heads + 1)) / 2**tosses
    assert fair_coin_tail(heads, tosses) == pytest.approx(expected, rel=1e-10)


def test_no_such_distribution():
    for call in (lambda: student_quantile(1.0, 3), lambda: student_quantile(0.9, 0), lambda: incomplete_beta(1, 1, 2)):
        with pytest.raises(HoldfastError, match="needs"):
            call()
