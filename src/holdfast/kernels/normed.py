"""Batch norm with the sum and the ReLU behind it, forward and back, for any number of channels.

Activations are N x H x W x C in bf16 (in tests and in evaluation float32: whatever the buffers are). A program takes
BLOCK pixels of WIDE channels, a power of two that divides the channels. Programs for the same pixels follow each other,
so that what lies together in memory is asked for at once. ``moments`` holds the mean of each channel and, behind them,
one over the standard deviation, both float32.
"""

import triton
import triton.language as tl

from holdfast.kernels.forward import relu
from holdfast.kernels.sums import (
    BACKWARD_UNIT,
    COPIES,
    add_to_moments,
    add_to_sum,
    batch_moments,
    nan_where_unsound,
    read_sum,
    remember,
)


@triton.jit
def channels_of(program, CHANNELS: tl.constexpr, WIDE: tl.constexpr):
    return program % (CHANNELS // WIDE) * WIDE + tl.arange(0, WIDE)


@triton.jit
def tile_here(pixels, CHANNELS: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr):
    """This program's part of an activation: its channels, its first pixel, which places exist, and where they lie."""
    channel = channels_of(tl.program_id(0), CHANNELS, WIDE)
    start = tl.program_id(0) // (CHANNELS // WIDE) * BLOCK
    pixel = start + tl.arange(0, BLOCK)
    return channel, start, (pixel < pixels)[:, None], pixel[:, None] * CHANNELS + channel[None, :]


@triton.jit
def add_up(
    y, sums, pixels, share, EACH: tl.constexpr, CHANNELS: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """The sums that the moments of y are read from, over EACH of the pixels."""
    channel = channels_of(tl.program_id(0), CHANNELS, WIDE)
    part = tl.program_id(0) // (CHANNELS // WIDE)
    total, squares = tl.zeros((BLOCK, WIDE), tl.float32), tl.zeros((BLOCK, WIDE), tl.float32)
    for start in range(0, EACH, BLOCK):
        pixel = part * EACH + start + tl.arange(0, BLOCK)
        place = pixel[:, None] * CHANNELS + channel[None, :]
        seen = tl.load(y + place, mask=(pixel < pixels)[:, None], other=0.0).to(tl.float32)
        total += seen
        squares += seen * seen
    add_to_moments(sums, tl.sum(total, axis=0), tl.sum(squares, axis=0), channel, part, share, CHANNELS)


@triton.jit
def moments_here(
    sums, running_mean, running_var, moments, channel, first, share, eps, momentum,
    FROZEN: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    """Mean and one over the standard deviation: those remembered (FROZEN), or the batch's.

    Where ``first`` holds they are also stored, and a batch's are remembered.
    """
    if FROZEN:
        mean, variance = tl.load(running_mean + channel), tl.load(running_var + channel)
    else:
        mean, variance = batch_moments(sums, channel, CHANNELS)
    inverse = tl.rsqrt(variance + eps)
    if first:
        tl.store(moments + channel, mean)
        tl.store(moments + CHANNELS + channel, inverse)
        if not FROZEN:
            remember(mean, variance, running_mean, running_var, channel, share, momentum)
    return mean, inverse


@triton.jit
def scale_and_shift(mean, inverse, gamma, beta, channel):
    scale = tl.load(gamma + channel) * inverse
    return scale, tl.load(beta + channel) - mean * scale


@triton.jit
def normalise_tile(
    y, residual, out, sums, running_mean, running_var, moments, gamma, beta, pixels, share, eps, momentum,
    FROZEN: tl.constexpr, RESIDUAL: tl.constexpr, RELU: tl.constexpr, CHANNELS: tl.constexpr, WIDE: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """out = relu(bn(y) + residual), each of the two if asked for."""
    channel, start, inside, place = tile_here(pixels, CHANNELS, WIDE, BLOCK)
    before = tl.load(y + place, mask=inside, other=0.0).to(tl.float32)
    mean, inverse = moments_here(
        sums, running_mean, running_var, moments, channel, start == 0, share, eps, momentum, FROZEN, CHANNELS
    )
    scale, shift = scale_and_shift(mean, inverse, gamma, beta, channel)
    u = before * scale[None, :] + shift[None, :]
    if not FROZEN:
        u = nan_where_unsound(u, before)
    if RESIDUAL:
        u += tl.load(residual + place, mask=inside, other=0.0).to(tl.float32)
    if RELU:
        u = relu(u)
    tl.store(out + place, u.to(out.dtype.element_ty), mask=inside)


@triton.jit
def add_up_back(
    gradient, more, y, out, moments, gamma, beta, du, gradient_sums, pixels,
    MORE: tl.constexpr, RELU: tl.constexpr, FROM_OUT: tl.constexpr, KEEP: tl.constexpr, EACH: tl.constexpr,
    CHANNELS: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The sums of du, the gradient at the norm's output, and of du times the normalised y; du itself if KEEP.

    MORE: the gradient comes in two parts. FROM_OUT: where the ReLU was lit is read from out; else it follows from y.
    """
    channel = channels_of(tl.program_id(0), CHANNELS, WIDE)
    part = tl.program_id(0) // (CHANNELS // WIDE)
    mean, inverse = tl.load(moments + channel), tl.load(moments + CHANNELS + channel)
    scale, shift = scale_and_shift(mean, inverse, gamma, beta, channel)
    total, along = tl.zeros((BLOCK, WIDE), tl.float32), tl.zeros((BLOCK, WIDE), tl.float32)
    for start in range(0, EACH, BLOCK):
        pixel = part * EACH + start + tl.arange(0, BLOCK)
        inside = (pixel < pixels)[:, None]
        place = pixel[:, None] * CHANNELS + channel[None, :]
        g = tl.load(gradient + place, mask=inside, other=0.0).to(tl.float32)
        if MORE:
            g += tl.load(more + place, mask=inside, other=0.0).to(tl.float32)
        before = tl.load(y + place, mask=inside, other=0.0).to(tl.float32)
        if FROM_OUT:
            g = tl.where(tl.load(out + place, mask=inside, other=0.0).to(tl.float32) > 0, g, 0.0)
        elif RELU:
            g = tl.where(before * scale[None, :] + shift[None, :] > 0, g, 0.0)
        if KEEP:
            rounded = g.to(du.dtype.element_ty)
            tl.store(du + place, rounded, mask=inside)
            g = rounded.to(tl.float32)
        total += g
        along += g * ((before - mean[None, :]) * inverse[None, :])
    add_to_sum(gradient_sums, tl.sum(total, axis=0), channel, part, BACKWARD_UNIT, CHANNELS)
    add_to_sum(gradient_sums + COPIES * CHANNELS, tl.sum(along, axis=0), channel, part, BACKWARD_UNIT, CHANNELS)


@triton.jit
def back_affine(mean, inverse, gamma, sum_du, sum_along, channel, share):
    """Batch norm backwards as du * a + y * b + c, per channel."""
    a = tl.load(gamma + channel) * inverse
    b = -a * inverse * (sum_along * share)
    return a, b, -a * (sum_du * share) - b * mean


@triton.jit
def through_tile(
    du, y, dy, moments, gamma, beta, gradient_sums, gradients, pixels, share,
    RELU: tl.constexpr, CHANNELS: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """dy, the gradient at the norm's input. RELU: du has not been through it yet; whether it was lit follows from y.

    gradients: of beta and, behind it, of gamma.
    """
    channel, start, inside, place = tile_here(pixels, CHANNELS, WIDE, BLOCK)
    g = tl.load(du + place, mask=inside, other=0.0).to(tl.float32)
    before = tl.load(y + place, mask=inside, other=0.0).to(tl.float32)
    mean, inverse = tl.load(moments + channel), tl.load(moments + CHANNELS + channel)
    sum_du = read_sum(gradient_sums, channel, BACKWARD_UNIT, CHANNELS).to(tl.float32)
    sum_along = read_sum(gradient_sums + COPIES * CHANNELS, channel, BACKWARD_UNIT, CHANNELS).to(tl.float32)
    if RELU:
        scale, shift = scale_and_shift(mean, inverse, gamma, beta, channel)
        g = tl.where(before * scale[None, :] + shift[None, :] > 0, g, 0.0)
    a, b, c = back_affine(mean, inverse, gamma, sum_du, sum_along, channel, share)
    found = g * a[None, :] + before * b[None, :] + c[None, :]
    tl.store(dy + place, found.to(dy.dtype.element_ty), mask=inside)
    if start == 0:
        tl.store(gradients + channel, sum_du)
        tl.store(gradients + CHANNELS + channel, sum_along)
