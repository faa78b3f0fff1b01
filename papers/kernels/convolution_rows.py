"""3 x 3 convolutions of stride 1 that go down the image row by row, with the same results as those of ``convolution``.

Tap by tap, every pixel is read from the L2 cache nine times. On an H200 the measured times amount to 7 or 8 TB/s at all
three widths, about the bandwidth of that cache. Here a program reads one row of IMAGES images at a time, at three
column shifts, and multiplies it for the output rows above, at and below it: 3 (1 + 2 / ROWS) reads instead of nine.
A program computes ROWS rows. It also reads the row before its first and the row after its last, so the first two rows
that come out are incomplete and are not stored.
"""

from dataclasses import dataclass

import triton
import triton.language as tl
from torch import Tensor

from papers.kernels.convolution import relu, shortcut_at
from papers.kernels.sums import BACKWARD_UNIT, COPIES, add_to_moments, add_to_sum, batch_moments

BY_ROWS = True
"""The default of ``FusedCifarResNet(by_rows=)``."""


@dataclass(frozen=True)
class RowTiles:
    """Sizes of a program.

    pixels: of one row, over several images.
    rows: at most.
    warps, stages: of Triton.
    """

    pixels: int
    rows: int
    warps: int
    stages: int = 3


FORWARD_ROWS = {16: RowTiles(32, 8, 1)}
BACKWARD_ROWS = {16: RowTiles(32, 8, 1)}
"""By number of channels. From 32 on the weights fill the registers: tap by tap is faster (docs/results/kernels.md)."""


@dataclass(frozen=True)
class NineTiles:
    """Sizes for ``weight_parts_nine``.

    parts: into how many parts the gradient is divided at most, each in steps of ``block`` pixels.
    shifts: columns of taps per program, 1 or 3.
    warps, stages: of Triton.
    """

    parts: int
    block: int
    shifts: int = 3
    warps: int = 4
    stages: int = 3


NINE_TAPS = {16: NineTiles(128, 64, stages=4), 32: NineTiles(128, 32)}
"""By number of channels."""


@dataclass(frozen=True)
class RowGrid:
    """Grid and constants of one kernel launch."""

    grid: tuple[int]
    options: dict[str, int]


def row_grid(tiles: dict[int, RowTiles], stride: int, y: Tensor) -> RowGrid | None:
    """The launch for the convolution that computes y, N x H x W x C; None if it cannot go row by row."""
    images, height, width, channels = y.shape
    if stride != 1 or channels not in tiles:
        return None
    sizes = tiles[channels]
    rows, together = min(sizes.rows, height), sizes.pixels // width
    if sizes.pixels % width or height % rows:  # pixels is a power of two, and so must a row be
        return None
    options = {"HEIGHT": height, "WIDTH": width, "IMAGES": together, "ROWS": rows}
    options |= {"STAGES": sizes.stages, "num_warps": sizes.warps}
    return RowGrid((-(-images // together) * (height // rows),), options)


@triton.jit
def row_block(program, images, HEIGHT: tl.constexpr, WIDTH: tl.constexpr, IMAGES: tl.constexpr, ROWS: tl.constexpr):
    """A program's first row, and for its IMAGES x WIDTH pixels of a row: index in row 0, column, whether they exist."""
    first = program % (HEIGHT // ROWS) * ROWS
    position = tl.arange(0, IMAGES * WIDTH)
    image, column = program // (HEIGHT // ROWS) * IMAGES + position // WIDTH, position % WIDTH
    return first, image * (HEIGHT * WIDTH) + column, column, image < images


@triton.jit
def taps_forward(weight, FROM: tl.constexpr, TO: tl.constexpr):
    """The nine matrices FROM x TO of weights TO x 3 x 3 x FROM."""
    pointer = weight + tl.arange(0, TO)[None, :] * (9 * FROM) + tl.arange(0, FROM)[:, None]
    return _nine(pointer, FROM)


@triton.jit
def taps_backward(weight, FROM: tl.constexpr, TO: tl.constexpr):
    """The nine matrices FROM x TO of weights FROM x 3 x 3 x TO, last tap first.

    The backward pass is a convolution with the kernel reversed.
    """
    pointer = weight + tl.arange(0, FROM)[:, None] * (9 * TO) + tl.arange(0, TO)[None, :]
    return _nine(pointer + 8 * TO, -TO)


@triton.jit
def _nine(pointer, APART: tl.constexpr):
    return (
        tl.load(pointer), tl.load(pointer + APART), tl.load(pointer + 2 * APART),
        tl.load(pointer + 3 * APART), tl.load(pointer + 4 * APART), tl.load(pointer + 5 * APART),
        tl.load(pointer + 6 * APART), tl.load(pointer + 7 * APART), tl.load(pointer + 8 * APART),
    )  # fmt: skip


@triton.jit
def shifted_row(
    x, start, column, inside, row, SHIFT: tl.constexpr, HEIGHT: tl.constexpr, WIDTH: tl.constexpr, FROM: tl.constexpr
):
    """The row's pixels SHIFT columns to the right, zero outside the image."""
    r, c = tl.zeros_like(column) + row, column + SHIFT  # Triton's interpreter takes no scalar into a mask
    valid = inside & (r >= 0) & (r < HEIGHT) & (c >= 0) & (c < WIDTH)
    offset = (start + row * WIDTH + SHIFT)[:, None] * FROM + tl.arange(0, FROM)[None, :]
    return tl.load(x + offset, mask=valid[:, None], other=0.0)


@triton.jit
def add_row(
    x, taps, above, here, start, column, inside, row,
    HEIGHT: tl.constexpr, WIDTH: tl.constexpr, FROM: tl.constexpr,
):  # fmt: skip
    """Add a row of x to the output rows above, at and below it; the one above is then complete."""
    left = shifted_row(x, start, column, inside, row, -1, HEIGHT, WIDTH, FROM)
    middle = shifted_row(x, start, column, inside, row, 0, HEIGHT, WIDTH, FROM)
    right = shifted_row(x, start, column, inside, row, 1, HEIGHT, WIDTH, FROM)
    below = tl.dot(left, taps[0], input_precision="ieee")
    here = tl.dot(left, taps[3], here, input_precision="ieee")
    above = tl.dot(left, taps[6], above, input_precision="ieee")
    below = tl.dot(middle, taps[1], below, input_precision="ieee")
    here = tl.dot(middle, taps[4], here, input_precision="ieee")
    above = tl.dot(middle, taps[7], above, input_precision="ieee")
    below = tl.dot(right, taps[2], below, input_precision="ieee")
    here = tl.dot(right, taps[5], here, input_precision="ieee")
    above = tl.dot(right, taps[8], above, input_precision="ieee")
    return above, here, below


@triton.jit
def convolve_rows(
    x, weight, y, sums, images, inverse_count,
    HEIGHT: tl.constexpr, WIDTH: tl.constexpr, INPUTS: tl.constexpr, OUTPUTS: tl.constexpr,
    IMAGES: tl.constexpr, ROWS: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """As ``convolve``."""
    program = tl.program_id(0)
    first, start, column, inside = row_block(program, images, HEIGHT, WIDTH, IMAGES, ROWS)
    channel = tl.arange(0, OUTPUTS)
    taps = taps_forward(weight, INPUTS, OUTPUTS)
    above = tl.zeros((IMAGES * WIDTH, OUTPUTS), tl.float32)
    here, total, square = above, above, above
    for step in tl.range(0, ROWS + 2, num_stages=STAGES):
        row = first + step - 1
        above, here, below = add_row(x, taps, above, here, start, column, inside, row, HEIGHT, WIDTH, INPUTS)
        rounded = above.to(y.dtype.element_ty)
        offset = (start + (row - 1) * WIDTH)[:, None] * OUTPUTS + channel[None, :]
        tl.store(y + offset, rounded, mask=(inside & (step >= 2))[:, None])
        seen = tl.where(step >= 2, rounded.to(tl.float32), 0.0)
        total += seen
        square += seen * seen
        above, here = here, below
    add_to_moments(sums, tl.sum(total, axis=0), tl.sum(square, axis=0), channel, program, inverse_count, OUTPUTS)


@triton.jit
def convolve_eval_rows(
    x, weight, out, shortcut, gamma, beta, running_mean, running_var, images, eps,
    HEIGHT: tl.constexpr, WIDTH: tl.constexpr, INPUTS: tl.constexpr, OUTPUTS: tl.constexpr,
    SHORTCUT: tl.constexpr, IMAGES: tl.constexpr, ROWS: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """As ``convolve_eval``."""
    first, start, column, inside = row_block(tl.program_id(0), images, HEIGHT, WIDTH, IMAGES, ROWS)
    channel = tl.arange(0, OUTPUTS)
    scale = tl.load(gamma + channel) * tl.rsqrt(tl.load(running_var + channel) + eps)
    shift = tl.load(beta + channel) - tl.load(running_mean + channel) * scale
    taps = taps_forward(weight, INPUTS, OUTPUTS)
    above = tl.zeros((IMAGES * WIDTH, OUTPUTS), tl.float32)
    here = above
    for step in tl.range(0, ROWS + 2, num_stages=STAGES):
        row = first + step - 1
        above, here, below = add_row(x, taps, above, here, start, column, inside, row, HEIGHT, WIDTH, INPUTS)
        pixel = start + (row - 1) * WIDTH
        ready = inside & (step >= 2)
        u = above * scale[None, :] + shift[None, :]
        if SHORTCUT != "none":
            u += shortcut_at(shortcut, pixel, ready, channel, HEIGHT, WIDTH, OUTPUTS, SHORTCUT)
        offset = pixel[:, None] * OUTPUTS + channel[None, :]
        tl.store(out + offset, relu(u).to(out.dtype.element_ty), mask=ready[:, None])
        above, here = here, below


@triton.jit
def convolve_backward_rows(
    dy, weight, shortcut_du, y, out, sums, gamma, beta, du, gradient_sums, images, eps,
    HEIGHT: tl.constexpr, WIDTH: tl.constexpr, INPUTS: tl.constexpr, OUTPUTS: tl.constexpr,
    SHORTCUT: tl.constexpr, IMAGES: tl.constexpr, ROWS: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """As ``convolve_backward``. SHORTCUT: "none" or "same"; stride 1 has no other."""
    program = tl.program_id(0)
    first, start, column, inside = row_block(program, images, HEIGHT, WIDTH, IMAGES, ROWS)
    channel = tl.arange(0, INPUTS)
    mean, variance = batch_moments(sums, channel, INPUTS)
    inverse = tl.rsqrt(variance + eps)
    scale = tl.load(gamma + channel) * inverse
    shift = tl.load(beta + channel) - mean * scale
    taps = taps_backward(weight, OUTPUTS, INPUTS)
    above = tl.zeros((IMAGES * WIDTH, INPUTS), tl.float32)
    here, total, along = above, above, above
    for step in tl.range(0, ROWS + 2, num_stages=STAGES):
        row = first + step - 1
        above, here, below = add_row(dy, taps, above, here, start, column, inside, row, HEIGHT, WIDTH, OUTPUTS)
        ready = (inside & (step >= 2))[:, None]
        offset = (start + (row - 1) * WIDTH)[:, None] * INPUTS + channel[None, :]
        before = tl.load(y + offset, mask=ready, other=0.0).to(tl.float32)
        if SHORTCUT == "none":
            active = before * scale[None, :] + shift[None, :] > 0
        else:
            active = tl.load(out + offset, mask=ready, other=0.0).to(tl.float32) > 0
            above += tl.load(shortcut_du + offset, mask=ready, other=0.0).to(tl.float32)
        found = tl.where(active & ready, above, 0.0).to(du.dtype.element_ty)
        tl.store(du + offset, found, mask=ready)
        seen = found.to(tl.float32)
        total += seen
        along += seen * before
        above, here = here, below
    total_du = tl.sum(total, axis=0)
    add_to_sum(gradient_sums, total_du, channel, program, BACKWARD_UNIT, INPUTS)
    along_normalised = (tl.sum(along, axis=0) - mean * total_du) * inverse
    add_to_sum(gradient_sums + COPIES * INPUTS, along_normalised, channel, program, BACKWARD_UNIT, INPUTS)
