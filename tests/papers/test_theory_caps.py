"""Uniform points on caps: against the known marginal, and whole vectors against the drawn marginals."""

import math

import numpy as np
import pytest

from papers.stationary.theorems.caps import sample_cap, sample_coordinate, sample_polar_angles

# Caps on both sides of the equator, at it, and on both sides of where the two ways of sampling meet.
CASES = [(2, 60), (3, 1), (3, 100), (3, 180), (5, 54), (5, 56), (16, 74), (16, 76), (16, 90), (128, 40), (2048, 89)]


def cdf(d: int, angle: float, theta: np.ndarray) -> np.ndarray:
    """P(polar angle <= theta) on the cap: sin^(d-2) summed over 50,000 midpoints."""
    edges = np.linspace(0, angle, 50_001)
    middle = (edges[1:] + edges[:-1]) / 2
    weights = np.exp((d - 2) * (np.log(np.sin(middle)) - np.log(np.sin(middle)).max()))
    return np.interp(theta, edges, np.concatenate([[0.0], np.cumsum(weights)]) / weights.sum())


@pytest.mark.parametrize(("d", "degrees"), CASES)
def test_polar_angles_follow_the_known_marginal(d, degrees):
    angle = math.radians(degrees)
    count = 20_000
    theta = np.sort(sample_polar_angles(d, angle, count, np.random.default_rng(3)))
    assert 0 <= theta[0] <= theta[-1] <= angle
    places = np.linspace(0, count - 1, 60).astype(int)
    distance = np.abs(cdf(d, angle, theta[places]) - (places + 0.5) / count).max()
    assert distance * math.sqrt(count) < 1.95  # Kolmogorov-Smirnov at one in a thousand


@pytest.mark.parametrize("n", [1, 2, 3, 7, 400])
def test_coordinates_are_those_of_normalised_gaussians(n):
    random = np.random.default_rng(0)
    drawn = sample_coordinate(n, 8_000, random)
    vectors = random.standard_normal((8_000, n))
    reference = vectors[:, 0] / np.linalg.norm(vectors, axis=1)
    grid = np.linspace(-1, 1, 41)
    shares = [(np.sort(x).searchsorted(grid, side="right")) / len(x) for x in (drawn, reference)]
    assert np.abs(shares[0] - shares[1]).max() * math.sqrt(4_000) < 1.95


@pytest.mark.parametrize(("d", "degrees"), [(2, 70), (3, 25), (10, 120), (50, 40)])
def test_whole_vectors(d, degrees):
    random = np.random.default_rng(1)
    axis = random.standard_normal(d)
    axis /= np.linalg.norm(axis)
    angle = math.radians(degrees)
    points = sample_cap(axis, angle, 20_000, random)
    np.testing.assert_allclose(np.linalg.norm(points, axis=1), 1, atol=1e-12)
    assert np.arccos(points @ axis).max() <= angle + 1e-9
    # The tangent part points nowhere: its mean is zero within its own noise.
    tangent = points - (points @ axis)[:, None] * axis
    assert np.linalg.norm(tangent.mean(0)) < 5 * np.sqrt((tangent**2).sum(1).mean() / len(points))


def test_uniform_by_area():
    """In three dimensions a cap's area is 1 - cos: half of it lies within the angle that halves that."""
    angle = math.radians(80)
    theta = sample_polar_angles(3, angle, 200_000, np.random.default_rng(0))
    middle = math.acos((1 + math.cos(angle)) / 2)
    assert abs((theta < middle).mean() - 0.5) < 4 * 0.5 / math.sqrt(200_000)
