"""A 3 x 3 convolution in groups of 16 channels, its way back and its weights' gradient, as matrix products.

Activations are N x H x W x C and weights C x 3 x 3 x 16, in bf16 (in tests float32: whatever the buffers are). A pixel
of one group is 32 bytes, a quarter of what memory hands out at once, so a program takes WIDE channels: one group, or a
few side by side. Their weights are then one matrix with zeros between the groups. That multiplies zeros, for which the
matrix units have time while the bytes come.
"""

import triton
import triton.language as tl

from holdfast.kernels.forward import under_tap

GROUP = tl.constexpr(16)
"""Channels of a group; also the least that a matrix product takes."""


@triton.jit
def tap_weights(weight, tap, from_channel, to_channel):
    """The weights of one tap between these channels, of which one is a row and the other a column."""
    same_group = from_channel // GROUP == to_channel // GROUP
    place = to_channel * (9 * GROUP) + tap * GROUP + from_channel % GROUP
    return tl.load(weight + place, mask=same_group, other=0.0)


@triton.jit
def convolve_groups(
    x, weight, y, pixels,
    HEIGHT: tl.constexpr, WIDTH: tl.constexpr, STRIDE: tl.constexpr, CHANNELS: tl.constexpr, WIDE: tl.constexpr,
    BLOCK: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """y = conv(x), for BLOCK pixels of WIDE channels. HEIGHT, WIDTH: of y.

    STAGES: how many taps are in flight between memory and the matrix units. Programs for the same pixels follow each
    other, so that what lies together in memory is asked for at once.
    """
    program = tl.program_id(0)
    channel = program % (CHANNELS // WIDE) * WIDE + tl.arange(0, WIDE)
    pixel = program // (CHANNELS // WIDE) * BLOCK + tl.arange(0, BLOCK)
    inside = pixel < pixels
    image, row, column = pixel // (HEIGHT * WIDTH), pixel // WIDTH % HEIGHT, pixel % WIDTH
    total = tl.zeros((BLOCK, WIDE), tl.float32)
    for tap in tl.range(0, 9, num_stages=STAGES):
        place, valid = under_tap(tap, image, row, column, inside, HEIGHT, WIDTH, STRIDE)
        a = tl.load(x + place[:, None] * CHANNELS + channel[None, :], mask=valid[:, None], other=0.0)
        b = tap_weights(weight, tap, channel[:, None], channel[None, :])
        total = tl.dot(a, b, total, input_precision="ieee")
    place = pixel[:, None] * CHANNELS + channel[None, :]
    tl.store(y + place, total.to(y.dtype.element_ty), mask=inside[:, None])


@triton.jit
def convolve_groups_back(
    dy, weight, dx, pixels,
    HEIGHT: tl.constexpr, WIDTH: tl.constexpr, STRIDE: tl.constexpr, CHANNELS: tl.constexpr, WIDE: tl.constexpr,
    BLOCK: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """dx from dy. pixels, HEIGHT, WIDTH: of dy.

    With stride 2 a program takes one of the four pixels of x above each of BLOCK pixels of dy: which taps end there
    depends on which of the four it is, so only those one, two or four are computed instead of nine mostly of zeros.
    """
    program = tl.program_id(0)
    channel = program % (CHANNELS // WIDE) * WIDE + tl.arange(0, WIDE)
    program = program // (CHANNELS // WIDE)
    corner = program % (STRIDE * STRIDE)
    pixel = program // (STRIDE * STRIDE) * BLOCK + tl.arange(0, BLOCK)
    inside = pixel < pixels
    image, row, column = pixel // (HEIGHT * WIDTH), pixel // WIDTH % HEIGHT, pixel % WIDTH
    if STRIDE == 1:
        # The farthest pixel of dy that a tap leads to, how many rows and columns of taps there are.
        down, right, rows, columns = 1, 1, 3, 3
        to_row, to_column = row, column
    else:
        down, right = corner // 2, corner % 2
        rows, columns = 1 + down, 1 + right
        to_row, to_column = row * 2 + down, column * 2 + right
    total = tl.zeros((BLOCK, WIDE), tl.float32)
    for i in tl.range(0, rows * columns, num_stages=STAGES):
        up, left = i // columns, i % columns
        tap = (1 - down + STRIDE * up) * 3 + 1 - right + STRIDE * left
        r, c = row + down - up, column + right - left
        valid = inside & (r >= 0) & (r < HEIGHT) & (c >= 0) & (c < WIDTH)
        place = (image * HEIGHT + r) * WIDTH + c
        g = tl.load(dy + place[:, None] * CHANNELS + channel[None, :], mask=valid[:, None], other=0.0)
        w = tap_weights(weight, tap, channel[None, :], channel[:, None])
        total = tl.dot(g, w, total, input_precision="ieee")
    place = (image * (HEIGHT * STRIDE) + to_row) * (WIDTH * STRIDE) + to_column
    found = total.to(dx.dtype.element_ty)
    tl.store(dx + place[:, None] * CHANNELS + channel[None, :], found, mask=inside[:, None])


@triton.jit
def group_weight_parts(
    x, dy, parts, pixels,
    EACH: tl.constexpr, HEIGHT: tl.constexpr, WIDTH: tl.constexpr, STRIDE: tl.constexpr, CHANNELS: tl.constexpr,
    WIDE: tl.constexpr, BLOCK: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """The weights' gradient over EACH of the output pixels, for one row of three taps; a fourth fills the matrix up.

    HEIGHT, WIDTH: of dy. parts: programs x C x 3 x 3 x 16, float32, added up later: in a fixed order, so always the
    same.
    """
    first, tap_row, part = tl.program_id(0) * WIDE, tl.program_id(1), tl.program_id(2)
    channel, k = tl.arange(0, WIDE), tl.arange(0, 4 * WIDE)
    tap_column, from_channel = k // WIDE, k % WIDE
    total = tl.zeros((4 * WIDE, WIDE), tl.float32)
    for start in tl.range(0, EACH, BLOCK, num_stages=STAGES):
        pixel = part * EACH + start + tl.arange(0, BLOCK)
        inside = pixel < pixels
        image, row, column = pixel // (HEIGHT * WIDTH), pixel // WIDTH % HEIGHT, pixel % WIDTH
        r = row * STRIDE + tap_row - 1
        c = (column * STRIDE - 1)[:, None] + tap_column[None, :]
        valid = (inside & (r >= 0) & (r < HEIGHT * STRIDE))[:, None] & (c >= 0) & (c < WIDTH * STRIDE)
        valid = valid & (tap_column < 3)[None, :]
        place = (image * (HEIGHT * STRIDE) + r) * (WIDTH * STRIDE) + column * STRIDE - 1
        place = place[:, None] * CHANNELS + (tap_column * CHANNELS + from_channel)[None, :]
        h = tl.load(x + first + place, mask=valid, other=0.0)
        g = tl.load(dy + first + pixel[:, None] * CHANNELS + channel[None, :], mask=inside[:, None], other=0.0)
        total = tl.dot(tl.trans(h), g, total, input_precision="ieee")
    target = parts + part * (CHANNELS * 9 * GROUP) + (tap_row * 3 + tap_column)[:, None] * GROUP
    target = target + (first + channel)[None, :] * (9 * GROUP) + (from_channel % GROUP)[:, None]
    same_group = (from_channel // GROUP)[:, None] == (channel // GROUP)[None, :]
    tl.store(target, total, mask=same_group & (tap_column < 3)[:, None])
