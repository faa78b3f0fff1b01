"""What every search refuses, whatever it searches."""

from typing import Any

import numpy as np

from holdfast.errors import HoldfastError

MOST_HITS = 10_000


def checked_question(image: Any, vector: Any, id: str | None, k: Any) -> int:
    """``k`` as a number, where one of the three ways to ask is given and so many hits may be asked for."""
    given = [name for name, value in (("image", image), ("vector", vector), ("id", id)) if value is not None]
    if len(given) != 1:
        raise HoldfastError(f"search takes one of image, vector and id, not {' and '.join(given) or 'none'}")
    if isinstance(k, bool) or not isinstance(k, int | np.integer) or not 1 <= k <= MOST_HITS:
        raise HoldfastError(f"k must be a whole number from 1 to {MOST_HITS}, got {k!r}")
    return int(k)
