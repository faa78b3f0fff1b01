"""The unit sphere: where features are compared."""

import torch
from torch import Tensor
from torch.nn import functional as F


def unit(z: Tensor, *, eps: float = 1e-12) -> Tensor:
    """Rows of ``z`` (... x d) scaled to length 1, in at least float32; a zero row stays zero.

    Half precision is widened first: a bf16 norm is wrong in the third digit, and every cosine with it.
    """
    return F.normalize(widened(z), dim=-1, eps=eps)


def cosine_matrix(a: Tensor, b: Tensor) -> Tensor:
    """Cosines of every row of ``a`` (N x d) with every row of ``b`` (M x d): N x M, at least float32.

    Autocast would quietly run the product in half precision, so it is switched off around it.
    """
    with torch.autocast(a.device.type, enabled=False):
        return unit(a) @ unit(b).T


def paired_cosine(a: Tensor, b: Tensor) -> Tensor:
    """Cosine of row i of ``a`` with row i of ``b`` (both N x d): N, at least float32."""
    return (unit(a) * unit(b)).sum(-1)


def angle(a: Tensor, b: Tensor) -> Tensor:
    """Angle in radians, 0..pi, between row i of ``a`` and row i of ``b``.

    By the half-angle form 2 atan2(|a - b|, |a + b|), which keeps its digits near 0 and pi where arccos loses half.
    """
    a, b = unit(a), unit(b)
    return 2 * torch.atan2((a - b).norm(dim=-1), (a + b).norm(dim=-1))


def widened(z: Tensor) -> Tensor:
    """Half precision as float32; float32 and float64 as they are."""
    return z if z.dtype in (torch.float32, torch.float64) else z.float()
