"""All layers' parameter gradients from their parts, in two kernels for the whole network."""

import triton
import triton.language as tl

from holdfast.kernels.sums import BACKWARD_UNIT, COPIES


@triton.jit
def add_up_parts(parts, table, gradient, BLOCK: tl.constexpr):
    """gradient[i] = sum over parts; one program per BLOCK weights of one layer.

    table: per program: where its parts begin, how many there are, how far apart, where the sum goes, how many weights.
    """
    row = table + tl.program_id(0) * 5
    begin, count, apart = tl.load(row), tl.load(row + 1), tl.load(row + 2)
    target, size = tl.load(row + 3), tl.load(row + 4)
    offset = tl.arange(0, BLOCK)
    present = offset < size
    total = tl.zeros((BLOCK,), tl.float32)
    for part in range(count):
        total += tl.load(parts + begin + part * apart + offset, mask=present, other=0.0)
    tl.store(gradient + target + offset, total, mask=present)


@triton.jit
def norm_gradients(gradient_sums, table, gradient, CHANNELS: tl.constexpr):
    """The gradients of each norm's weight and bias are its gradient sums; one program per layer.

    table: per layer: where its sums begin, its channels, where the weight's gradient goes, where the bias's goes.
    """
    row = table + tl.program_id(0) * 4
    begin, channels = tl.load(row), tl.load(row + 1)
    weight, bias = tl.load(row + 2), tl.load(row + 3)
    channel = tl.arange(0, CHANNELS)
    present = channel < channels
    copy = tl.arange(0, COPIES)
    place = gradient_sums + begin + copy[:, None] * channels + channel[None, :]
    du = tl.sum(tl.load(place, mask=present[None, :], other=0), axis=0).to(tl.float64) / BACKWARD_UNIT
    along = tl.sum(tl.load(place + COPIES * channels, mask=present[None, :], other=0), axis=0).to(tl.float64)
    tl.store(gradient + bias + channel, du.to(tl.float32), mask=present)
    tl.store(gradient + weight + channel, (along / BACKWARD_UNIT).to(tl.float32), mask=present)
