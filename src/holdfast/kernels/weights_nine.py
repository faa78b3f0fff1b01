"""The weights' gradient of all nine taps from one matrix product, for stride 1: half the traffic of a row of taps.

Three pixels beside each other on one side, three below each other on the other: every pair of them is a tap.
"""

import triton
import triton.language as tl


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
