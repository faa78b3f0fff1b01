"""Refuse numbers that an option of a method cannot have, before anything is trained."""

import math

from holdfast.errors import HoldfastError


def check_positive(**options: float) -> None:
    """Refuse an option that is not a finite number above 0."""
    for name, value in options.items():
        if not 0 < value < math.inf:
            raise HoldfastError(f"{name} must be above 0, got {value}")


def check_not_negative(**options: float) -> None:
    """Refuse an option that is not a finite number of at least 0."""
    for name, value in options.items():
        if not 0 <= value < math.inf:
            raise HoldfastError(f"{name} must be at least 0, got {value}")
