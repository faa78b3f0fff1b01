"""Unit vectors, cosines and angles."""

import torch
from torch import Tensor
from torch.nn import functional as F


def unit(z: Tensor) -> Tensor:
    """Rows of ``z`` (... x d) scaled to length 1, in at least float32; a zero row stays zero.

    Half precision is converted first: a norm in bf16 is wrong in the third digit, and so are cosines from it.
    """
    return F.normalize(at_least_float32(z), dim=-1)


_SHORTEST, _LONGEST = 1e-15, 1e15  # largest numbers of a row whose sum of squares float32 can hold


def unit_of_any_length(z: Tensor) -> Tensor:
    """As ``unit``, also for rows with a length that float32 cannot hold, such as 59 times 3e38: for vectors of users.

    A row with NaN or infinity gives NaN. Rows of usual lengths get the same bits as by ``unit``.
    """
    z = at_least_float32(z)
    largest = z.abs().amax(dim=-1, keepdim=True)
    unusual = (largest > _LONGEST) | ((largest < _SHORTEST) & (largest > 0))
    return unit(z / torch.where(unusual, largest, 1.0))


def cosine_matrix(a: Tensor, b: Tensor) -> Tensor:
    """Cosines of every row of ``a`` (N x d) with every row of ``b`` (M x d): N x M, at least float32.

    Autocast is switched off for the product, because it would run it in half precision.

    >>> import torch
    >>> from holdfast.train.geometry import cosine_matrix
    >>> cosine_matrix(torch.tensor([[2.0, 0.0]]), torch.tensor([[1.0, 0.0], [0.0, 3.0]]))
    tensor([[1., 0.]])
    """
    a, b = unit(a), unit(b)
    both = torch.promote_types(a.dtype, b.dtype)
    with torch.autocast(a.device.type, enabled=False):
        return a.to(both) @ b.to(both).T


def paired_cosine(a: Tensor, b: Tensor) -> Tensor:
    """Cosine of row i of ``a`` with row i of ``b`` (both N x d): N, at least float32."""
    return (unit(a) * unit(b)).sum(-1)


def angle(a: Tensor, b: Tensor) -> Tensor:
    """Angle in radians, 0..pi, between row i of ``a`` and row i of ``b``.

    Computed as 2 atan2(|a - b|, |a + b|), which is accurate near 0 and pi, where arccos loses half the digits.
    """
    a, b = unit(a), unit(b)
    return 2 * torch.atan2((a - b).norm(dim=-1), (a + b).norm(dim=-1))


def at_least_float32(z: Tensor) -> Tensor:
    """``z`` as float32 if it is in half precision, unchanged otherwise."""
    return z if z.dtype in (torch.float32, torch.float64) else z.float()
