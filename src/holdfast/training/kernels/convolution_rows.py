"""Which convolutions go row by row, and how their work is cut into strips: some rows of some images to a program.

A 3 x 3 convolution of stride 1 that goes down the image row by row.

Tap by tap, as in ``forward.py``, every pixel travels from the L2 cache to the multiprocessors nine times: side by side
on an H200 the measured times amount to 7 or 8 TB/s at all three widths, about what that cache gives. Here a program
takes one row of IMAGES images at a time, at its three column shifts, and multiplies it for the output rows above, at
and below it: 3 (1 + 2 / ROWS) times instead of nine.

The convolutions of ``forward.py`` row by row, for stride 1: the same arguments, outputs and sums.

A program computes ROWS rows of IMAGES images. It meets the row before its first and the row behind its last too, so the
first two rows that come out at the top are nobody's and are dropped.

The convolutions' way back of ``backward.py`` row by row, for stride 1: the same arguments, outputs and sums.
"""

from dataclasses import dataclass

import triton
import triton.language as tl
from torch import Tensor

from holdfast.training.kernels.convolution import relu, shortcut_at
from holdfast.training.kernels.sums import BACKWARD_UNIT, COPIES, add_to_moments, add_to_sum, batch_moments

BY_ROWS = True
"""Whether training goes row by row where it can, unless told otherwise."""


@dataclass(frozen=True)
class RowTiles:
    """pixels: of one row, in as many images as that takes; rows: per program, at most; warps and stages: of Triton."""

    pixels: int
    rows: int
    warps: int
    stages: int = 3


FORWARD_ROWS = {16: RowTiles(32, 8, 1)}
BACK_ROWS = {16: RowTiles(32, 8, 1)}
"""By channels. From 32 on the weights fill a program's registers, and tap by tap was faster (bench/README.md)."""


@dataclass(frozen=True)
class NineTiles:
    """parts, block: as ``Tiles`` has them for the weights' gradient; shifts: columns of taps per program, 1 or 3."""

    parts: int
    block: int
    shifts: int = 3
    warps: int = 4
    stages: int = 3


NINE_TAPS = {16: NineTiles(128, 64, stages=4), 32: NineTiles(128, 32)}
"""By channels, for ``weight_parts_nine``."""


@dataclass(frozen=True)
class Strips:
    """One kernel's work: its grid, and what it is told about it."""

    grid: tuple[int]
    options: dict[str, int]


def strips(tiles: dict[int, RowTiles], stride: int, y: Tensor) -> Strips | None:
    """How the convolution that makes y, N x H x W x C, is cut; None where it has to go tap by tap."""
    images, height, width, channels = y.shape
    if stride != 1 or channels not in tiles:
        return None
    cut = tiles[channels]
    rows, together = min(cut.rows, height), cut.pixels // width
    if cut.pixels % width or height % rows:  # pixels is a power of two, and so must a row be
        return None
    options = {"HEIGHT": height, "WIDTH": width, "IMAGES": together, "ROWS": rows}
    options |= {"STAGES": cut.stages, "num_warps": cut.warps}
    return Strips((-(-images // together) * (height // rows),), options)


@triton.jit
def strip(program, images, HEIGHT: tl.constexpr, WIDTH: tl.constexpr, IMAGES: tl.constexpr, ROWS: tl.constexpr):
    """A program's first row; of its IMAGES x WIDTH places in a row: the pixel in row 0, the column, if in the batch."""
    first = program % (HEIGHT // ROWS) * ROWS
    place = tl.arange(0, IMAGES * WIDTH)
    image, column = program // (HEIGHT // ROWS) * IMAGES + place // WIDTH, place % WIDTH
    return first, image * (HEIGHT * WIDTH) + column, column, image < images


@triton.jit
def taps_forward(weight, FROM: tl.constexpr, TO: tl.constexpr):
    """The nine matrices FROM x TO of weights TO x 3 x 3 x FROM."""
    place = weight + tl.arange(0, TO)[None, :] * (9 * FROM) + tl.arange(0, FROM)[:, None]
    return _nine(place, FROM)


@triton.jit
def taps_back(weight, FROM: tl.constexpr, TO: tl.constexpr):
    """The nine matrices FROM x TO of weights FROM x 3 x 3 x TO, last tap first: back is forward, turned round."""
    place = weight + tl.arange(0, FROM)[:, None] * (9 * TO) + tl.arange(0, TO)[None, :]
    return _nine(place + 8 * TO, -TO)


@triton.jit
def _nine(place, APART: tl.constexpr):
    return (
        tl.load(place), tl.load(place + APART), tl.load(place + 2 * APART),
        tl.load(place + 3 * APART), tl.load(place + 4 * APART), tl.load(place + 5 * APART),
        tl.load(place + 6 * APART), tl.load(place + 7 * APART), tl.load(place + 8 * APART),
    )  # fmt: skip


@triton.jit
def shifted_row(
    x, start, column, inside, row, SHIFT: tl.constexpr, HEIGHT: tl.constexpr, WIDTH: tl.constexpr, FROM: tl.constexpr
):
    """The row's pixels SHIFT columns to the right, zero outside the image."""
    r, c = tl.zeros_like(column) + row, column + SHIFT  # Triton's interpreter takes no scalar into a mask
    valid = inside & (r >= 0) & (r < HEIGHT) & (c >= 0) & (c < WIDTH)
    place = (start + row * WIDTH + SHIFT)[:, None] * FROM + tl.arange(0, FROM)[None, :]
    return tl.load(x + place, mask=valid[:, None], other=0.0)


@triton.jit
def add_row(
    x, taps, above, here, start, column, inside, row,
    HEIGHT: tl.constexpr, WIDTH: tl.constexpr, FROM: tl.constexpr,
):  # fmt: skip
    """What this row of x adds to the output rows above, at and below it; that above is then complete."""
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
    x, weight, y, sums, images, share,
    HEIGHT: tl.constexpr, WIDTH: tl.constexpr, INPUTS: tl.constexpr, OUTPUTS: tl.constexpr,
    IMAGES: tl.constexpr, ROWS: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """In training: y = conv(x), and the sums that its moments are read from."""
    program = tl.program_id(0)
    first, start, column, inside = strip(program, images, HEIGHT, WIDTH, IMAGES, ROWS)
    channel = tl.arange(0, OUTPUTS)
    taps = taps_forward(weight, INPUTS, OUTPUTS)
    above = tl.zeros((IMAGES * WIDTH, OUTPUTS), tl.float32)
    here, total, square = above, above, above
    for step in tl.range(0, ROWS + 2, num_stages=STAGES):
        row = first + step - 1
        above, here, below = add_row(x, taps, above, here, start, column, inside, row, HEIGHT, WIDTH, INPUTS)
        rounded = above.to(y.dtype.element_ty)
        place = (start + (row - 1) * WIDTH)[:, None] * OUTPUTS + channel[None, :]
        tl.store(y + place, rounded, mask=(inside & (step >= 2))[:, None])
        seen = tl.where(step >= 2, rounded.to(tl.float32), 0.0)
        total += seen
        square += seen * seen
        above, here = here, below
    add_to_moments(sums, tl.sum(total, axis=0), tl.sum(square, axis=0), channel, program, share, OUTPUTS)


@triton.jit
def convolve_frozen_rows(
    x, weight, out, shortcut, gamma, beta, running_mean, running_var, images, eps,
    HEIGHT: tl.constexpr, WIDTH: tl.constexpr, INPUTS: tl.constexpr, OUTPUTS: tl.constexpr,
    SHORTCUT: tl.constexpr, IMAGES: tl.constexpr, ROWS: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """In evaluation the norm is known beforehand: out = relu(bn(conv(x)) + shortcut) in one go."""
    first, start, column, inside = strip(tl.program_id(0), images, HEIGHT, WIDTH, IMAGES, ROWS)
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
        place = pixel[:, None] * OUTPUTS + channel[None, :]
        tl.store(out + place, relu(u).to(out.dtype.element_ty), mask=ready[:, None])
        above, here = here, below


@triton.jit
def convolve_back_rows(
    dy, weight, shortcut_du, y, out, sums, gamma, beta, du, gradient_sums, images, eps,
    HEIGHT: tl.constexpr, WIDTH: tl.constexpr, INPUTS: tl.constexpr, OUTPUTS: tl.constexpr,
    SHORTCUT: tl.constexpr, IMAGES: tl.constexpr, ROWS: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """From dy of a convolution to du of the norm before it. SHORTCUT: "none" or "same": stride 1 has no other."""
    program = tl.program_id(0)
    first, start, column, inside = strip(program, images, HEIGHT, WIDTH, IMAGES, ROWS)
    channel = tl.arange(0, INPUTS)
    mean, variance = batch_moments(sums, channel, INPUTS)
    inverse = tl.rsqrt(variance + eps)
    scale = tl.load(gamma + channel) * inverse
    shift = tl.load(beta + channel) - mean * scale
    taps = taps_back(weight, OUTPUTS, INPUTS)
    above = tl.zeros((IMAGES * WIDTH, INPUTS), tl.float32)
    here, total, along = above, above, above
    for step in tl.range(0, ROWS + 2, num_stages=STAGES):
        row = first + step - 1
        above, here, below = add_row(dy, taps, above, here, start, column, inside, row, HEIGHT, WIDTH, OUTPUTS)
        ready = (inside & (step >= 2))[:, None]
        place = (start + (row - 1) * WIDTH)[:, None] * INPUTS + channel[None, :]
        before = tl.load(y + place, mask=ready, other=0.0).to(tl.float32)
        if SHORTCUT == "none":
            lit = before * scale[None, :] + shift[None, :] > 0
        else:
            lit = tl.load(out + place, mask=ready, other=0.0).to(tl.float32) > 0
            above += tl.load(shortcut_du + place, mask=ready, other=0.0).to(tl.float32)
        found = tl.where(lit & ready, above, 0.0).to(du.dtype.element_ty)
        tl.store(du + place, found, mask=ready)
        seen = found.to(tl.float32)
        total += seen
        along += seen * before
        above, here = here, below
    total_du = tl.sum(total, axis=0)
    add_to_sum(gradient_sums, total_du, channel, program, BACKWARD_UNIT, INPUTS)
    along_normalised = (tl.sum(along, axis=0) - mean * total_du) * inverse
    add_to_sum(gradient_sums + COPIES * INPUTS, along_normalised, channel, program, BACKWARD_UNIT, INPUTS)
