"""Uniform points on a hyperspherical cap, exactly and in any dimension.

A point of the cap C(w, alpha) is cos(theta) w + sin(theta) u with u uniform among the unit vectors orthogonal to w and
theta of density proportional to sin^(d-2)(theta) on [0, alpha], independent of u. Distances between two caps depend
on a few inner products only, and these have exact one-dimensional laws: estimates draw those, whatever d is.

What every part of the theory asks of its arguments, refused by name.
"""

import math

import numpy as np
from numpy.typing import NDArray

from holdfast.errors import HoldfastError

Floats = NDArray[np.float64]


def sample_polar_angles(d: int, angle: float, count: int, random: np.random.Generator) -> Floats:
    """``count`` polar angles of uniform points on a cap of ``angle`` radians in ``d`` dimensions: values in [0, angle].

    By rejection, so exact. Near the equator and beyond, points of the whole sphere are kept if they lie in the cap (at
    least 13 % do). Elsewhere log sin is concave, so its tangent at the rim bounds the density by an
    exponential (at least a third are kept).
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
    # Where theta is no angle of the cap the sine is not positive, or NaN comes out: neither is kept.
    with np.errstate(divide="ignore", invalid="ignore"):
        log_ratio = (d - 2) * np.log(np.sin(theta) / math.sin(angle)) + rate * below_rim
    return theta[(random.standard_exponential(count) >= -log_ratio) & (theta > 0)]


def sample_coordinate(n: int, count: int, random: np.random.Generator) -> Floats:
    """One coordinate of uniform points on the unit sphere of R^n, n >= 1; it is also the cosine between two of them.

    (1 + x)/2 has a Beta((n-1)/2, (n-1)/2) law; for n = 1 the sphere is two points and x is -1 or 1.
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
    """A sphere needs two dimensions: in one it is two points, and a cap has no angle."""
    if isinstance(d, bool) or not isinstance(d, int) or d < 2:
        raise HoldfastError(f"d (the dimension) must be a whole number of at least 2, got {d!r}")


def check_angle(name: str, radians: float) -> None:
    """A cap's polar angle: above 0 and at most pi, which is the whole sphere."""
    if not 0 < radians <= math.pi:
        shown = f"{math.degrees(radians):g} degrees" if math.isfinite(radians) else str(radians)
        raise HoldfastError(f"{name} must lie in (0, pi], that is above 0 and at most 180 degrees, got {shown}")


def check_samples(samples: int) -> None:
    if isinstance(samples, bool) or not isinstance(samples, int) or samples < 2:
        raise HoldfastError(f"samples must be a whole number of at least 2, got {samples!r}")
