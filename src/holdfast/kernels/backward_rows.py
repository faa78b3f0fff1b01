"""The convolutions' way back of ``backward.py`` row by row, for stride 1: the same arguments, outputs and sums."""

import triton
import triton.language as tl

from holdfast.kernels.rows import add_row, strip, taps_back
from holdfast.kernels.sums import BACKWARD_UNIT, COPIES, add_to_sum, batch_moments


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
