"""3 x 3 convolutions with the batch norm, shortcut and ReLU after them: forward pass, backward pass, weight gradients.

Activations are N x H x W x C and weights C_out x 3 x 3 x C_in, in bf16; in tests float32 (the kernels use the dtype of
the buffers). A convolution is nine small matrix products, one per tap; a program computes BLOCK pixels of all channels.
In the backward pass du is the gradient at the output of a batch norm (before the ReLU after it) and dy the gradient at
its input. The kernel that writes du also adds up the sums from which the norm's backward pass computes dy.
"""

import triton
import triton.language as tl

from papers.kernels.sums import (
    BACKWARD_UNIT,
    COPIES,
    add_to_moments,
    add_to_sum,
    backward_affine,
    batch_affine,
    batch_moments,
    nan_where_too_large,
    update_running,
)

STAGES = tl.constexpr(3)
"""Number of taps that are loaded ahead of the matrix products."""


@triton.jit
def relu(u):
    """max(u, 0); NaN stays NaN, as in torch, so that the loss shows it."""
    return tl.maximum(u, 0.0, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def shortcut_at(
    shortcut, pixel, inside, channel,
    HEIGHT: tl.constexpr, WIDTH: tl.constexpr, CHANNELS: tl.constexpr, SHORTCUT: tl.constexpr,
):  # fmt: skip
    """The shortcut's values at these pixels: the block's input ("same"), or every other pixel of it between channels
    of zeros ("half", option A of He et al.)."""
    if SHORTCUT == "same":
        offset = pixel[:, None] * CHANNELS + channel[None, :]
        return tl.load(shortcut + offset, mask=inside[:, None], other=0.0).to(tl.float32)
    image, row, column = pixel // (HEIGHT * WIDTH), pixel // WIDTH % HEIGHT, pixel % WIDTH
    source = (image * (2 * HEIGHT) + 2 * row) * (2 * WIDTH) + 2 * column
    from_channel = channel - CHANNELS // 4
    present = (from_channel >= 0) & (from_channel < CHANNELS // 2)
    offset = source[:, None] * (CHANNELS // 2) + from_channel[None, :]
    return tl.load(shortcut + offset, mask=inside[:, None] & present[None, :], other=0.0).to(tl.float32)


@triton.jit
def input_at_tap(
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
        offset, valid = input_at_tap(tap, image, row, column, inside, HEIGHT, WIDTH, STRIDE)
        a = tl.load(x + offset[:, None] * INPUTS + from_channel[None, :], mask=valid[:, None], other=0.0)
        b = tl.load(weight + channel[None, :] * (9 * INPUTS) + tap * INPUTS + from_channel[:, None])
        total = tl.dot(a, b, total, input_precision="ieee")
    return total


@triton.jit
def convolve(
    x, weight, y, sums, pixels, inverse_count,
    HEIGHT: tl.constexpr, WIDTH: tl.constexpr, STRIDE: tl.constexpr, INPUTS: tl.constexpr, OUTPUTS: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Training: y = conv(x), and the sums that give its moments."""
    program = tl.program_id(0)
    pixel = program * BLOCK + tl.arange(0, BLOCK)
    inside = pixel < pixels
    channel = tl.arange(0, OUTPUTS)
    total = convolution_tile(x, weight, pixel, inside, HEIGHT, WIDTH, STRIDE, INPUTS, OUTPUTS, BLOCK)
    rounded = total.to(y.dtype.element_ty)
    tl.store(y + pixel[:, None] * OUTPUTS + channel[None, :], rounded, mask=inside[:, None])
    seen = rounded.to(tl.float32)
    add_to_moments(sums, tl.sum(seen, axis=0), tl.sum(seen * seen, axis=0), channel, program, inverse_count, OUTPUTS)


@triton.jit
def normalise(
    y, shortcut, out, sums, gamma, beta, running_mean, running_var, pixels, inverse_count, eps, momentum,
    HEIGHT: tl.constexpr, WIDTH: tl.constexpr, CHANNELS: tl.constexpr, SHORTCUT: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Training: out = relu(bn(y) + shortcut); the first program also updates the running statistics."""
    program = tl.program_id(0)
    pixel = program * BLOCK + tl.arange(0, BLOCK)
    inside = pixel < pixels
    channel = tl.arange(0, CHANNELS)
    offset = pixel[:, None] * CHANNELS + channel[None, :]
    before = tl.load(y + offset, mask=inside[:, None], other=0.0).to(tl.float32)
    scale, shift = batch_affine(sums, gamma, beta, channel, eps, CHANNELS)
    u = nan_where_too_large(before * scale[None, :] + shift[None, :], before)
    if SHORTCUT != "none":
        u += shortcut_at(shortcut, pixel, inside, channel, HEIGHT, WIDTH, CHANNELS, SHORTCUT)
    tl.store(out + offset, relu(u).to(out.dtype.element_ty), mask=inside[:, None])
    if program == 0:
        update_running(sums, running_mean, running_var, channel, inverse_count, momentum, CHANNELS)


@triton.jit
def convolve_eval(
    x, weight, out, shortcut, gamma, beta, running_mean, running_var, pixels, eps,
    HEIGHT: tl.constexpr, WIDTH: tl.constexpr, STRIDE: tl.constexpr, INPUTS: tl.constexpr, OUTPUTS: tl.constexpr,
    SHORTCUT: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Evaluation, with running statistics: out = relu(bn(conv(x)) + shortcut)."""
    pixel = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = pixel < pixels
    channel = tl.arange(0, OUTPUTS)
    total = convolution_tile(x, weight, pixel, inside, HEIGHT, WIDTH, STRIDE, INPUTS, OUTPUTS, BLOCK)
    scale = tl.load(gamma + channel) * tl.rsqrt(tl.load(running_var + channel) + eps)
    shift = tl.load(beta + channel) - tl.load(running_mean + channel) * scale
    u = total * scale[None, :] + shift[None, :]
    if SHORTCUT != "none":
        u += shortcut_at(shortcut, pixel, inside, channel, HEIGHT, WIDTH, OUTPUTS, SHORTCUT)
    offset = pixel[:, None] * OUTPUTS + channel[None, :]
    tl.store(out + offset, relu(u).to(out.dtype.element_ty), mask=inside[:, None])


@triton.jit
def add_gradient_sums(du, y, sums, gradient_sums, channel, program, eps, CHANNELS: tl.constexpr):
    """Add the sums of du and of du times the normalised y; du is zero outside the batch."""
    mean, variance = batch_moments(sums, channel, CHANNELS)
    normalised = (y - mean[None, :]) * tl.rsqrt(variance + eps)[None, :]
    add_to_sum(gradient_sums, tl.sum(du, axis=0), channel, program, BACKWARD_UNIT, CHANNELS)
    along = tl.sum(du * normalised, axis=0)
    add_to_sum(gradient_sums + COPIES * CHANNELS, along, channel, program, BACKWARD_UNIT, CHANNELS)


@triton.jit
def mean_backward(
    gradient, out, y, sums, du, gradient_sums, pixels, eps,
    POSITIONS: tl.constexpr, CHANNELS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Backward pass of the mean over positions and of the last ReLU. gradient: N x CHANNELS, float32."""
    program = tl.program_id(0)
    pixel = program * BLOCK + tl.arange(0, BLOCK)
    inside = pixel < pixels
    channel = tl.arange(0, CHANNELS)
    offset = pixel[:, None] * CHANNELS + channel[None, :]
    per_image = gradient + (pixel // POSITIONS)[:, None] * CHANNELS + channel[None, :]
    g = tl.load(per_image, mask=inside[:, None], other=0.0) * (1.0 / POSITIONS)
    active = tl.load(out + offset, mask=inside[:, None], other=0.0).to(tl.float32) > 0
    found = tl.where(active, g, 0.0).to(du.dtype.element_ty)
    tl.store(du + offset, found, mask=inside[:, None])
    before = tl.load(y + offset, mask=inside[:, None], other=0.0).to(tl.float32)
    add_gradient_sums(found.to(tl.float32), before, sums, gradient_sums, channel, program, eps, CHANNELS)


@triton.jit
def norm_backward(
    du, y, dy, sums, gradient_sums, gamma, pixels, inverse_count, eps, CHANNELS: tl.constexpr, BLOCK: tl.constexpr
):
    """dy, the gradient at the norm's input, from du, that at its output."""
    pixel = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = (pixel < pixels)[:, None]
    channel = tl.arange(0, CHANNELS)
    offset = pixel[:, None] * CHANNELS + channel[None, :]
    after = tl.load(du + offset, mask=inside, other=0.0).to(tl.float32)
    before = tl.load(y + offset, mask=inside, other=0.0).to(tl.float32)
    a, b, c = backward_affine(sums, gradient_sums, gamma, channel, inverse_count, eps, CHANNELS)
    found = after * a[None, :] + before * b[None, :] + c[None, :]
    tl.store(dy + offset, found.to(dy.dtype.element_ty), mask=inside)


@triton.jit
def convolve_backward(
    dy, weight, shortcut_du, y, out, sums, gamma, beta, du, gradient_sums, pixels, eps,
    HEIGHT: tl.constexpr, WIDTH: tl.constexpr, STRIDE: tl.constexpr, INPUTS: tl.constexpr, OUTPUTS: tl.constexpr,
    SHORTCUT: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """du of the norm before a convolution, from the convolution's dy; over the pixels of the convolution's input.

    y, out, sums and so on belong to that norm. HEIGHT, WIDTH: of the input. SHORTCUT "none": the input is relu(bn(y)),
    and its sign is computed from y. Otherwise the input is the end of a block, stored in out, and the gradient of the
    next block's shortcut is added.
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
        offset = (image * (HEIGHT // STRIDE) + r // STRIDE) * (WIDTH // STRIDE) + c // STRIDE
        g = tl.load(dy + offset[:, None] * OUTPUTS + to_channel[None, :], mask=valid[:, None], other=0.0)
        w = tl.load(weight + to_channel[:, None] * (9 * INPUTS) + tap * INPUTS + channel[None, :])
        total = tl.dot(g, w, total, input_precision="ieee")
    offset = pixel[:, None] * INPUTS + channel[None, :]
    before = tl.load(y + offset, mask=inside[:, None], other=0.0).to(tl.float32)
    if SHORTCUT == "none":
        scale, shift = batch_affine(sums, gamma, beta, channel, eps, INPUTS)
        active = before * scale[None, :] + shift[None, :] > 0
    else:
        active = tl.load(out + offset, mask=inside[:, None], other=0.0).to(tl.float32) > 0
        if SHORTCUT == "same":
            total += tl.load(shortcut_du + offset, mask=inside[:, None], other=0.0).to(tl.float32)
        else:
            even = inside & (row % 2 == 0) & (column % 2 == 0)
            small = (image * (HEIGHT // 2) + row // 2) * (WIDTH // 2) + column // 2
            small = small[:, None] * (2 * INPUTS) + channel[None, :] + INPUTS // 2
            total += tl.load(shortcut_du + small, mask=even[:, None], other=0.0).to(tl.float32)
    found = tl.where(active & inside[:, None], total, 0.0).to(du.dtype.element_ty)
    tl.store(du + offset, found, mask=inside[:, None])
    add_gradient_sums(found.to(tl.float32), before, sums, gradient_sums, channel, program, eps, INPUTS)


@triton.jit
def weight_parts(
    x, dy, parts, pixels,
    EACH: tl.constexpr, HEIGHT: tl.constexpr, WIDTH: tl.constexpr, STRIDE: tl.constexpr, INPUTS: tl.constexpr,
    OUTPUTS: tl.constexpr, TAPS: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The weights' gradient over EACH of the output pixels, for TAPS taps: one, or a whole row of three.

    Three neighbouring pixels are contiguous in memory, so a row of taps is one matrix of 3 x INPUTS columns; WIDE is
    that rounded up to a power of two. parts: programs x OUTPUTS x 3 x 3 x INPUTS, float32, summed later in a fixed
    order, so that the result is always the same.
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
        offset = (image * (HEIGHT * STRIDE) + r) * (WIDTH * STRIDE) + first
        valid = valid & (k < TAPS * INPUTS)[None, :]
        h = tl.load(x + offset[:, None] * INPUTS + k[None, :], mask=valid, other=0.0)
        g = tl.load(dy + pixel[:, None] * OUTPUTS + channel[None, :], mask=inside[:, None], other=0.0)
        total = tl.dot(tl.trans(h), g, total, input_precision="ieee")
    target = parts + part * (OUTPUTS * 9 * INPUTS) + group * (TAPS * INPUTS)
    target = target + channel[None, :] * (9 * INPUTS) + k[:, None]
    tl.store(target, total, mask=(k < TAPS * INPUTS)[:, None])


@triton.jit
def sum_parts(parts, table, gradient, BLOCK: tl.constexpr):
    """gradient[i] = sum over parts; one program per BLOCK weights of one layer.

    table: per program: offset of its first part, number of parts, distance between them, offset of the sum, number of
    weights.
    """
    row = table + tl.program_id(0) * 5
    begin, count, apart = tl.load(row), tl.load(row + 1), tl.load(row + 2)
    target, size = tl.load(row + 3), tl.load(row + 4)
    offset = tl.arange(0, BLOCK)
    present = offset < size
    total = tl.zeros((BLOCK,), tl.float32)
    for part in range(count):
        total += tl.load(parts + begin + part * apart + offset, mask=present, other=0.0)
    tl.store(gradient + target + offset, total, mask=present)


@triton.jit
def norm_gradients(gradient_sums, table, gradient, CHANNELS: tl.constexpr):
    """The gradients of each norm's weight and bias are its gradient sums; one program per layer.

    table: per layer: offset of its sums, number of channels, offsets of the weight's and of the bias's gradient.
    """
    row = table + tl.program_id(0) * 4
    begin, channels = tl.load(row), tl.load(row + 1)
    weight, bias = tl.load(row + 2), tl.load(row + 3)
    channel = tl.arange(0, CHANNELS)
    present = channel < channels
    copy = tl.arange(0, COPIES)
    pointer = gradient_sums + begin + copy[:, None] * channels + channel[None, :]
    du = tl.sum(tl.load(pointer, mask=present[None, :], other=0), axis=0).to(tl.float64) / BACKWARD_UNIT
    along = tl.sum(tl.load(pointer + COPIES * channels, mask=present[None, :], other=0), axis=0).to(tl.float64)
    tl.store(gradient + bias + channel, du.to(tl.float32), mask=present)
    tl.store(gradient + weight + channel, (along / BACKWARD_UNIT).to(tl.float32), mask=present)


@triton.jit
def weight_parts_nine(
    x, dy, parts, pixels,
    EACH: tl.constexpr, HEIGHT: tl.constexpr, WIDTH: tl.constexpr, INPUTS: tl.constexpr, OUTPUTS: tl.constexpr,
    SHIFTS: tl.constexpr, WIDE: tl.constexpr, HIGH: tl.constexpr, BLOCK: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """As ``weight_parts``, for stride 1, all nine taps in one matrix product: half the memory traffic.

    Each part is over EACH of the pixels of x, for SHIFTS columns of taps: one or all three. Three pixels side by side
    are multiplied with three pixels one above the other; every pair of them is a tap.

    WIDE and HIGH: SHIFTS x INPUTS and 3 x OUTPUTS, rounded up to powers of two.
    """
    part, group = tl.program_id(0), tl.program_id(1)
    k, n = tl.arange(0, WIDE), tl.arange(0, HIGH)
    shift, up = group * SHIFTS + k // INPUTS - 1, 1 - n // OUTPUTS
    wanted = (k < SHIFTS * INPUTS)[:, None] & (n < 3 * OUTPUTS)[None, :]
    total = tl.zeros((WIDE, HIGH), tl.float32)
    for start in tl.range(0, EACH, BLOCK, num_stages=STAGES):
        pixel = (part * EACH + start + tl.arange(0, BLOCK))[:, None]
        r, c = pixel // WIDTH % HEIGHT + up[None, :], pixel % WIDTH + shift[None, :]
        beside = (pixel < pixels) & (c >= 0) & (c < WIDTH) & (k < SHIFTS * INPUTS)[None, :]
        h = tl.load(x + (pixel + group * SHIFTS - 1) * INPUTS + k[None, :], mask=beside, other=0.0)
        over = (pixel < pixels) & (r >= 0) & (r < HEIGHT) & (n < 3 * OUTPUTS)[None, :]
        g = tl.load(dy + (pixel + up[None, :] * WIDTH) * OUTPUTS + (n % OUTPUTS)[None, :], mask=over, other=0.0)
        total = tl.dot(tl.trans(h), g, total, input_precision="ieee")
    target = parts + part * (OUTPUTS * 9 * INPUTS) + group * (SHIFTS * INPUTS) + k[:, None]
    target = target + (n % OUTPUTS)[None, :] * (9 * INPUTS) + (n // OUTPUTS)[None, :] * (3 * INPUTS)
    tl.store(target, total, mask=wanted)
