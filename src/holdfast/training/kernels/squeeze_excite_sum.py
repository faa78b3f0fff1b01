"""Squeeze and excitation and the sum behind it as one operation that autograd knows.

Channels weighed by what the whole image shows and added to a shortcut, forward and back.

As in ``weighed.py``, but with neither norm nor ReLU before the weights: y is what a convolution gave. POSITIONS is
H x W; logits, means and their gradients are N x CHANNELS.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from holdfast.encoders.squeeze_excite import SqueezeExcitation
from holdfast.training.kernels import batch_norm
from holdfast.training.kernels.batch_norm import channels_last, channels_of, cut, tile_here, twice
from holdfast.training.kernels.squeeze_excite import (
    FEW,
    IMAGES,
    back_through_hidden,
    hidden_and_logits,
    of_images,
    weight_gradients,
    weights_like,
)
from holdfast.training.kernels.sums import within_reach

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
    while wide > NARROWEST and len(y) * (y.shape[1] // wide) < batch_norm.PROGRAMS:
        wide //= 2
    block = min(batch_norm.TILE // wide, 1 << (positions - 1).bit_length())
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


@triton.jit
def mean_of_image(
    y, means, POSITIONS: tl.constexpr, CHANNELS: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """The mean of y over the positions of an image."""
    channel = channels_of(tl.program_id(0), CHANNELS, WIDE)
    image = tl.program_id(0) // (CHANNELS // WIDE)
    total = tl.zeros((BLOCK, WIDE), tl.float32)
    for start in range(0, POSITIONS, BLOCK):
        position = start + tl.arange(0, BLOCK)
        place = (image * POSITIONS + position)[:, None] * CHANNELS + channel[None, :]
        total += tl.load(y + place, mask=(position < POSITIONS)[:, None], other=0.0).to(tl.float32)
    found = tl.sum(total, axis=0) * (1.0 / POSITIONS)
    tl.store(means + image * CHANNELS + channel, found.to(means.dtype.element_ty))


@triton.jit
def weigh_and_add(
    y, logits, shortcut, out, pixels,
    POSITIONS: tl.constexpr, CHANNELS: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """out = y * sigmoid(logits) + shortcut"""
    channel, start, inside, place = tile_here(pixels, CHANNELS, WIDE, BLOCK)
    before = tl.load(y + place, mask=inside, other=0.0).to(tl.float32)
    added = tl.load(shortcut + place, mask=inside, other=0.0).to(tl.float32)
    weight = tl.sigmoid(of_images(logits, start, inside, channel, POSITIONS, CHANNELS, BLOCK))
    tl.store(out + place, (before * weight + added).to(out.dtype.element_ty), mask=inside)


@triton.jit
def back_to_logits(
    gradient, more, y, logits, du, logits_gradient,
    MORE: tl.constexpr, POSITIONS: tl.constexpr, CHANNELS: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The gradient of the logits. MORE: that of the sum comes in two parts, and du becomes both together."""
    channel = channels_of(tl.program_id(0), CHANNELS, WIDE)
    image = tl.program_id(0) // (CHANNELS // WIDE)
    along = tl.zeros((BLOCK, WIDE), tl.float32)
    for start in range(0, POSITIONS, BLOCK):
        position = start + tl.arange(0, BLOCK)
        inside = (position < POSITIONS)[:, None]
        place = (image * POSITIONS + position)[:, None] * CHANNELS + channel[None, :]
        g = tl.load(gradient + place, mask=inside, other=0.0).to(tl.float32)
        if MORE:
            g += tl.load(more + place, mask=inside, other=0.0).to(tl.float32)
            rounded = g.to(du.dtype.element_ty)
            tl.store(du + place, rounded, mask=inside)
            g = rounded.to(tl.float32)
        along += g * tl.load(y + place, mask=inside, other=0.0).to(tl.float32)
    place = image * CHANNELS + channel
    weight = tl.sigmoid(tl.load(logits + place).to(tl.float32))
    found = tl.sum(along, axis=0) * weight * (1.0 - weight)
    tl.store(logits_gradient + place, found.to(logits_gradient.dtype.element_ty))


@triton.jit
def back_to_biases(
    hidden_gradient, hidden, hidden_bias, logits_gradient, logits_bias, images,
    HIDDEN: tl.constexpr, CHANNELS: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """What ``back_through_hidden`` does; further programs find the gradient of the logits' bias."""
    before = (HIDDEN + WIDE - 1) // WIDE
    if tl.program_id(0) < before:
        back_through_hidden(hidden_gradient, hidden, hidden_bias, images, HIDDEN, WIDE, BLOCK)
    else:
        channel = (tl.program_id(0) - before) * WIDE + tl.arange(0, WIDE)
        total = tl.zeros((BLOCK, WIDE), tl.float32)
        for start in range(0, images, BLOCK):
            image = start + tl.arange(0, BLOCK)
            inside = (image < images)[:, None] & (channel < CHANNELS)[None, :]
            place = image[:, None] * CHANNELS + channel[None, :]
            total += tl.load(logits_gradient + place, mask=inside, other=0.0).to(tl.float32)
        found = tl.sum(total, axis=0)
        tl.store(logits_bias + channel, found.to(logits_bias.dtype.element_ty), mask=channel < CHANNELS)


@triton.jit
def back_to_image(
    du, logits, mean_gradient, dy, pixels,
    POSITIONS: tl.constexpr, CHANNELS: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """dy, the gradient of y, from that of the sum and that of the mean."""
    channel, start, inside, place = tile_here(pixels, CHANNELS, WIDE, BLOCK)
    g = tl.load(du + place, mask=inside, other=0.0).to(tl.float32)
    weight = tl.sigmoid(of_images(logits, start, inside, channel, POSITIONS, CHANNELS, BLOCK))
    each = of_images(mean_gradient, start, inside, channel, POSITIONS, CHANNELS, BLOCK) * (1.0 / POSITIONS)
    tl.store(dy + place, (g * weight + each).to(dy.dtype.element_ty), mask=inside)
