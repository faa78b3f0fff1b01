"""Squeeze and excitation and the sum behind it as one operation that autograd knows."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from holdfast.backbones.squeeze import SqueezeExcitation
from holdfast.kernels import norm_operation
from holdfast.kernels.excitation import hidden_and_logits, weight_gradients, weights_like
from holdfast.kernels.norm_operation import channels_last, cut, twice
from holdfast.kernels.reach import within_reach
from holdfast.kernels.weigh_operation import FEW, IMAGES
from holdfast.kernels.weighed_sum import back_to_biases, back_to_image, back_to_logits, mean_of_image, weigh_and_add

NARROWEST = 16
"""Channels of a program at least: 32 bytes of bf16, below which memory would hand out what nobody asked for."""


def weighed_sum(weigh: SqueezeExcitation, y: Tensor, shortcut: Tensor) -> tuple[Tensor, ...]:
    """weigh(y) + shortcut, twice: who uses it twice takes both, and their gradients are added on the way."""
    weights = weights_like(weigh, y)
    if weights is None or shortcut.dtype != y.dtype or not within_reach(y):
        u = weigh(y) + shortcut
        return u, u
    found: tuple[Tensor, ...] = _WeighedSum.apply(y, shortcut, *weights)
    return found


def _by_image(y: Tensor) -> tuple[int, dict[str, int]]:
    """Programs that each add up over one image, and how they are cut: into fewer channels where images are few."""
    sizes, positions = cut(y).sizes, y.shape[2] * y.shape[3]
    wide = sizes["WIDE"]
    while wide > NARROWEST and len(y) * (y.shape[1] // wide) < norm_operation.PROGRAMS:
        wide //= 2
    block = min(norm_operation.TILE // wide, 1 << (positions - 1).bit_length())
    return len(y) * (y.shape[1] // wide), sizes | {"WIDE": wide, "BLOCK": block, "POSITIONS": positions}


class _WeighedSum(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, y: Tensor, shortcut: Tensor, w1: Tensor, b1: Tensor, w2: Tensor, b2: Tensor
    ) -> tuple[Tensor, Tensor]:
        y, shortcut = channels_last(y), channels_last(shortcut)
        how, (programs, by_image) = cut(y), _by_image(y)
        mean, out = y.new_empty(y.shape[:2]), torch.empty_like(y)
        mean_of_image[(programs,)](y, mean, **by_image)
        hidden, logits = hidden_and_logits(mean, (w1, b1, w2, b2))
        weigh_and_add[(how.programs,)](
            y, logits, shortcut, out, how.pixels, POSITIONS=by_image["POSITIONS"], **how.sizes
        )
        ctx.save_for_backward(y, w1, w2, mean, hidden, logits)
        return twice(ctx, out)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *given: Tensor | None) -> tuple[Tensor | None, ...]:
        present = [channels_last(one) for one in given if one is not None]
        if not present:
            return (None,) * 6
        y, w1, w2, mean, hidden, logits = ctx.saved_tensors
        how, (programs, by_image) = cut(y), _by_image(y)
        more = len(present) > 1
        du = torch.empty_like(y) if more else present[0]
        d_logits, dy = torch.empty_like(logits), torch.empty_like(y)
        back_to_logits[(programs,)](present[0], present[-1], y, logits, du, d_logits, MORE=more, **by_image)
        units, channels = hidden.shape[1], y.shape[1]
        d_hidden, db1, db2 = d_logits @ w2.flatten(1), mean.new_empty(units), mean.new_empty(channels)
        back_to_biases[(-(-units // FEW) + -(-channels // FEW),)](
            d_hidden, hidden, db1, d_logits, db2, len(y), HIDDEN=units, CHANNELS=channels, WIDE=FEW, BLOCK=IMAGES
        )
        d_mean = d_hidden @ w1.flatten(1)
        back_to_image[(how.programs,)](du, logits, d_mean, dy, how.pixels, POSITIONS=by_image["POSITIONS"], **how.sizes)
        dw1, dw2 = weight_gradients(d_hidden, mean, w1, d_logits, hidden, w2)
        return dy, du, dw1, db1, dw2, db2
