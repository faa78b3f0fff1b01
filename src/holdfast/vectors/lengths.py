"""Rows scaled to length 1, as every cosine needs them."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from holdfast.core.real_arrays import real_array

SHORTEST, LONGEST = 1e-15, 1e15
"""Rows whose largest number is between these have a sum of squares that float32 can hold."""
NEARLY_ZERO = 1e-12
"""A shorter row is divided by this, so that zeros stay zero."""


def row_lengths(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """Euclidean length of each row of ``rows`` (... x d); infinite where the squares overflow."""
    with np.errstate(over="ignore", invalid="ignore"):
        lengths: NDArray[np.float32] = np.sqrt(np.einsum("...i,...i->...", rows, rows))
    return lengths


def unit(rows: ArrayLike) -> NDArray[np.float32]:
    """Rows of ``rows`` (... x d) scaled to length 1, float32; a zero row stays zero.

    Half precision is converted first: a length in it is wrong in the third digit, and so are cosines from it.
    """
    numbers = real_array(rows, "vectors", np.float32)
    with np.errstate(invalid="ignore"):
        divisors = np.maximum(row_lengths(numbers), np.float32(NEARLY_ZERO))
        return np.divide(numbers, divisors[..., None], dtype=np.float32)


def unit_of_any_length(rows: ArrayLike) -> NDArray[np.float32]:
    """As ``unit``, also for rows with a length that float32 cannot hold, such as 59 times 3e38: for vectors of users.

    A row with NaN or infinity gives NaN. Rows of usual lengths get the same bits as by ``unit``.
    """
    numbers = real_array(rows, "vectors", np.float32)
    largest = np.abs(numbers).max(axis=-1, keepdims=True, initial=0)
    unusual = (largest > LONGEST) | ((largest < SHORTEST) & (largest > 0))
    if unusual.any():
        with np.errstate(invalid="ignore"):
            numbers = numbers / np.where(unusual, largest, np.float32(1))
    return unit(numbers)
