"""The convolutions of ``forward.py`` row by row, for stride 1: the same arguments, outputs and sums.

A program computes ROWS rows of IMAGES images. It meets the row before its first and the row behind its last too, so the
first two rows that come out at the top are nobody's and are dropped.
"""

import triton
import triton.language as tl

from holdfast.kernels.forward import relu, shortcut_at
from holdfast.kernels.rows import add_row, strip, taps_forward
from holdfast.kernels.sums import add_to_moments


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
