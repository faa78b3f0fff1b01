"""Turns the numbers that a caller gives into an array. Every door uses it.

numpy and torch drop the imaginary part of a complex number and the mask of a masked array without an error; what is
then stored or counted are other numbers than those that were given.
"""

from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from holdfast.core.errors import HoldfastError


def real_array(given: Any, what: str, dtype: DTypeLike | None = None) -> np.ndarray:
    """``given`` as an array, without a copy where possible. Complex numbers and masked arrays are refused.

    A tensor of torch may be on any device, and part of a computation of gradients.

    what: names it in errors.
    dtype: type of the result; None keeps that of ``given``.
    """
    check_real(given, what)
    if hasattr(given, "detach"):
        given = given.detach().cpu()
        if given.element_size() == 2 and given.is_floating_point():
            given = given.float()  # NumPy has no bfloat16
    array = np.asarray(given)
    check_real(array, what)  # a list of complex numbers is only known as such now
    return array if dtype is None else array.astype(dtype, copy=False)


def check_real(given: Any, what: str) -> None:
    """Refuse what ``real_array`` refuses; also of a tensor on any device, or of anything with a ``dtype``."""
    masked = isinstance(given, np.ma.MaskedArray)
    if masked or (isinstance(given, list | tuple) and any(isinstance(part, np.ma.MaskedArray) for part in given)):
        raise HoldfastError(f"{what}: a masked array, whose mask would be lost; leave the masked rows out")
    is_complex = getattr(given, "is_complex", None)  # of a tensor
    if is_complex() if is_complex else getattr(getattr(given, "dtype", None), "kind", "") == "c":
        raise HoldfastError(f"{what}: complex numbers, whose imaginary part would be lost; give real ones")
