"""From a simplex of K classes into one of more, without disturbing what already lies there."""

from torch import Tensor
from torch.nn import functional as F

from holdfast.errors import HoldfastError
from holdfast.geometry.simplex import DSimplex


def grown(z: Tensor, num_classes: int, more: int) -> Tensor:
    """Features z (N x (K-1)) of a simplex of ``num_classes`` = K in the space of one with ``more`` = K2 > K classes.

    Each row is multiplied by ((K-1)/K) W2[:K]^T W, with W and W2 the two simplexes. Because the rows of W add up to
    zero, that matrix is a rotation times a number near 1: every cosine between features stays as it was. An old class
    comes to lie on its vertex of the larger simplex up to a cosine of sqrt((K-1) K2 / (K (K2-1))): 0.9997 from 1000 to
    2000. Worked in float64 and given back in z's dtype; neither matrix is made.
    """
    if more <= num_classes:
        raise HoldfastError(f"a simplex of {num_classes} classes grows to more than that, not to {more}")
    scores = DSimplex(num_classes).logits(z.double())
    combined = DSimplex(more).combine(F.pad(scores, (0, more - num_classes)))
    return ((num_classes - 1) / num_classes * combined).to(z.dtype)
