"""The way forward: a 3 x 3 convolution that adds up what the norm behind it needs, and norm, shortcut and ReLU at once.

Activations are N x H x W x C and weights C_out x 3 x 3 x C_in, in bf16 (in tests float32: whatever the buffers are).
A convolution is nine small matrix products, one per tap; a program computes BLOCK pixels of all channels.
"""

import triton
import triton.language as tl

from holdfast.kernels.sums import add_to_moments, batch_affine, nan_where_unsound, update_running

STAGES = tl.constexpr(3)
"""How many taps are in flight between memory and the matrix units."""


@triton.jit
def relu(u):
    """NaN stays NaN, as in torch: the loss must show what went wrong on the way to it."""
    return tl.maximum(u, 0.0, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def shortcut_at(
    shortcut, pixel, inside, channel,
    HEIGHT: tl.constexpr, WIDTH: tl.constexpr, CHANNELS: tl.constexpr, SHORTCUT: tl.constexpr,
):  # fmt: skip
    """What the shortcut brings to these pixels: the block's input ("same"), or every other pixel of it between
    channels of zeros ("half", option A of He et al.)."""
    if SHORTCUT == "same":
        place = pixel[:, None] * CHANNELS + channel[None, :]
        return tl.load(shortcut + place, mask=inside[:, None], other=0.0).to(tl.float32)
    image, row, column = pixel // (HEIGHT * WIDTH), pixel // WIDTH % HEIGHT, pixel % WIDTH
    source = (image * (2 * HEIGHT) + 2 * row) * (2 * WIDTH) + 2 * column
    from_channel = channel - CHANNELS // 4
    present = (from_channel >= 0) & (from_channel < CHANNELS // 2)
    place = source[:, None] * (CHANNELS // 2) + from_channel[None, :]
    return tl.load(shortcut + place, mask=inside[:, None] & present[None, :], other=0.0).to(tl.float32)


@triton.jit
def under_tap(
    tap, image, row, column, inside, HEIGHT: tl.constexpr, WIDTH: tl.constexpr, STRIDE: tl.constexpr
):  # fmt: skip
    """The input pixels that a tap reads for these output pixels, and which exist. HEIGHT, WIDTH: of the output."""
    r = row * STRIDE + tap // 3 - 1
    c = column * STRIDE + tap % 3 - 1
    valid = inside & (r >= 0) & (r < HEIGHT * STRIDE) & (c >= 0) & (c < WIDTH * STRIDE)
    return (image * (HEIGHT * STRIDE) + r) * (WIDTH * STRIDE) + c, valid


@triton.jit
def convolution_tile(
    x, weight, pixel, inside,
    HEIGHT: tl.constexpr, WIDTH: tl.constexpr, STRIDE: tl.constexpr, INPUTS: tl.constexpr, OUTPUTS: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """BLOCK output pixels x OUTPUTS, float32. HEIGHT, WIDTH: of the output."""
    image, row, column = pixel // (HEIGHT * WIDTH), pixel // WIDTH % HEIGHT, pixel % WIDTH
    from_channel, channel = tl.arange(0, INPUTS), tl.arange(0, OUTPUTS)
    total = tl.zeros((BLOCK, OUTPUTS), tl.float32)
    for tap in tl.range(0, 9, num_stages=STAGES):
        place, valid = under_tap(tap, image, row, column, inside, HEIGHT, WIDTH, STRIDE)
        a = tl.load(x + place[:, None] * INPUTS + from_channel[None, :], mask=valid[:, None], other=0.0)
        b = tl.load(weight + channel[None, :] * (9 * INPUTS) + tap * INPUTS + from_channel[:, None])
        total = tl.dot(a, b, total, input_precision="ieee")
    return total


@triton.jit
def convolve(
    x, weight, y, sums, pixels, share,
    HEIGHT: tl.constexpr, WIDTH: tl.constexpr, STRIDE: tl.constexpr, INPUTS: tl.constexpr, OUTPUTS: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """In training: y = conv(x), and the sums that its moments are read from."""
    program = tl.program_id(0)
    pixel = program * BLOCK + tl.arange(0, BLOCK)
    inside = pixel < pixels
    channel = tl.arange(0, OUTPUTS)
    total = convolution_tile(x, weight, pixel, inside, HEIGHT, WIDTH, STRIDE, INPUTS, OUTPUTS, BLOCK)
    rounded = total.to(y.dtype.element_ty)
    tl.store(y + pixel[:, None] * OUTPUTS + channel[None, :], rounded, mask=inside[:, None])
    seen = rounded.to(tl.float32)
    add_to_moments(sums, tl.sum(seen, axis=0), tl.sum(seen * seen, axis=0), channel, program, share, OUTPUTS)


@triton.jit
def normalise(
    y, shortcut, out, sums, gamma, beta, running_mean, running_var, pixels, share, eps, momentum,
    HEIGHT: tl.constexpr, WIDTH: tl.constexpr, CHANNELS: tl.constexpr, SHORTCUT: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """In training: out = relu(bn(y) + shortcut); the first program also updates what the norm remembers."""
    program = tl.program_id(0)
    pixel = program * BLOCK + tl.arange(0, BLOCK)
    inside = pixel < pixels
    channel = tl.arange(0, CHANNELS)
    place = pixel[:, None] * CHANNELS + channel[None, :]
    before = tl.load(y + place, mask=inside[:, None], other=0.0).to(tl.float32)
    scale, shift = batch_affine(sums, gamma, beta, channel, eps, CHANNELS)
    u = nan_where_unsound(before * scale[None, :] + shift[None, :], before)
    if SHORTCUT != "none":
        u += shortcut_at(shortcut, pixel, inside, channel, HEIGHT, WIDTH, CHANNELS, SHORTCUT)
    tl.store(out + place, relu(u).to(out.dtype.element_ty), mask=inside[:, None])
    if program == 0:
        update_running(sums, running_mean, running_var, channel, share, momentum, CHANNELS)


@triton.jit
def convolve_frozen(
    x, weight, out, shortcut, gamma, beta, running_mean, running_var, pixels, eps,
    HEIGHT: tl.constexpr, WIDTH: tl.constexpr, STRIDE: tl.constexpr, INPUTS: tl.constexpr, OUTPUTS: tl.constexpr,
    SHORTCUT: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """In evaluation the norm is known beforehand: out = relu(bn(conv(x)) + shortcut) in one go."""
    pixel = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = pixel < pixels
    channel = tl.arange(0, OUTPUTS)
    total = convolution_tile(x, weight, pixel, inside, HEIGHT, WIDTH, STRIDE, INPUTS, OUTPUTS, BLOCK)
    scale = tl.load(gamma + channel) * tl.rsqrt(tl.load(running_var + channel) + eps)
    shift = tl.load(beta + channel) - tl.load(running_mean + channel) * scale
    u = total * scale[None, :] + shift[None, :]
    if SHORTCUT != "none":
        u += shortcut_at(shortcut, pixel, inside, channel, HEIGHT, WIDTH, OUTPUTS, SHORTCUT)
    place = pixel[:, None] * OUTPUTS + channel[None, :]
    tl.store(out + place, relu(u).to(out.dtype.element_ty), mask=inside[:, None])
