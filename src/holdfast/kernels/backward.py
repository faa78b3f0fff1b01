"""The way back.

Two tensors travel from layer to layer: du, the gradient at the output of a batch norm (behind the ReLU that follows),
and dy, the gradient at its input. Whoever writes du also adds up what the norm needs to make dy of it.
"""

import triton
import triton.language as tl

from holdfast.kernels.forward import STAGES
from holdfast.kernels.sums import BACKWARD_UNIT, COPIES, add_to_sum, backward_affine, batch_affine, batch_moments


@triton.jit
def add_gradient_sums(du, y, sums, gradient_sums, channel, program, eps, CHANNELS: tl.constexpr):
    """The sums of du and of du times the normalised y; outside the batch du is zero."""
    mean, variance = batch_moments(sums, channel, CHANNELS)
    normalised = (y - mean[None, :]) * tl.rsqrt(variance + eps)[None, :]
    add_to_sum(gradient_sums, tl.sum(du, axis=0), channel, program, BACKWARD_UNIT, CHANNELS)
    along = tl.sum(du * normalised, axis=0)
    add_to_sum(gradient_sums + COPIES * CHANNELS, along, channel, program, BACKWARD_UNIT, CHANNELS)


@triton.jit
def spread_mean(
    gradient, out, y, sums, du, gradient_sums, pixels, eps,
    POSITIONS: tl.constexpr, CHANNELS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Back through the mean over positions and the last ReLU. gradient: N x CHANNELS, float32."""
    program = tl.program_id(0)
    pixel = program * BLOCK + tl.arange(0, BLOCK)
    inside = pixel < pixels
    channel = tl.arange(0, CHANNELS)
    place = pixel[:, None] * CHANNELS + channel[None, :]
    per_image = gradient + (pixel // POSITIONS)[:, None] * CHANNELS + channel[None, :]
    g = tl.load(per_image, mask=inside[:, None], other=0.0) * (1.0 / POSITIONS)
    lit = tl.load(out + place, mask=inside[:, None], other=0.0).to(tl.float32) > 0
    found = tl.where(lit, g, 0.0).to(du.dtype.element_ty)
    tl.store(du + place, found, mask=inside[:, None])
    before = tl.load(y + place, mask=inside[:, None], other=0.0).to(tl.float32)
    add_gradient_sums(found.to(tl.float32), before, sums, gradient_sums, channel, program, eps, CHANNELS)


@triton.jit
def through_norm(
    du, y, dy, sums, gradient_sums, gamma, pixels, share, eps, CHANNELS: tl.constexpr, BLOCK: tl.constexpr
):
    """dy, the gradient at the norm's input, from du, that at its output."""
    pixel = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = (pixel < pixels)[:, None]
    channel = tl.arange(0, CHANNELS)
    place = pixel[:, None] * CHANNELS + channel[None, :]
    after = tl.load(du + place, mask=inside, other=0.0).to(tl.float32)
    before = tl.load(y + place, mask=inside, other=0.0).to(tl.float32)
    a, b, c = backward_affine(sums, gradient_sums, gamma, channel, share, eps, CHANNELS)
    found = after * a[None, :] + before * b[None, :] + c[None, :]
    tl.store(dy + place, found.to(dy.dtype.element_ty), mask=inside)


@triton.jit
def convolve_back(
    dy, weight, shortcut_du, y, out, sums, gamma, beta, du, gradient_sums, pixels, eps,
    HEIGHT: tl.constexpr, WIDTH: tl.constexpr, STRIDE: tl.constexpr, INPUTS: tl.constexpr, OUTPUTS: tl.constexpr,
    SHORTCUT: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """From dy of a convolution to du of the norm before it, whose y, out and so on these are; over pixels of its input.

    HEIGHT, WIDTH: of the input. SHORTCUT "none": the input is relu(bn(y)), and its sign is found from y; else it is the
    end of a block, stored in out, and what the next block's shortcut carries back is added.
    """
    program = tl.program_id(0)
    pixel = program * BLOCK + tl.arange(0, BLOCK)
    inside = pixel < pixels
    image, row, column = pixel // (HEIGHT * WIDTH), pixel // WIDTH % HEIGHT, pixel % WIDTH
    channel, to_channel = tl.arange(0, INPUTS), tl.arange(0, OUTPUTS)
    total = tl.zeros((BLOCK, INPUTS), tl.float32)
    for tap in tl.range(0, 9, num_stages=STAGES):
        r = row + 1 - tap // 3
        c = column + 1 - tap % 3
        valid = inside & (r >= 0) & (r < HEIGHT) & (c >= 0) & (c < WIDTH)
        if STRIDE == 2:
            valid = valid & (r % 2 == 0) & (c % 2 == 0)
        place = (image * (HEIGHT // STRIDE) + r // STRIDE) * (WIDTH // STRIDE) + c // STRIDE
        g = tl.load(dy + place[:, None] * OUTPUTS + to_channel[None, :], mask=valid[:, None], other=0.0)
        w = tl.load(weight + to_channel[:, None] * (9 * INPUTS) + tap * INPUTS + channel[None, :])
        total = tl.dot(g, w, total, input_precision="ieee")
    place = pixel[:, None] * INPUTS + channel[None, :]
    before = tl.load(y + place, mask=inside[:, None], other=0.0).to(tl.float32)
    if SHORTCUT == "none":
        scale, shift = batch_affine(sums, gamma, beta, channel, eps, INPUTS)
        lit = before * scale[None, :] + shift[None, :] > 0
    else:
        lit = tl.load(out + place, mask=inside[:, None], other=0.0).to(tl.float32) > 0
        if SHORTCUT == "same":
            total += tl.load(shortcut_du + place, mask=inside[:, None], other=0.0).to(tl.float32)
        else:
            even = inside & (row % 2 == 0) & (column % 2 == 0)
            small = (image * (HEIGHT // 2) + row // 2) * (WIDTH // 2) + column // 2
            small = small[:, None] * (2 * INPUTS) + channel[None, :] + INPUTS // 2
            total += tl.load(shortcut_du + small, mask=even[:, None], other=0.0).to(tl.float32)
    found = tl.where(lit & inside[:, None], total, 0.0).to(du.dtype.element_ty)
    tl.store(du + place, found, mask=inside[:, None])
    add_gradient_sums(found.to(tl.float32), before, sums, gradient_sums, channel, program, eps, INPUTS)


@triton.jit
def weight_parts(
    x, dy, parts, pixels,
    EACH: tl.constexpr, HEIGHT: tl.constexpr, WIDTH: tl.constexpr, STRIDE: tl.constexpr, INPUTS: tl.constexpr,
    OUTPUTS: tl.constexpr, TAPS: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The weights' gradient over EACH of the output pixels, for TAPS taps: one, or a whole row of three.

    Three pixels beside each other lie together in memory, so a row of taps is one matrix of 3 x INPUTS columns; WIDE
    rounds that up to a power of two. parts: programs x OUTPUTS x 3 x 3 x INPUTS, float32, added up later: in a fixed
    order, so always the same.
    """
    part, group = tl.program_id(0), tl.program_id(1)
    tap_row, tap_column = group * TAPS // 3, group * TAPS % 3
    k, channel = tl.arange(0, WIDE), tl.arange(0, OUTPUTS)
    total = tl.zeros((WIDE, OUTPUTS), tl.float32)
    for start in tl.range(0, EACH, BLOCK, num_stages=STAGES):
        pixel = part * EACH + start + tl.arange(0, BLOCK)
        inside = pixel < pixels
        image, row, column = pixel // (HEIGHT * WIDTH), pixel // WIDTH % HEIGHT, pixel % WIDTH
        r = row * STRIDE + tap_row - 1
        first = column * STRIDE + tap_column - 1
        c = first[:, None] + (k // INPUTS)[None, :]
        valid = (inside & (r >= 0) & (r < HEIGHT * STRIDE))[:, None] & (c >= 0) & (c < WIDTH * STRIDE)
        place = (image * (HEIGHT * STRIDE) + r) * (WIDTH * STRIDE) + first
        valid = valid & (k < TAPS * INPUTS)[None, :]
        h = tl.load(x + place[:, None] * INPUTS + k[None, :], mask=valid, other=0.0)
        g = tl.load(dy + pixel[:, None] * OUTPUTS + channel[None, :], mask=inside[:, None], other=0.0)
        total = tl.dot(tl.trans(h), g, total, input_precision="ieee")
    target = parts + part * (OUTPUTS * 9 * INPUTS) + group * (TAPS * INPUTS)
    target = target + channel[None, :] * (9 * INPUTS) + k[:, None]
    tl.store(target, total, mask=(k < TAPS * INPUTS)[:, None])
