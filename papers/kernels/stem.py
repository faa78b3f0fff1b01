"""The stem of a ResNet for large images: a 7 x 7 convolution with stride 2 and a 3 x 3 max-pool with stride 2.

cuDNN is slow for a convolution of three channels. Here each block of 2 x 2 pixels becomes one pixel of 16 channels: 12
for RGB, the others zero. The 7 x 7 weights become a 4 x 4 kernel with stride 1 on these blocks. It has the same
products, and further ones with zeros.
"""

import functools
from typing import Any

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from papers.kernels.batch_norm import channels_last, own_tile, tiling, two_outputs
from papers.kernels.sums import MAX_ELEMENTS, fits_32_bits

TAPS = 7
"""Side of the stem's kernel."""
BLOCK_CHANNELS = 16
"""Channels of a block of 2 x 2 pixels: four times those of an image, and zeros."""
BLOCK_TAPS = 4
"""Side of the kernel on blocks."""
BEFORE, AFTER = 2, 1
"""Blocks of zeros above and to the left of an image, and below and to the right."""
BLOCKS = 256
"""Blocks that a program gathers."""


def is_stem(convolution: nn.Conv2d) -> bool:
    """Whether ``stem_convolution`` can compute it: 7 x 7 with stride 2, at most four channels, no bias."""
    return (
        convolution.kernel_size == (TAPS, TAPS)
        and convolution.stride == (2, 2)
        and convolution.padding == (3, 3)
        and convolution.padding_mode == "zeros"
        and convolution.dilation == (1, 1)
        and convolution.groups == 1
        and 4 * convolution.in_channels <= BLOCK_CHANNELS
        and convolution.bias is None
    )


def stem_convolution(x: Tensor, weight: Tensor) -> Tensor:
    """The convolution of ``x`` with ``weight``, O x C x 7 x 7, stride 2 and padding 3; in the dtype of ``weight``.

    Left to torch: images with an odd side, images that need a gradient, and too many for 32-bit offsets.
    """
    image_blocks = (x.shape[2] // 2 + BEFORE + AFTER, x.shape[3] // 2 + BEFORE + AFTER)
    pixels = len(x) * image_blocks[0] * image_blocks[1]
    too_large = max(x.numel(), pixels * BLOCK_CHANNELS) > MAX_ELEMENTS
    if x.shape[2] % 2 or x.shape[3] % 2 or x.requires_grad or too_large:
        return F.conv2d(x.to(weight.dtype), weight, stride=2, padding=3)
    size = (len(x), BLOCK_CHANNELS, *image_blocks)
    blocks = torch.empty(size, dtype=weight.dtype, device=x.device, memory_format=torch.channels_last)
    gather_blocks[(triton.cdiv(pixels, BLOCKS),)](
        x, blocks, pixels, *x.stride(), IMAGE_CHANNELS=x.shape[1], HEIGHT=x.shape[2], WIDTH=x.shape[3],
        CHANNELS=BLOCK_CHANNELS, BLOCK=BLOCKS, BEFORE=BEFORE, AFTER=AFTER,
    )  # fmt: skip
    return F.conv2d(blocks, _BlockWeights.apply(weight))


class _BlockWeights(torch.autograd.Function):
    """The 7 x 7 weights as O x 16 x 4 x 4, for blocks of 2 x 2 pixels."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor) -> Tensor:
        ctx.channels = weight.shape[1]
        taken, used, _ = weight_positions(weight.shape[1], weight.device)
        flat = channels_last(weight).permute(0, 2, 3, 1).reshape(len(weight), -1)
        blocks = flat.index_select(1, taken) * used.to(weight.dtype)
        return blocks.view(len(weight), BLOCK_TAPS, BLOCK_TAPS, BLOCK_CHANNELS).permute(0, 3, 1, 2)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        *_, back = weight_positions(ctx.channels, gradient.device)
        flat = channels_last(gradient).permute(0, 2, 3, 1).reshape(len(gradient), -1)
        return flat.index_select(1, back).view(len(gradient), TAPS, TAPS, ctx.channels).permute(0, 3, 1, 2)


@functools.cache
def weight_positions(channels: int, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Where the weights on blocks come from, which of them are not zero, and where each 7 x 7 weight goes.

    Positions count taps row by row, with the channels of a tap side by side. Tap k of 7 is tap (k + 1) // 2 of 4, at
    pixel (k + 1) % 2 of its block. A block has its pixels row by row, with the channels of a pixel side by side.

    Cached, because a CUDA graph cannot capture the copy to the device.
    """
    row, column, channel = torch.meshgrid(
        torch.arange(TAPS) + 1, torch.arange(TAPS) + 1, torch.arange(channels), indexing="ij"
    )
    pixel = row % 2 * 2 + column % 2
    back = ((row // 2 * BLOCK_TAPS + column // 2) * BLOCK_CHANNELS + pixel * channels + channel).flatten()
    taken = torch.zeros(BLOCK_TAPS**2 * BLOCK_CHANNELS, dtype=torch.long)
    used = torch.zeros(len(taken))
    taken[back] = torch.arange(len(back))
    used[back] = 1.0
    return taken.to(device), used.to(device), back.to(device)


def is_stem_pool(pool: nn.Module) -> bool:
    """Whether the kernels can compute it: a max-pool of 3 x 3 with stride 2 and padding 1."""
    if type(pool) is not nn.MaxPool2d or pool.ceil_mode or pool.return_indices:
        return False
    return _sides(pool) == [(3, 3), (2, 2), (1, 1), (1, 1)]


def _sides(pool: nn.MaxPool2d) -> list[tuple[int, ...]]:
    given = (pool.kernel_size, pool.stride, pool.padding, pool.dilation)
    return [(one, one) if isinstance(one, int) else tuple(one) for one in given]


def max_pool(pool: nn.Module, x: Tensor) -> tuple[Tensor, ...]:
    """pool(x), as two outputs: two users take one each, and the kernel adds their gradients."""
    if not is_stem_pool(pool) or not fits_32_bits(x):
        return (pool(x),) * 2
    found: tuple[Tensor, ...] = _MaxPool.apply(x)
    return found


class _MaxPool(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> tuple[Tensor, Tensor]:
        x = channels_last(x)
        height, width = x.shape[2:]
        shape = (*x.shape[:2], (height + 1) // 2, (width + 1) // 2)
        out = torch.empty(shape, dtype=x.dtype, device=x.device, memory_format=torch.channels_last)
        taken = torch.empty_like(out, dtype=torch.uint8) if ctx.needs_input_grad[0] else out
        tiles = tiling(out)
        max_pool_tile[(tiles.programs,)](
            x, out, taken, tiles.pixels, HEIGHT=height, WIDTH=width, KEEP=ctx.needs_input_grad[0], **tiles.sizes
        )
        ctx.shape = x.shape
        ctx.save_for_backward(taken if ctx.needs_input_grad[0] else None)
        return two_outputs(ctx, out)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *given: Tensor | None) -> Tensor | None:
        present = [channels_last(one) for one in given if one is not None]
        if not present:
            return None
        (taken,) = ctx.saved_tensors
        g = present[0]
        dx = torch.empty(ctx.shape, dtype=g.dtype, device=g.device, memory_format=torch.channels_last)
        tiles = tiling(dx)
        max_pool_backward_tile[(tiles.programs,)](
            g, present[-1], taken, dx, tiles.pixels, HEIGHT=ctx.shape[2], WIDTH=ctx.shape[3],
            MORE=len(present) > 1, **tiles.sizes,
        )  # fmt: skip
        return dx


@triton.jit
def gather_blocks(
    x, blocks, pixels, stride_n, stride_c, stride_h, stride_w,
    IMAGE_CHANNELS: tl.constexpr, HEIGHT: tl.constexpr, WIDTH: tl.constexpr, CHANNELS: tl.constexpr,
    BLOCK: tl.constexpr, BEFORE: tl.constexpr, AFTER: tl.constexpr,
):  # fmt: skip
    """Blocks of 2 x 2 pixels of x as pixels of CHANNELS numbers, with zeros around the image."""
    rows: tl.constexpr = HEIGHT // 2 + BEFORE + AFTER
    columns: tl.constexpr = WIDTH // 2 + BEFORE + AFTER
    block = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    entry = tl.arange(0, CHANNELS)[None, :]
    channel, pixel = entry % IMAGE_CHANNELS, entry // IMAGE_CHANNELS
    h = 2 * (block // columns % rows - BEFORE)[:, None] + pixel // 2
    w = 2 * (block % columns - BEFORE)[:, None] + pixel % 2
    there = (block < pixels)[:, None]
    inside = there & (pixel < 4) & (h >= 0) & (h < HEIGHT) & (w >= 0) & (w < WIDTH)
    image = (block // (columns * rows))[:, None]
    seen = tl.load(x + image * stride_n + channel * stride_c + h * stride_h + w * stride_w, mask=inside, other=0.0)
    tl.store(blocks + block[:, None] * CHANNELS + entry, seen.to(blocks.dtype.element_ty), mask=there)


@triton.jit
def max_pool_tile(
    x, out, taken, pixels, HEIGHT: tl.constexpr, WIDTH: tl.constexpr, KEEP: tl.constexpr, CHANNELS: tl.constexpr,
    WIDE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The largest of 3 x 3 pixels, NaN above all; of equal ones the first. KEEP: also its position, 0 to 8."""
    rows: tl.constexpr = (HEIGHT + 1) // 2
    columns: tl.constexpr = (WIDTH + 1) // 2
    channel, start, inside, offset = own_tile(pixels, CHANNELS, WIDE, BLOCK)
    pixel = start + tl.arange(0, BLOCK)
    image, i, j = pixel // (columns * rows), pixel // columns % rows, pixel % columns
    largest = tl.full((BLOCK, WIDE), float("-inf"), tl.float32)
    position = tl.zeros((BLOCK, WIDE), tl.int32)
    for tap in tl.static_range(9):
        h, w = 2 * i - 1 + tap // 3, 2 * j - 1 + tap % 3
        there = ((h >= 0) & (h < HEIGHT) & (w >= 0) & (w < WIDTH))[:, None] & inside
        at = ((image * HEIGHT + h) * WIDTH + w)[:, None] * CHANNELS + channel[None, :]
        seen = tl.load(x + at, mask=there, other=float("-inf")).to(tl.float32)
        better = (seen > largest) | (seen != seen)
        largest = tl.where(better, seen, largest)
        position = tl.where(better, tap, position)
    tl.store(out + offset, largest.to(out.dtype.element_ty), mask=inside)
    if KEEP:
        tl.store(taken + offset, position.to(tl.uint8), mask=inside)


@triton.jit
def max_pool_backward_tile(
    gradient, more, taken, dx, pixels, HEIGHT: tl.constexpr, WIDTH: tl.constexpr, MORE: tl.constexpr,
    CHANNELS: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The gradient at the input: of each of the up to four windows over a pixel, if the pixel was its largest.

    MORE: the gradient has two parts.
    """
    rows: tl.constexpr = (HEIGHT + 1) // 2
    columns: tl.constexpr = (WIDTH + 1) // 2
    channel, start, inside, offset = own_tile(pixels, CHANNELS, WIDE, BLOCK)
    pixel = start + tl.arange(0, BLOCK)
    image, h, w = pixel // (WIDTH * HEIGHT), pixel // WIDTH % HEIGHT, pixel % WIDTH
    total = tl.zeros((BLOCK, WIDE), tl.float32)
    for window in tl.static_range(4):
        i, j = (h + 1) // 2 - window // 2, (w + 1) // 2 - window % 2
        down, right = h + 1 - 2 * i, w + 1 - 2 * j  # of the pixel in the window
        there = ((i >= 0) & (i < rows) & (down < 3) & (j >= 0) & (j < columns) & (right < 3))[:, None] & inside
        at = ((image * rows + i) * columns + j)[:, None] * CHANNELS + channel[None, :]
        position = tl.load(taken + at, mask=there, other=255).to(tl.int32)
        g = tl.load(gradient + at, mask=there, other=0.0).to(tl.float32)
        if MORE:
            g += tl.load(more + at, mask=there, other=0.0).to(tl.float32)
        total += tl.where(position == (3 * down + right)[:, None], g, 0.0)
    tl.store(dx + offset, total.to(dx.dtype.element_ty), mask=inside)
