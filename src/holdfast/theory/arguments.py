"""What every part of the theory asks of its arguments, refused by name."""

import math

from holdfast.errors import HoldfastError


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
