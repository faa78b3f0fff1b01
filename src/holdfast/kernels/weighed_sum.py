"""Channels weighed by what the whole image shows and added to a shortcut, forward and back.

As in ``weighed.py``, but with neither norm nor ReLU before the weights: y is what a convolution gave. POSITIONS is
H x W; logits, means and their gradients are N x CHANNELS.
"""

import triton
import triton.language as tl

from holdfast.kernels.normed import channels_of, tile_here
from holdfast.kernels.weighed import back_through_hidden, of_images


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
