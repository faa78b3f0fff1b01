"""Pages of search results: hits after the first ones."""

from typing import Any

import numpy as np

from holdfast.errors import HoldfastError
from holdfast.gallery.searching import MOST_HITS


def checked_offset(offset: Any, k: int) -> int:
    """``offset`` as an int; refused unless it is a whole number from 0 on and ``offset + k`` is at most ``MOST_HITS``.

    A search with an offset finds all hits before it, too, so it takes as long as one for ``offset + k`` hits.
    """
    if isinstance(offset, bool) or not isinstance(offset, int | np.integer) or offset < 0:
        raise HoldfastError(f"offset must be a whole number from 0 on, got {offset!r}")
    if offset + k > MOST_HITS:
        raise HoldfastError(f"offset {offset} with k {k}: offset and k together are at most {MOST_HITS}")
    return int(offset)
