"""What every search refuses, whatever it searches."""

from collections.abc import Collection, Iterable
from typing import Any

import numpy as np

from holdfast.errors import HoldfastError, unknown_name

MOST_HITS = 10_000


def checked_question(image: Any, vector: Any, id: str | None, k: Any) -> int:
    """``k`` as a number, where one of the three ways to ask is given and so many hits may be asked for."""
    given = [name for name, value in (("image", image), ("vector", vector), ("id", id)) if value is not None]
    if len(given) != 1:
        raise HoldfastError(f"search takes one of image, vector and id, not {' and '.join(given) or 'none'}")
    if isinstance(k, bool) or not isinstance(k, int | np.integer) or not 1 <= k <= MOST_HITS:
        raise HoldfastError(f"k must be a whole number from 1 to {MOST_HITS}, got {k!r}")
    return int(k)


def checked_versions(indexed_by: Any, known: Collection[int]) -> frozenset[int] | None:
    """Which versions' items are asked for, one number or several; None for all. One that is not ``known`` is refused.

    A version without items is no error: whoever asks version by version need not know which hold any.
    """
    if indexed_by is None:
        return None
    given = list(indexed_by) if isinstance(indexed_by, Iterable) and not isinstance(indexed_by, str) else [indexed_by]
    if not given:
        raise HoldfastError("indexed_by: an empty list fits nothing; leave it out to search the items of all versions")
    for one in given:
        if isinstance(one, bool) or not isinstance(one, int | np.integer):
            raise HoldfastError(f"indexed_by takes numbers of versions, got {one!r}")
        if one not in known:
            raise unknown_name("version", str(one), known)
    return frozenset(int(one) for one in given)
