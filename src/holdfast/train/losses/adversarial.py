"""AdvBCT's adversary: makes features of the new model hard to tell from those of the old model."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from holdfast.train.geometry import at_least_float32


def reversed_gradient(z: Tensor, coefficient: Tensor) -> Tensor:
    """Identity in the forward pass; multiplies the gradient by -coefficient in the backward pass."""
    return _Reversal.apply(z, coefficient)


def reversal_coefficient(fraction: Tensor) -> Tensor:
    """2 / (1 + exp(-10 p)) - 1 for the fraction p of training done: 0 at the start, above 0.96 from p = 0.4."""
    return 2 / (1 + torch.exp(-10 * fraction)) - 1


def epoch_weight(epoch: Tensor, epochs: int) -> Tensor:
    """a(e) = (E - e + 1) / E for the 0-based epoch e: from (E + 1)/E down to 2/E."""
    return (epochs - epoch + 1) / epochs


def discrimination(new_logits: Tensor, old_logits: Tensor) -> Tensor:
    """Discriminator loss: cross-entropy of new features (class 0) plus that of old features (class 1).

    new_logits, old_logits: the discriminator's logits, N x 2.
    """
    with torch.autocast(new_logits.device.type, enabled=False):
        new = F.cross_entropy(at_least_float32(new_logits), new_logits.new_zeros(len(new_logits), dtype=torch.long))
        old = F.cross_entropy(at_least_float32(old_logits), old_logits.new_ones(len(old_logits), dtype=torch.long))
    return new + old


def elastic_radii(radii: Tensor, v: Tensor, tau: float) -> Tensor:
    """R + (tau - R) sigmoid(v): a limit between the measured radius R and tau, set by the learnable v.

    radii: R, one per class; NaN for a class without a radius, which gets the limit infinity.
    v: learnable, one per class.
    tau: the other end of the interval.

    The original has separate formulas for R below and above tau; both equal this one.
    """
    known = ~radii.isnan()
    measured = radii.nan_to_num(0.0)  # a NaN would reach the gradient of v
    return (measured + (tau - measured) * torch.sigmoid(v)).where(known, torch.inf)


class _Reversal(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, z: Tensor, coefficient: Tensor) -> Tensor:
        ctx.save_for_backward(coefficient)
        return z.view_as(z)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (coefficient,) = ctx.saved_tensors
        return -coefficient.to(grad.dtype) * grad, None
