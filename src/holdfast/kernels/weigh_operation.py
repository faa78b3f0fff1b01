"""Batch norm, ReLU and squeeze and excitation as one operation that autograd knows."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from holdfast.backbones.squeeze import SqueezeExcitation
from holdfast.kernels.excitation import hidden_and_logits, weight_gradients, weights_like
from holdfast.kernels.norm_operation import by_kernels, channels_last, cut, known_of, sums_of_batch
from holdfast.kernels.weighed import (
    add_up_images,
    back_through_hidden,
    squeeze_image,
    through_weights,
    weigh_back,
    weigh_tile,
)

IMAGES, FEW = 128, 16
"""How sums over images are cut: there are few of them, so that programs matter more than long runs."""


def normed_and_weighed(norm: nn.BatchNorm2d, weigh: SqueezeExcitation, y: Tensor) -> Tensor:
    """weigh(relu(norm(y)))"""
    weights = weights_like(weigh, y)
    if weights is None or not by_kernels(norm, y, *weights):
        weighed: Tensor = weigh(F.relu(norm(y)))
        return weighed
    found: Tensor = _Weigh.apply(y, norm.weight, norm.bias, *weights, norm)
    return found


def _by_image(y: Tensor, sums: int) -> tuple[int, dict[str, int]]:
    """Programs that each add up over one image, and how they are cut: into smaller tiles where there are many sums."""
    sizes, positions = cut(y).sizes, y.shape[2] * y.shape[3]
    block = min(sizes["BLOCK"] // (2 if sums > 2 else 1), 1 << (positions - 1).bit_length())
    return len(y) * (y.shape[1] // sizes["WIDE"]), sizes | {"BLOCK": block, "POSITIONS": positions}


class _Weigh(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, y: Tensor, gamma: Tensor, beta: Tensor, w1: Tensor, b1: Tensor, w2: Tensor, b2: Tensor,
        norm: nn.BatchNorm2d,
    ) -> Tensor:  # fmt: skip
        y = channels_last(y)
        how, (programs, by_image) = cut(y), _by_image(y, sums=1)
        known = known_of(norm, y, sums_of_batch(norm, y, how)[0])
        mean, out = y.new_empty(y.shape[:2]), torch.empty_like(y)
        squeeze_image[(programs,)](
            y, mean, *known, gamma, beta, 1 / how.pixels, norm.eps, norm.momentum, FROZEN=not norm.training, **by_image
        )
        hidden, logits = hidden_and_logits(mean, (w1, b1, w2, b2))
        weigh_tile[(how.programs,)](
            y, logits, out, known[-1], gamma, beta, how.pixels, FROZEN=not norm.training,
            POSITIONS=by_image["POSITIONS"], **how.sizes,
        )  # fmt: skip
        ctx.save_for_backward(y, gamma, beta, w1, w2, known[-1], mean, hidden, logits)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        y, gamma, beta, w1, w2, moments, mean, hidden, logits = ctx.saved_tensors
        gradient = channels_last(gradient)
        how, (programs, by_image) = cut(y), _by_image(y, sums=4)
        images, channels, positions = len(y), y.shape[1], by_image["POSITIONS"]
        parts = y.new_empty(4, images, channels, dtype=torch.float32)
        d_logits, gradients, dy = torch.empty_like(logits), torch.empty_like(moments), torch.empty_like(y)
        weigh_back[(programs,)](gradient, y, logits, moments, gamma, beta, parts, d_logits, images, **by_image)
        d_hidden, db1, db2 = d_logits @ w2.flatten(1), mean.new_empty(hidden.shape[1]), mean.new_empty(channels)
        back_through_hidden[(-(-len(db1) // FEW),)](
            d_hidden, hidden, db1, images, HIDDEN=len(db1), WIDE=FEW, BLOCK=IMAGES
        )
        d_mean, few = d_hidden @ w1.flatten(1), min(FEW, channels & -channels)
        add_up_images[(channels // few,)](
            parts, logits, d_logits, d_mean, gradients, db2, images,
            POSITIONS=positions, CHANNELS=channels, WIDE=few, BLOCK=IMAGES,
        )  # fmt: skip
        through_weights[(how.programs,)](
            gradient, y, dy, logits, d_mean, moments, gamma, beta, gradients, how.pixels, 1 / how.pixels,
            POSITIONS=positions, **how.sizes,
        )  # fmt: skip
        dw1, dw2 = weight_gradients(d_hidden, mean, w1, d_logits, hidden, w2)
        return dy, gradients[1], gradients[0], dw1, db1, dw2, db2, None
