"""Uniform points on a hyperspherical cap, exactly and in any dimension.

A point of the cap C(w, alpha) is cos(theta) w + sin(theta) u. u is uniform among the unit vectors orthogonal to w.
theta is independent of u and has a density proportional to sin^(d-2)(theta) on [0, alpha]. Distances between two caps
depend on a few inner products with known one-dimensional distributions. Estimates draw only these, for any d.
"""

import math

import numpy as np
from numpy.typing import NDArray

from holdfast.core.errors import HoldfastError

Floats = NDArray[np.float64]


def sample_polar_angles(d: int, angle: float, count: int, random: np.random.Generator) -> Floats:
    """Polar angles of uniform points on a cap: ``count`` values in [0, angle].

    d: dimension, at least 2.
    angle: polar angle of the cap in radians, in (0, pi].

    Exact, by rejection sampling. For a rim near the equator or beyond, points of the whole sphere are proposed (at
    least 13 % are accepted). Otherwise log sin is concave, so its tangent at the rim bounds the density by an
    exponential (at least a third are accepted).
    """
    check_dimension(d)
    check_angle("angle", angle)
    if d == 2:
        return angle * random.random(count)
    near_equator = angle > 1 and math.cos(angle) * math.sqrt(d - 2) < 1
    propose = _from_sphere if near_equator else _from_tangent
    kept: list[Floats] = []
    missing = count
    while missing > 0:
        accepted = propose(d, angle, missing + missing // 3 + 16, random)[:missing]
        kept.append(accepted)
        missing -= len(accepted)
    return np.concatenate(kept) if kept else np.empty(0)


def _from_sphere(d: int, angle: float, count: int, random: np.random.Generator) -> Floats:
    theta = np.arccos(sample_coordinate(d, count, random))
    return theta[theta <= angle]


def _from_tangent(d: int, angle: float, count: int, random: np.random.Generator) -> Floats:
    rate = (d - 2) / math.tan(angle)
    below_rim = random.standard_exponential(count) / rate
    theta = angle - below_rim
    # A theta outside the cap gives a sine that is not positive, or NaN; both are rejected.
    with np.errstate(divide="ignore", invalid="ignore"):
        log_ratio = (d - 2) * np.log(np.sin(theta) / math.sin(angle)) + rate * below_rim
    return theta[(random.standard_exponential(count) >= -log_ratio) & (theta > 0)]


def sample_coordinate(n: int, count: int, random: np.random.Generator) -> Floats:
    """One coordinate x of uniform points on the unit sphere of R^n, n >= 1; also the cosine between two such points.

    (1 + x)/2 has a Beta((n-1)/2, (n-1)/2) distribution. For n = 1 the sphere is two points and x is -1 or 1.
    """
    if n == 1:
        return np.where(random.random(count) < 0.5, -1.0, 1.0)
    return 2.0 * random.beta((n - 1) / 2, (n - 1) / 2, count) - 1.0


def sample_cap(axis: Floats, angle: float, count: int, random: np.random.Generator) -> Floats:
    """``count`` uniform points, count x d, on the cap of ``angle`` radians around the unit vector ``axis`` (d)."""
    d = len(axis)
    theta = sample_polar_angles(d, angle, count, random)[:, None]
    tangent = random.standard_normal((count, d))
    tangent -= (tangent @ axis)[:, None] * axis
    tangent /= np.linalg.norm(tangent, axis=1, keepdims=True)
    return np.cos(theta) * axis + np.sin(theta) * tangent


def check_dimension(d: int) -> None:
    """An error unless d is a whole number of at least 2; in one dimension a cap has no angle."""
    if isinstance(d, bool) or not isinstance(d, int) or d < 2:
        raise HoldfastError(f"d (the dimension) must be a whole number of at least 2, got {d!r}")


def check_angle(name: str, radians: float) -> None:
    """An error unless the polar angle of a cap is above 0 and at most pi (the whole sphere)."""
    if not 0 < radians <= math.pi:
        shown = f"{math.degrees(radians):g} degrees" if math.isfinite(radians) else str(radians)
        raise HoldfastError(f"{name} must be in (0, pi], that is above 0 and at most 180 degrees, got {shown}")


def check_samples(samples: int) -> None:
    """An error unless there are at least 2 samples, as a standard error needs."""
    if isinstance(samples, bool) or not isinstance(samples, int) or samples < 2:
        raise HoldfastError(f"samples must be a whole number of at least 2, got {samples!r}")
