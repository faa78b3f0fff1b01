"""Theorem 1: Monte Carlo, closed form, numerical integration and whole vectors agree; the inequalities hold."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.train.geometry import DSimplex
from papers.stationary.theorems import different_class, mean_cosine, same_class, sample_cap, study_caps
from papers.stationary.theorems.closed_form import mean_distance, shrinkage
from papers.stationary.theorems.theorem1 import Estimate, Inequality, gap_map, largest_moves

DIMS = (2, 3, 4, 5, 7, 16, 50, 99, 256, 1023, 2048)
ANGLES = (5, 20, 40, 60, 75, 89, 90, 100, 135, 170, 180)


def deviation(estimate: Estimate) -> float:
    return abs(estimate.mean - estimate.exact) / max(estimate.se, 1e-15)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(d=st.integers(2, 2048), old=st.sampled_from(ANGLES), new=st.sampled_from(ANGLES), seed=st.integers(0, 99))
def test_monte_carlo_agrees_with_the_closed_form(d, old, new, seed):
    study = study_caps(d, math.radians(old), math.radians(new), samples=20_000, seed=seed)
    for part in (study.same, study.different):
        for estimate in (part.kt, part.kk, part.gap):
            assert deviation(estimate) < 4, (d, old, new)


@pytest.mark.slow
@pytest.mark.parametrize("d", DIMS)
def test_the_whole_grid(d):
    for old in ANGLES:
        for new in ANGLES:
            study = study_caps(d, math.radians(old), math.radians(new), samples=20_000, seed=1)
            for part in (study.same, study.different):
                assert max(deviation(e) for e in (part.kt, part.kk)) < 4, (old, new)


@given(d=st.integers(2, 100_000), angles=st.tuples(*2 * (st.floats(0.001, math.pi),)))
@settings(max_examples=150, deadline=None)
def test_both_inequalities_hold_where_the_cap_does_not_grow(d, angles):
    new, old = sorted(angles)
    assert mean_cosine(d, new) >= mean_cosine(d, old) * (1 - 1e-9)
    assert shrinkage(d, old, new) >= 0
    same, different = same_class(d, old, new), different_class(d, old, new)
    assert same.kt <= same.kk * (1 + 1e-9)
    assert different.kt >= different.kk * (1 - 1e-15)


def test_the_study_says_that_they_hold_and_by_how_much():
    shrunk = study_caps(10, math.radians(60), math.radians(40), samples=50_000)
    assert shrunk.holds
    assert min(shrunk.same.standard_errors, shrunk.different.standard_errors) > 10
    grown = study_caps(10, math.radians(40), math.radians(60), samples=50_000)
    assert not grown.same.holds
    assert not grown.different.holds
    assert max(grown.same.standard_errors, grown.different.standard_errors) < -10
    assert study_caps(10, 1.0, 1.0, samples=1000).holds  # equal sides count
    exact = Estimate(0.0, 0.0, 0.0)
    assert Inequality(exact, exact, exact, holds=True).standard_errors == 0


def test_the_answer_does_not_depend_on_digits():
    """a falls strictly with the angle, so it is the angles that decide, however close they or small the means are."""
    for d in (2, 3, 50, 100_000):
        for angle in (1e-9, 0.3, 1.2, math.pi / 2, 2.5):
            above = math.nextafter(angle, 4)
            assert study_caps(d, above, angle, samples=2).holds
            grown = study_caps(d, angle, above, samples=2)
            assert not grown.same.holds
            assert not grown.different.holds
    assert study_caps(2, math.pi, 1.0, samples=2, moved=3.0).holds  # all distances are 1 from a whole sphere
    assert not study_caps(2, 1.0, math.pi, samples=2).same.holds
    # Beyond the equator of 100,000 dimensions means are below 1e-308.
    assert not study_caps(100_000, math.radians(120), math.radians(150), samples=2).holds
    assert largest_moves(100_000, math.radians(120), 1.0).average == pytest.approx(math.pi / 2)


@pytest.mark.parametrize("d", [2, 3, 10, 2048, 100_000])
def test_the_smallest_caps_keep_their_digits(d):
    """A tiny cap is a ball of d - 1 dimensions: 1 - a = (d-1)/(d+1) angle^2 / 2."""
    old, new = 1e-8, 0.5e-8
    flat = (d - 1) / (d + 1) / 2
    assert mean_distance(d, old) == pytest.approx(flat * old**2, rel=1e-12)
    study = study_caps(d, old, new, samples=20_000)
    assert study.same.kt.exact == pytest.approx(flat * (old**2 + new**2), rel=1e-12)
    assert study.same.gap.exact == pytest.approx(flat * (old**2 - new**2), rel=1e-12)
    for estimate in (study.same.kt, study.same.kk, study.same.gap):
        assert abs(estimate.mean - estimate.exact) < 4 * estimate.se
    assert largest_moves(d, old, new).average == pytest.approx(math.sqrt(2 * flat * (old**2 - new**2)), rel=1e-9)
    for degrees in (5, 29.9, 30.1):
        angle = math.radians(degrees)
        assert mean_distance(d, angle) == pytest.approx(1 - mean_cosine(d, angle), rel=1e-11)


def test_worked_point():
    """d = 10, caps of 60 and 40 degrees: 0.510, 0.635, 1.049, 1.037 by sampling whole vectors elsewhere."""
    caps = math.radians(60), math.radians(40)
    assert same_class(10, *caps) == pytest.approx((0.510, 0.635), abs=5e-4)
    assert different_class(10, *caps) == pytest.approx((1.049, 1.037), abs=6e-4)


@pytest.mark.parametrize("d", [3, 10, 99, 2048, 100_000])
@pytest.mark.parametrize("degrees", [0.01, 1, 30, 60, 88, 89.9, 90, 90.1, 91, 120, 150, 179])
def test_mean_cosine_against_quadrature(d, degrees):
    """The integral of (sin t / sin angle)^(d-2), by Gauss-Legendre on pieces as narrow as the integrand's hump."""
    angle = math.radians(degrees)
    peak = min(angle, math.pi / 2)
    width = min(peak, 40 / math.sqrt(d), 60 / ((d - 2) / math.tan(peak) + 1e-12)) if d > 3 else peak
    nodes, weights = np.polynomial.legendre.leggauss(40)
    total = 0.0
    edges = [max(0.0, peak - width), peak, min(angle, peak + 40 / math.sqrt(d), math.pi)]
    for low, high in itertools.pairwise(edges):
        for start, end in itertools.pairwise(np.linspace(low, high, 41)):
            theta = (end - start) / 2 * nodes + (start + end) / 2
            total += (end - start) / 2 * (weights * np.exp((d - 2) * np.log(np.sin(theta) / math.sin(peak)))).sum()
    log_expected = (d - 1) * math.log(math.sin(angle)) - (d - 2) * math.log(math.sin(peak)) - math.log((d - 1) * total)
    # An angle is known to one part in 2^53, which a power of d magnifies.
    assert mean_cosine(d, angle) == pytest.approx(math.exp(log_expected), rel=1e-11 + d * 1e-14, abs=1e-300)


def test_mean_cosine_at_the_ends():
    assert mean_cosine(7, math.pi) == 0
    assert mean_cosine(2, math.pi) == 0
    assert mean_cosine(100_000, 1e-6) == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize(("old", "new"), [(60, 40), (120, 20), (30, 30), (180, 90)])
def test_two_dimensions_by_numerical_integration(old, new):
    """On the circle a cap is an arc: average 1 - cos(x - y + shift) over the two arcs on a fine grid of midpoints."""

    def mean_distance(first: float, second: float, shift: float) -> float:
        x, y = ((np.arange(800) + 0.5) / 400 - 1 for _ in range(2))
        return float((1 - np.cos(first * x[:, None] - second * y[None, :] + shift)).mean())

    old, new, apart = math.radians(old), math.radians(new), 2 * math.pi / 3
    assert same_class(2, old, new) == pytest.approx((mean_distance(old, new, 0), mean_distance(old, old, 0)), abs=4e-6)
    expected = mean_distance(old, new, apart), mean_distance(old, old, apart)
    assert different_class(2, old, new) == pytest.approx(expected, abs=4e-6)


@pytest.mark.parametrize(("d", "moved"), [(2, 0.0), (3, 0.0), (12, 0.0), (2, 25.0), (3, 40.0), (12, 10.0)])
def test_marginals_against_whole_vectors(d, moved):
    """The slow obvious way: points on caps around real simplex vertices, the new one turned by ``moved`` degrees."""
    old, new, away, count = math.radians(60), math.radians(35), math.radians(moved), 30_000
    first, second = DSimplex(d + 1).dense().numpy()[:2]
    random = np.random.default_rng(5)

    def turned(start: np.ndarray, towards: np.ndarray) -> np.ndarray:
        side = towards - (towards @ start) * start
        return math.cos(away) * start + math.sin(away) * side / np.linalg.norm(side)

    anchor = sample_cap(first, old, count, random)
    pairs = {
        "same_kt": sample_cap(turned(first, second), new, count, random),
        "same_kk": sample_cap(first, old, count, random),
        "different_kt": sample_cap(turned(second, first), new, count, random),
        "different_kk": sample_cap(second, old, count, random),
    }
    study = study_caps(d, old, new, samples=count, moved=away)
    for name, other in pairs.items():
        kind, which = name.split("_")
        distances = 1 - (anchor * other).sum(1)
        estimate = getattr(getattr(study, kind), which)
        se = math.hypot(distances.std() / math.sqrt(count), estimate.se)
        assert abs(distances.mean() - estimate.mean) < 4 * se, name
        assert abs(distances.mean() - estimate.exact) < 4 * distances.std() / math.sqrt(count), name
        # Not only the mean: a wrong law with the right mean would give another spread.
        assert estimate.se * math.sqrt(count) == pytest.approx(distances.std(), rel=0.03), name


@pytest.mark.parametrize(("d", "old", "new"), [(2, 60, 40), (9, 60, 20), (99, 80, 70), (1023, 50, 49)])
def test_limits_are_where_the_gap_changes_sign(d, old, new):
    old, new = math.radians(old), math.radians(new)
    limits = largest_moves(d, old, new)
    a_old, a_new = mean_cosine(d, old), mean_cosine(d, new)
    for share, sign in ((0.99, 1), (1.01, -1)):
        moved = share * limits.average
        assert math.copysign(1, gap_map(d, old, np.array([new]), np.array([moved]))[0, 0]) == sign
        # Over all other classes together: the mean of the products with the moved prototype, any way it goes.
        vertices = DSimplex(min(d, 99) + 1).dense().numpy()
        way = np.random.default_rng(0).standard_normal(vertices.shape[1])
        way -= (way @ vertices[0]) * vertices[0]
        turned = math.cos(moved) * vertices[0] + math.sin(moved) * way / np.linalg.norm(way)
        assert (vertices[1:] @ turned).mean() == pytest.approx(-math.cos(moved) / min(d, 99), abs=1e-12)
        towards = study_caps(d, old, new, samples=2, moved=share * limits.towards).different
        assert math.copysign(1, towards.gap.exact) == sign
    assert math.cos(limits.average) == pytest.approx(a_old / a_new)
    assert str(largest_moves(d, old, old).average) == "0.0"  # not minus 0, which a table would show
    assert all(math.isnan(value) for value in largest_moves(d, new, old))
    assert largest_moves(d, math.pi, new) == (math.pi, math.pi)
