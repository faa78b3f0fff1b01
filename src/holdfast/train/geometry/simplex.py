"""The regular d-Simplex: K fixed class prototypes with the largest possible angle between any two.

K prototypes need d = K - 1 dimensions. The paper's listing (Appendix D) builds them as a matrix: the identity, one last
row of (1 - sqrt K)/(K - 1), then the column mean is subtracted. Every row of the result is a multiple of one coordinate
axis plus a constant. A logit is therefore a coordinate minus a multiple of the sum of all coordinates, which takes O(K)
per sample. The K x (K - 1) matrix (1.9 GB at K = 22,000) is never built.
"""

import math
from typing import Any, Literal, get_args

import torch
from torch import Tensor
from torch.nn import functional as F

from holdfast.core.errors import HoldfastError

Scale = Literal["unit", "frobenius"]
Layer = Literal["projection", "identity"]
"""What makes features of the simplex from those of a network: random at first, or the identity at first."""
MOST_CLASSES = 2**22
"""The largest K: a feature of K - 1 numbers then has 16 MiB."""


class DSimplex:
    """K fixed prototypes w_0 .. w_{K-1} in K - 1 dimensions with w_i . w_j = -1/(K-1) for i != j.

    num_classes: K, from 2 to ``MOST_CLASSES``.
    scale: "unit" (default) gives rows of length 1. "frobenius" divides the whole matrix by its norm as the paper's
        listing does, which gives rows of length 1/sqrt(K).

    Differs from the paper: the listing normalises by the Frobenius norm. The authors' released code normalises each
    row, and so does the default here. The directions are the same; only the size of the logits differs.

    >>> DSimplex(3).dense().shape
    torch.Size([3, 2])
    """

    def __init__(self, num_classes: int, *, scale: Scale = "unit") -> None:
        if num_classes < 2:
            raise HoldfastError(f"a simplex needs at least 2 classes, got {num_classes}")
        if num_classes > MOST_CLASSES:
            raise HoldfastError(f"a simplex has at most {MOST_CLASSES} classes, got {num_classes}; lower slots")
        if scale not in get_args(Scale):
            raise HoldfastError(f"unknown simplex scale {scale!r}; known: {', '.join(get_args(Scale))}")
        self.num_classes = num_classes
        self.scale = scale
        n = num_classes - 1
        last = (1 - math.sqrt(num_classes)) / n  # the constant last row before centring
        mean = (1 + last) / num_classes  # centring subtracts this from every entry
        length = math.sqrt(n / num_classes) if scale == "unit" else math.sqrt(n)
        # Row j < n is diagonal * e_j - shift * 1; the last row is last_entry * 1.
        self._diagonal = 1 / length
        self._shift = mean / length
        self._last_entry = (last - mean) / length

    @property
    def dim(self) -> int:
        """Dimension of the prototypes, K - 1."""
        return self.num_classes - 1

    def logits(self, z: Tensor) -> Tensor:
        """W z for raw features z (N x (K-1)): N x K, in z's dtype.

        No K x K tensor is built in the forward or the backward pass.
        """
        if z.shape[-1] != self.dim:
            raise HoldfastError(
                f"features have {z.shape[-1]} dimensions, a simplex of {self.num_classes} needs {self.dim}"
            )
        return _Logits.apply(z, self._diagonal, self._shift, self._last_entry)

    def combine(self, weights: Tensor) -> Tensor:
        """W^T y for weights y (... x K): the weighted sum of the prototypes, ... x (K-1), without building W."""
        if weights.shape[-1] != self.num_classes:
            raise HoldfastError(f"{weights.shape[-1]} weights for {self.num_classes} prototypes")
        return _combined(weights, self._diagonal, self._shift, self._last_entry)

    def prototypes(self, indices: Tensor) -> Tensor:
        """Rows ``indices`` (any shape, values 0..K-1) of W: shape (*indices.shape, K-1), float32."""
        return self._rows(indices, torch.float32)

    def dense(self, *, dtype: torch.dtype = torch.float64, device: torch.device | str = "cpu") -> Tensor:
        """The whole K x (K-1) matrix, for small K and for tests."""
        return self._rows(torch.arange(self.num_classes, device=device), dtype)

    def _rows(self, indices: Tensor, dtype: torch.dtype) -> Tensor:
        def constant(value: float) -> Tensor:
            return torch.full((), value, dtype=dtype, device=indices.device)

        last = (indices == self.dim).unsqueeze(-1)
        rows = torch.where(last, constant(self._last_entry), constant(-self._shift))
        rows = rows.expand(*indices.shape, self.dim).clone()
        # The last class has no coordinate axis: its scatter adds zero at coordinate 0.
        column = torch.where(last, 0, indices.unsqueeze(-1))
        return rows.scatter_add_(-1, column, torch.where(last, constant(0.0), constant(self._diagonal)))

    def __repr__(self) -> str:
        return f"DSimplex({self.num_classes}, scale={self.scale!r})"


class _Logits(torch.autograd.Function):
    """W z without building W. Autograd's backward pass of the concatenation would copy N x K twice."""

    generate_vmap_rule = True

    @staticmethod
    def forward(z: Tensor, diagonal: float, shift: float, last_entry: float) -> Tensor:
        total = z.sum(-1, keepdim=True)
        return torch.cat([torch.add(total * -shift, z, alpha=diagonal), total * last_entry], -1)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.constants = inputs[1:]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        return _combined(grad, *ctx.constants), None, None, None


def _combined(weights: Tensor, diagonal: float, shift: float, last_entry: float) -> Tensor:
    rest, last = weights[..., :-1], weights[..., -1:]
    common = last * last_entry - rest.sum(-1, keepdim=True) * shift
    return torch.add(common, rest, alpha=diagonal)


def embed_in_larger_simplex(z: Tensor, num_classes: int, more: int) -> Tensor:
    """Map features of a simplex of K classes into the space of a simplex of K2 > K classes.

    z: features, N x (K-1).
    num_classes: K.
    more: K2.
    Returns N x (K2-1), computed in float64 and returned in z's dtype.

    Each row is multiplied by ((K-1)/K) W2[:K]^T W, with W and W2 the two simplexes. The rows of W sum to zero, so this
    matrix is an isometry times a number near 1, and every cosine between features is unchanged. The cosine between an
    old class's mapped vertex and its vertex in the larger simplex is sqrt((K-1) K2 / (K (K2-1))): 0.9997 from 1000 to
    2000 classes. Neither matrix is built.

    >>> import torch
    >>> from holdfast.train.geometry import cosine_matrix, embed_in_larger_simplex
    >>> z = torch.tensor([[1.0, 0.0], [1.0, 1.0]])  # features of a simplex of 3 classes
    >>> larger = embed_in_larger_simplex(z, 3, 10)
    >>> larger.shape, torch.allclose(cosine_matrix(larger, larger), cosine_matrix(z, z))
    (torch.Size([2, 9]), True)
    """
    if more <= num_classes:
        raise HoldfastError(f"a simplex of {num_classes} classes must grow to more than {num_classes}, got {more}")
    scores = DSimplex(num_classes).logits(z.double())
    combined = DSimplex(more).combine(F.pad(scores, (0, more - num_classes)))
    return ((num_classes - 1) / num_classes * combined).to(z.dtype)
