"""Refuse values that an option of a method or of training cannot have, before anything is trained."""

import math
from typing import Any, get_args

from holdfast.core.errors import HoldfastError


def check_positive(**options: float | None) -> None:
    """Refuse an option that is not a finite number above 0; None is accepted."""
    for name, value in options.items():
        if value is not None and not 0 < value < math.inf:
            raise HoldfastError(f"{name} must be above 0, got {value}")


def check_not_negative(**options: float) -> None:
    """Refuse an option that is not a finite number of at least 0."""
    for name, value in options.items():
        if not 0 <= value < math.inf:
            raise HoldfastError(f"{name} must be at least 0, got {value}")


def check_share(**options: float | None) -> None:
    """Refuse an option that is not in [0, 1]; None is accepted."""
    for name, value in options.items():
        if value is not None and not 0 <= value <= 1:
            raise HoldfastError(f"{name.rstrip('_')} must be in [0, 1], got {value}")


def check_choice(choices: Any, **options: str) -> None:
    """Refuse an option that is not one of ``choices``, a ``Literal``."""
    for name, value in options.items():
        if value not in get_args(choices):
            raise HoldfastError(f"{name} must be one of {', '.join(get_args(choices))}, got {value!r}")
