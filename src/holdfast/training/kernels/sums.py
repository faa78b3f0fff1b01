"""Sums over a batch that many programs add to at once and that come out the same in any order.

Floating-point atomics would make a run depend on which program came first. Fixed-point numbers in 64 bits add exactly,
so a step gives the same bits alone, beside neighbours and in a graph, and no second kernel is needed to add up parts.

How large a tensor may be for the kernels.
"""

import triton
import triton.language as tl
from torch import Tensor

COPIES = tl.constexpr(8)
"""Each sum is kept that many times, and a program adds to one of them: fewer wait for the same address."""

FORWARD_UNIT = tl.constexpr(2.0**34)
"""Fixed-point steps per 1 for the means of activations and of their squares: each program's part is exact to 3e-11."""

BACKWARD_UNIT = tl.constexpr(2.0**42)
"""Fixed-point steps per 1 for sums of gradients, which are small: each program's part is exact to 1e-13. A total beyond
2^21, which is 2e6, wraps."""

LARGEST = tl.constexpr(2.0**14)
"""Activations up to here have room in the sums, however many there are: the mean of their squares is 2^28 at most, or
2^62 steps of the 2^63 that 64 bits hold."""


@triton.jit
def add_to_sum(sums, values, channel, program, UNIT: tl.constexpr, CHANNELS: tl.constexpr):
    """Add one value per channel; ``sums``: COPIES x CHANNELS of int64."""
    fixed = tl.floor(values * UNIT + 0.5).to(tl.int64)
    tl.atomic_add(sums + (program % COPIES) * CHANNELS + channel, fixed, sem="relaxed")


@triton.jit
def read_sum(sums, channel, UNIT: tl.constexpr, CHANNELS: tl.constexpr):
    """The total per channel, float64."""
    copy = tl.arange(0, COPIES)
    fixed = tl.load(sums + copy[:, None] * CHANNELS + channel[None, :])
    return tl.sum(fixed, axis=0).to(tl.float64) * (1.0 / UNIT)


@triton.jit
def add_to_moments(sums, total, squares, channel, program, share, CHANNELS: tl.constexpr):
    """Add a program's values, summed up per channel, and their squares. share: one over the number of all values.

    Means need room for one value, not for all, and may be coarse. A part is off by half a step, 3e-11; the 512 parts of
    128 images of 32 x 32 are off by 1.5e-8 at most: one in 600 of the eps that norms add to the variance (1e-5), and
    less than float32 loses of values around 1 (6e-8).
    """
    add_to_sum(sums, total * share, channel, program, FORWARD_UNIT, CHANNELS)
    add_to_sum(sums + COPIES * CHANNELS, squares * share, channel, program, FORWARD_UNIT, CHANNELS)


@triton.jit
def nan_where_unsound(u, y):
    """u; NaN where y was too large for the sums or infinite, so that the loss shows it, as torch's would."""
    return tl.where(tl.abs(y) <= LARGEST, u, float("nan"))


@triton.jit
def batch_moments(sums, channel, CHANNELS: tl.constexpr):
    """Mean and variance per channel."""
    mean = read_sum(sums, channel, FORWARD_UNIT, CHANNELS)
    square = read_sum(sums + COPIES * CHANNELS, channel, FORWARD_UNIT, CHANNELS)
    variance = square - mean * mean
    return mean.to(tl.float32), tl.maximum(variance.to(tl.float32), 0.0)


@triton.jit
def batch_affine(sums, gamma, beta, channel, eps, CHANNELS: tl.constexpr):
    """Batch norm as y * scale + shift, per channel."""
    mean, variance = batch_moments(sums, channel, CHANNELS)
    scale = tl.load(gamma + channel) * tl.rsqrt(variance + eps)
    return scale, tl.load(beta + channel) - mean * scale


@triton.jit
def remember(mean, variance, running_mean, running_var, channel, share, momentum):
    """What batch norm keeps of the batch for evaluation; the variance is the unbiased one, as torch keeps it."""
    old_mean, old_var = tl.load(running_mean + channel), tl.load(running_var + channel)
    tl.store(running_mean + channel, old_mean + momentum * (mean - old_mean))
    tl.store(running_var + channel, old_var + momentum * (variance / (1.0 - share) - old_var))


@triton.jit
def update_running(sums, running_mean, running_var, channel, share, momentum, CHANNELS: tl.constexpr):
    mean, variance = batch_moments(sums, channel, CHANNELS)
    remember(mean, variance, running_mean, running_var, channel, share, momentum)


@triton.jit
def backward_affine(sums, gradient_sums, gamma, channel, share, eps, CHANNELS: tl.constexpr):
    """Batch norm backwards as du * a + y * b + c, per channel.

    du is the gradient at its output, y its input; the gradient sums are those of du and of du times the normalised y.
    """
    mean, variance = batch_moments(sums, channel, CHANNELS)
    inverse = tl.rsqrt(variance + eps)
    mean_du = (read_sum(gradient_sums, channel, BACKWARD_UNIT, CHANNELS) * share).to(tl.float32)
    along = gradient_sums + COPIES * CHANNELS
    mean_along = (read_sum(along, channel, BACKWARD_UNIT, CHANNELS) * share).to(tl.float32)
    a = tl.load(gamma + channel) * inverse
    b = -a * inverse * mean_along
    return a, b, -a * mean_du - b * mean


REACH = 2**31
"""Numbers of a tensor, at most: the kernels count places in 32 bits, and beyond would write anywhere."""


def within_reach(x: Tensor) -> bool:
    return x.numel() <= REACH
