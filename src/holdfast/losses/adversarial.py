"""AdvBCT's adversary: features of the new model made to look like the old one's."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from holdfast.geometry import widened


def reversed_gradient(z: Tensor, coefficient: Tensor) -> Tensor:
    """z itself forward; backward its gradient times -coefficient."""
    return _Reversal.apply(z, coefficient)


def reversal_coefficient(fraction: Tensor) -> Tensor:
    """2 / (1 + exp(-10 p)) - 1 for the fraction p of training done: 0 at the start, near 1 soon after."""
    return 2 / (1 + torch.exp(-10 * fraction)) - 1


def epoch_weight(epoch: Tensor, epochs: int) -> Tensor:
    """a(e) = (E - e + 1) / E for the 0-based epoch e: from (E + 1)/E down to 2/E."""
    return (epochs - epoch + 1) / epochs


def discrimination(new_logits: Tensor, old_logits: Tensor) -> Tensor:
    """How badly new (class 0) and old (class 1) features are told apart: NLL of both, N x 2 logits each."""
    with torch.autocast(new_logits.device.type, enabled=False):
        new = F.cross_entropy(widened(new_logits), new_logits.new_zeros(len(new_logits), dtype=torch.long))
        old = F.cross_entropy(widened(old_logits), old_logits.new_ones(len(old_logits), dtype=torch.long))
    return new + old


def elastic_radii(radii: Tensor, v: Tensor, tau: float) -> Tensor:
    """R + (tau - R) sigmoid(v): between the measured radius and tau, wherever the learnable v puts it.

    The original writes two cases, R below and above tau; both are this line. A class without a radius (NaN) has no
    limit: infinity.
    """
    known = ~radii.isnan()
    measured = radii.nan_to_num(0.0)  # a NaN would reach the gradient of v even where nothing counts
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
