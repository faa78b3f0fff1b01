"""A 3 x 3 convolution in groups of 16 channels with its gradients: ``F.conv2d`` by kernels made for small groups.

Activations are N x H x W x C and weights C x 3 x 3 x 16, in bf16; in tests float32 (the kernels use the dtype of the
buffers). A pixel of one group is 32 bytes, a quarter of a memory transaction, so a program computes WIDE channels: one
group or a few neighbouring ones. Their weights form one matrix with zeros between the groups. Multiplying the zeros
costs nothing, because the matrix units wait for memory anyway.
"""

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from papers.kernels.convolution import input_at_tap
from papers.kernels.sums import fits_32_bits

GROUP = tl.constexpr(16)
"""Channels of a group; also the least that a matrix product takes."""


@triton.jit
def tap_weights(weight, tap, from_channel, to_channel):
    """The weights of one tap between these channels, of which one is a row and the other a column."""
    same_group = from_channel // GROUP == to_channel // GROUP
    offset = to_channel * (9 * GROUP) + tap * GROUP + from_channel % GROUP
    return tl.load(weight + offset, mask=same_group, other=0.0)


@triton.jit
def convolve_groups(
    x, weight, y, pixels,
    HEIGHT: tl.constexpr, WIDTH: tl.constexpr, STRIDE: tl.constexpr, CHANNELS: tl.constexpr, WIDE: tl.constexpr,
    BLOCK: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """y = conv(x), for BLOCK pixels of WIDE channels. HEIGHT, WIDTH: of y.

    STAGES: number of taps loaded ahead of the matrix products. Programs for the same pixels have consecutive numbers,
    so that neighbouring memory is read at the same time.
    """
    program = tl.program_id(0)
    channel = program % (CHANNELS // WIDE) * WIDE + tl.arange(0, WIDE)
    pixel = program // (CHANNELS // WIDE) * BLOCK + tl.arange(0, BLOCK)
    inside = pixel < pixels
    image, row, column = pixel // (HEIGHT * WIDTH), pixel // WIDTH % HEIGHT, pixel % WIDTH
    total = tl.zeros((BLOCK, WIDE), tl.float32)
    for tap in tl.range(0, 9, num_stages=STAGES):
        offset, valid = input_at_tap(tap, image, row, column, inside, HEIGHT, WIDTH, STRIDE)
        a = tl.load(x + offset[:, None] * CHANNELS + channel[None, :], mask=valid[:, None], other=0.0)
        b = tap_weights(weight, tap, channel[:, None], channel[None, :])
        total = tl.dot(a, b, total, input_precision="ieee")
    offset = pixel[:, None] * CHANNELS + channel[None, :]
    tl.store(y + offset, total.to(y.dtype.element_ty), mask=inside[:, None])


@triton.jit
def convolve_groups_backward(
    dy, weight, dx, pixels,
    HEIGHT: tl.constexpr, WIDTH: tl.constexpr, STRIDE: tl.constexpr, CHANNELS: tl.constexpr, WIDE: tl.constexpr,
    BLOCK: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """dx from dy. pixels, HEIGHT, WIDTH: of dy.

    With stride 2 a program computes one of the four pixels of x for each of BLOCK pixels of dy. Which taps reach it
    depends on which of the four it is, so only one, two or four taps are computed, not nine.
    """
    program = tl.program_id(0)
    channel = program % (CHANNELS // WIDE) * WIDE + tl.arange(0, WIDE)
    program = program // (CHANNELS // WIDE)
    corner = program % (STRIDE * STRIDE)
    pixel = program // (STRIDE * STRIDE) * BLOCK + tl.arange(0, BLOCK)
    inside = pixel < pixels
    image, row, column = pixel // (HEIGHT * WIDTH), pixel // WIDTH % HEIGHT, pixel % WIDTH
    if STRIDE == 1:
        # The farthest pixel of dy that a tap reads, and the numbers of rows and columns of taps.
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
        offset = (image * HEIGHT + r) * WIDTH + c
        g = tl.load(dy + offset[:, None] * CHANNELS + channel[None, :], mask=valid[:, None], other=0.0)
        w = tap_weights(weight, tap, channel[None, :], channel[:, None])
        total = tl.dot(g, w, total, input_precision="ieee")
    offset = (image * (HEIGHT * STRIDE) + to_row) * (WIDTH * STRIDE) + to_column
    found = total.to(dx.dtype.element_ty)
    tl.store(dx + offset[:, None] * CHANNELS + channel[None, :], found, mask=inside[:, None])


@triton.jit
def group_weight_parts(
    x, dy, parts, pixels,
    EACH: tl.constexpr, HEIGHT: tl.constexpr, WIDTH: tl.constexpr, STRIDE: tl.constexpr, CHANNELS: tl.constexpr,
    WIDE: tl.constexpr, BLOCK: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """The weights' gradient over EACH of the output pixels, for one row of three taps; a fourth pads the matrix.

    HEIGHT, WIDTH: of dy. parts: programs x C x 3 x 3 x 16, float32, summed later in a fixed order, so that
    the result is always the same.
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
        offset = (image * (HEIGHT * STRIDE) + r) * (WIDTH * STRIDE) + column * STRIDE - 1
        offset = offset[:, None] * CHANNELS + (tap_column * CHANNELS + from_channel)[None, :]
        h = tl.load(x + first + offset, mask=valid, other=0.0)
        g = tl.load(dy + first + pixel[:, None] * CHANNELS + channel[None, :], mask=inside[:, None], other=0.0)
        total = tl.dot(tl.trans(h), g, total, input_precision="ieee")
    target = parts + part * (CHANNELS * 9 * GROUP) + (tap_row * 3 + tap_column)[:, None] * GROUP
    target = target + (first + channel)[None, :] * (9 * GROUP) + (from_channel % GROUP)[:, None]
    same_group = (from_channel // GROUP)[:, None] == (channel // GROUP)[None, :]
    tl.store(target, total, mask=same_group & (tap_column < 3)[:, None])


GROUP_WIDTH = int(GROUP)


@dataclass(frozen=True)
class Tiles:
    """Sizes of the programs.

    groups: per program, if they divide the number of groups.
    convolve, backward: pixels per program.
    programs: approximate number of programs for the weights' gradient, each in steps of ``part_block`` pixels.
    stages, warps: of Triton.
    """

    groups: int
    convolve: int
    backward: int
    programs: int
    part_block: int
    stages: int = 3
    warps: int = 4


TILES = Tiles(groups=2, convolve=256, backward=128, programs=396, part_block=64)
SMALL_TILES = Tiles(groups=2, convolve=128, backward=128, programs=396, part_block=64)
FEW_PIXELS = 2**14
"""Below this number, and for float32, which takes twice the memory, the small tiles are used. Both were not tuned: they
are the best for 32-channel layers of a CIFAR ResNet on an H200 (docs/results/kernels.md), which compute the same
products. Three programs of the weights' gradient fit on each of its 132 multiprocessors."""


def grouped_convolution(x: Tensor, weight: Tensor, stride: int = 1, *, cast: Tensor | None = None) -> Tensor:
    """``F.conv2d(x, weight, stride=stride, padding=1, groups=C // 16)``, in x's dtype and channels-last.

    x: N x C x H x W, H and W multiples of the stride, which is 1 or 2. Tensors too large for
        the kernels are computed by torch.
    weight: C x 16 x 3 x 3 in float32, channels-last, and so is its gradient.
    cast: the weight in x's dtype, for callers who cast many at once.
    A value that is NaN or infinite also affects the neighbouring group.
    """
    if not fits_32_bits(x):
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
        tiles, sizes = _tiles(y, stride)
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
    tiles, sizes = _tiles(dy, stride)
    dx = torch.empty_like(x)
    programs = _blocks(dy, tiles.backward) * stride**2 * (dy.shape[1] // sizes["WIDE"])
    convolve_groups_backward[(programs,)](
        dy, cast, dx, _pixels(dy), **sizes, BLOCK=tiles.backward, num_warps=tiles.warps
    )
    return dx


def _gradient_of_weight(dy: Tensor, x: Tensor, stride: int) -> Tensor:
    """C x 16 x 3 x 3 in float32, in the parameter's memory layout, so that autograd does not copy it."""
    tiles, sizes = _tiles(dy, stride)
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


def _tiles(y: Tensor, stride: int) -> tuple[Tiles, dict[str, int]]:
    """The sizes of the programs for an output, and the constants of every kernel."""
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
