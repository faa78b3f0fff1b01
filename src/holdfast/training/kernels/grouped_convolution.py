"""A 3 x 3 convolution in groups of 16 channels that autograd knows: ``F.conv2d`` by kernels made for small groups.

A 3 x 3 convolution in groups of 16 channels, its way back and its weights' gradient, as matrix products.

Activations are N x H x W x C and weights C x 3 x 3 x 16, in bf16 (in tests float32: whatever the buffers are). A pixel
of one group is 32 bytes, a quarter of what memory hands out at once, so a program takes WIDE channels: one group, or a
few side by side. Their weights are then one matrix with zeros between the groups. That multiplies zeros, for which the
matrix units have time while the bytes come.
"""

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from holdfast.training.kernels.convolution import under_tap
from holdfast.training.kernels.sums import within_reach

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


GROUP_WIDTH = int(GROUP)


@dataclass(frozen=True)
class Tiles:
    """How the work is cut.

    groups: side by side in one program, where they divide the groups there are; convolve, back: pixels per program;
    programs: of the weights' gradient, about, each in steps of ``part_block`` pixels; stages: of loads in flight.
    """

    groups: int
    convolve: int
    back: int
    programs: int
    part_block: int
    stages: int = 3
    warps: int = 4


TILES = Tiles(groups=2, convolve=256, back=128, programs=396, part_block=64)
SMALL_TILES = Tiles(groups=2, convolve=128, back=128, programs=396, part_block=64)
FEW_PIXELS = 2**14
"""Below that, and for float32, which takes twice the room, the small tiles. Not measured yet: both are what 32-channel
layers of a CIFAR ResNet want on an H200 (bench/README.md), which are the same products; three programs of the weights'
gradient have room in each of its 132 multiprocessors."""


def grouped_convolution(x: Tensor, weight: Tensor, stride: int = 1, *, cast: Tensor | None = None) -> Tensor:
    """``F.conv2d(x, weight, stride=stride, padding=1, groups=C // 16)``, in x's dtype and channels-last.

    x: N x C x H x W, H and W multiples of the stride, which is 1 or 2. Beyond the kernels' reach torch carries it out.
    weight: C x 16 x 3 x 3 in float32, channels-last, and so is its gradient.
    cast: the weight in x's dtype, for callers who cast many at once.
    A value that is NaN or infinite spoils the group beside its own too.
    """
    if not within_reach(x):
        return F.conv2d(x, weight.to(x.dtype), stride=stride, padding=1, groups=x.shape[1] // GROUP_WIDTH)
    cast = weight.detach().to(x.dtype) if cast is None else cast
    result: Tensor = _Convolution.apply(x, weight, cast, stride)
    return result


class _Convolution(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, cast: Tensor, stride: int) -> Tensor:
        x, cast = _channels_last(x), _channels_last(cast)
        ctx.stride = stride
        ctx.save_for_backward(x, cast)
        shape = (x.shape[0], x.shape[1], x.shape[2] // stride, x.shape[3] // stride)
        y = torch.empty(shape, dtype=x.dtype, device=x.device, memory_format=torch.channels_last)
        tiles, sizes = _cut(y, stride)
        programs = _blocks(y, tiles.convolve) * (y.shape[1] // sizes["WIDE"])
        convolve_groups[(programs,)](x, cast, y, _pixels(y), **sizes, BLOCK=tiles.convolve, num_warps=tiles.warps)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        x, cast = ctx.saved_tensors
        dy = _channels_last(dy)
        dx = _gradient_of_input(dy, x, cast, ctx.stride) if ctx.needs_input_grad[0] else None
        dw = _gradient_of_weight(dy, x, ctx.stride) if ctx.needs_input_grad[1] else None
        return dx, dw, None, None


def _gradient_of_input(dy: Tensor, x: Tensor, cast: Tensor, stride: int) -> Tensor:
    tiles, sizes = _cut(dy, stride)
    dx = torch.empty_like(x)
    programs = _blocks(dy, tiles.back) * stride**2 * (dy.shape[1] // sizes["WIDE"])
    convolve_groups_back[(programs,)](dy, cast, dx, _pixels(dy), **sizes, BLOCK=tiles.back, num_warps=tiles.warps)
    return dx


def _gradient_of_weight(dy: Tensor, x: Tensor, stride: int) -> Tensor:
    """C x 16 x 3 x 3 in float32, laid out as the parameter is, so that autograd keeps it instead of copying it."""
    tiles, sizes = _cut(dy, stride)
    channels = dy.shape[1]
    slices = channels // sizes["WIDE"]
    steps = _blocks(dy, tiles.part_block)
    steps_each = -(-steps // max(1, tiles.programs // (3 * slices)))
    count, each = -(-steps // steps_each), steps_each * tiles.part_block
    parts = torch.empty((count, channels, 3, 3, GROUP_WIDTH), dtype=torch.float32, device=dy.device)
    group_weight_parts[(slices, 3, count)](
        x, dy, parts, _pixels(dy), EACH=each, **sizes, BLOCK=tiles.part_block, num_warps=tiles.warps
    )
    return parts.sum(0).permute(0, 3, 1, 2)


def _cut(y: Tensor, stride: int) -> tuple[Tiles, dict[str, int]]:
    """The tiles for an output, and the sizes that every kernel asks for."""
    tiles = SMALL_TILES if _pixels(y) < FEW_PIXELS or y.dtype == torch.float32 else TILES
    channels = y.shape[1]
    wide = GROUP_WIDTH * (tiles.groups if channels // GROUP_WIDTH % tiles.groups == 0 else 1)
    sizes = {"HEIGHT": y.shape[2], "WIDTH": y.shape[3], "STRIDE": stride, "CHANNELS": channels, "WIDE": wide}
    return tiles, sizes | {"STAGES": tiles.stages}


def _pixels(y: Tensor) -> int:
    return y.numel() // y.shape[1]


def _blocks(y: Tensor, block: int) -> int:
    return -(-_pixels(y) // block)


def _channels_last(x: Tensor) -> Tensor:
    return x.contiguous(memory_format=torch.channels_last)
