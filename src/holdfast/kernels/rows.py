"""A 3 x 3 convolution of stride 1 that goes down the image row by row.

Tap by tap, as in ``forward.py``, every pixel travels from the L2 cache to the multiprocessors nine times: side by side
on an H200 the measured times amount to 7 or 8 TB/s at all three widths, about what that cache gives. Here a program
takes one row of IMAGES images at a time, at its three column shifts, and multiplies it for the output rows above, at
and below it: 3 (1 + 2 / ROWS) times instead of nine.
"""

import triton
import triton.language as tl


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
