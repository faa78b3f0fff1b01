"""Propositions 2 and 3: known values, simulated spheres, prototypes that collapse."""

import math

import numpy as np
import pytest

from holdfast.train.geometry import DSimplex
from papers.stationary.theorems import expected_angle, log_angle_density
from papers.stationary.theorems.propositions import log_density_at_expected_angle, simulate_collapse


@pytest.mark.parametrize(
    ("d", "angle", "density"), [(3, 0.025, 1.3e-2), (10, 0.46, 1.8e-3), (100, 0.94, 3.8e-9), (1000, 0.995, 9e-76)]
)
def test_known_values_for_a_hundred_vectors(d, angle, density):
    assert expected_angle(100, d) == pytest.approx(angle, rel=0.01)
    assert log_density_at_expected_angle(100, d) == pytest.approx(math.log(density), abs=0.06)


def test_formula_as_printed():
    """Eq. 11, factor by factor, where gamma functions do not overflow."""
    for n, d in ((2, 2), (7, 5), (1000, 40), (10, 300)):
        inner = math.gamma(d / 2) / (2 * math.sqrt(math.pi) * (d - 1) * math.gamma((d - 1) / 2))
        printed = n ** (-2 / (d - 1)) * math.gamma(d / (d - 1)) * inner ** (-1 / (d - 1))
        assert expected_angle(n, d) == pytest.approx(printed, rel=1e-12)


@pytest.mark.parametrize(("of", "n"), [("pairs", 60), ("vector", 60)])
def test_which_angle_it_is(of, n):
    """On the sphere of R^3: Eq. 11 is the smallest angle over all pairs; one vector's nearest has another exponent."""
    random = np.random.default_rng(0)
    found = []
    for _ in range(400):
        points = random.standard_normal((n, 3))
        points /= np.linalg.norm(points, axis=1, keepdims=True)
        cosines = points @ points.T - 3 * np.eye(n)
        found.append(np.arccos(cosines.max() if of == "pairs" else cosines[0].max()))
    se = np.std(found) / math.sqrt(len(found))
    assert abs(np.mean(found) - expected_angle(n, 3, of=of)) < 4 * se + 0.02 * np.mean(found)
    other = expected_angle(n, 3, of="vector" if of == "pairs" else "pairs")
    assert abs(np.mean(found) - other) > 20 * se


def test_falls_with_n_and_grows_with_d():
    dims = [3, 5, 10, 100, 1000, 10**6]
    angles = [expected_angle(100, d) for d in dims]
    assert angles == sorted(angles)
    assert angles[-1] == pytest.approx(1, abs=1e-3)
    for d in dims:
        assert expected_angle(101, d) < expected_angle(100, d)
        assert log_density_at_expected_angle(101, d) < log_density_at_expected_angle(100, d)


def test_density_integrates_to_one_and_the_disc_does_not():
    theta = (np.arange(20_000) + 0.5) / 20_000 * math.pi
    for d in (2, 3, 8, 200):
        values = [math.exp(log_angle_density(float(t), d)) for t in theta]
        assert np.mean(values) * math.pi == pytest.approx(1, abs=1e-6)
    half = theta[theta < math.pi / 2]
    disc = sum(math.exp(log_angle_density(float(t), 8, disc=True)) for t in half) * math.pi / 20_000
    assert disc < 0.4  # half a sphere should have 0.5: the disc is smaller than the cap


def test_trainable_prototypes_of_unseen_classes_collapse():
    found = simulate_collapse(classes=20, seen=10, steps=6_000)
    fixed = DSimplex(20).dense().numpy()
    assert found.fixed == pytest.approx(math.acos(float(fixed[0] @ fixed[1])))
    assert found.unseen_smallest[0] == pytest.approx(found.fixed)
    assert found.unseen_smallest[-1] < math.radians(0.5)
    assert found.unseen_mean[-1] < math.radians(0.5)
    assert found.seen_mean[-1] > math.radians(85)
    assert found.loss[-1] < found.loss[0] / 10
    # Adding m classes to n lowers the expected angle of random prototypes, too.
    assert expected_angle(20, 19) < expected_angle(10, 19)
