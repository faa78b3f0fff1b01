"""How large a tensor may be for the kernels."""

from torch import Tensor

REACH = 2**31
"""Numbers of a tensor, at most: the kernels count places in 32 bits, and beyond would write anywhere."""


def within_reach(x: Tensor) -> bool:
    return x.numel() <= REACH
