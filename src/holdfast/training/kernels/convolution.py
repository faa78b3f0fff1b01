"""The way forward: a 3 x 3 convolution that adds up what the norm behind it needs, and norm, shortcut and ReLU at once.

Activations are N x H x W x C and weights C_out x 3 x 3 x C_in, in bf16 (in tests float32: whatever the buffers are).
A convolution is nine small matrix products, one per tap; a program computes BLOCK pixels of all channels.

The way back.

Two tensors travel from layer to layer: du, the gradient at the output of a batch norm (behind the ReLU that follows),
and dy, the gradient at its input. Whoever writes du also adds up what the norm needs to make dy of it.

All layers' parameter gradients from their parts, in two kernels for the whole network.

The weights' gradient of all nine taps from one matrix product, for stride 1: half the traffic of a row of taps.

Three pixels beside each other on one side, three below each other on the other: every pair of them is a tap.
"""

import triton
import triton.language as tl

from holdfast.training.kernels.sums import (
    BACKWARD_UNIT,
    COPIES,
    add_to_moments,
    add_to_sum,
    backward_affine,
    batch_affine,
    batch_moments,
    nan_where_unsound,
    update_running,
)

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


@triton.jit
def add_up_parts(parts, table, gradient, BLOCK: tl.constexpr):
    """gradient[i] = sum over parts; one program per BLOCK weights of one layer.

    table: per program: where its parts begin, how many there are, how far apart, where the sum goes, how many weights.
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

    table: per layer: where its sums begin, its channels, where the weight's gradient goes, where the bias's goes.
    """
    row = table + tl.program_id(0) * 4
    begin, channels = tl.load(row), tl.load(row + 1)
    weight, bias = tl.load(row + 2), tl.load(row + 3)
    channel = tl.arange(0, CHANNELS)
    present = channel < channels
    copy = tl.arange(0, COPIES)
    place = gradient_sums + begin + copy[:, None] * channels + channel[None, :]
    du = tl.sum(tl.load(place, mask=present[None, :], other=0), axis=0).to(tl.float64) / BACKWARD_UNIT
    along = tl.sum(tl.load(place + COPIES * channels, mask=present[None, :], other=0), axis=0).to(tl.float64)
    tl.store(gradient + bias + channel, du.to(tl.float32), mask=present)
    tl.store(gradient + weight + channel, (along / BACKWARD_UNIT).to(tl.float32), mask=present)


@triton.jit
def weight_parts_nine(
    x, dy, parts, pixels,
    EACH: tl.constexpr, HEIGHT: tl.constexpr, WIDTH: tl.constexpr, INPUTS: tl.constexpr, OUTPUTS: tl.constexpr,
    SHIFTS: tl.constexpr, WIDE: tl.constexpr, HIGH: tl.constexpr, BLOCK: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """As ``weight_parts``, over EACH of the pixels of x, for SHIFTS columns of taps: one or all three.

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
