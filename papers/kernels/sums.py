"""Sums over a batch to which many programs add at the same time, with the same result in any order.

Floating-point atomics would make the result depend on the order of the programs. 64-bit fixed-point numbers add
exactly: a step gives the same bits alone, beside other runs and in a graph, and no second kernel has to add up parts.
"""

import triton
import triton.language as tl
from torch import Tensor

COPIES = tl.constexpr(8)
"""Number of copies of each sum. A program adds to one of them, so that fewer programs wait for the same address."""

FORWARD_UNIT = tl.constexpr(2.0**34)
"""Fixed-point steps per 1 for means of activations and of their squares: a program's part is exact to 3e-11."""

BACKWARD_UNIT = tl.constexpr(2.0**42)
"""Fixed-point steps per 1 for sums of gradients, which are small: a program's part is exact to 1e-13. A total above
2^21 (2e6) overflows."""

LARGEST = tl.constexpr(2.0**14)
"""Largest activation for which the sums cannot overflow: the mean of squares is then at most 2^28, or 2^62 steps of the
2^63 that 64 bits hold."""


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
def add_to_moments(sums, total, squares, channel, program, inverse_count, CHANNELS: tl.constexpr):
    """Add a program's sums per channel of values and of their squares. inverse_count: one over the number of values.

    The sums are means, which need fewer bits than totals. A part is off by at most half a step, 3e-11, so the 512 parts
    of 128 images of 32 x 32 by at most 1.5e-8. That is 1/600 of the eps that batch norm adds to the variance (1e-5),
    and less than the rounding of float32 for values around 1 (6e-8).
    """
    add_to_sum(sums, total * inverse_count, channel, program, FORWARD_UNIT, CHANNELS)
    add_to_sum(sums + COPIES * CHANNELS, squares * inverse_count, channel, program, FORWARD_UNIT, CHANNELS)


@triton.jit
def nan_where_too_large(u, y):
    """u, or NaN if y was too large for the sums or infinite, so that the loss becomes NaN, as with torch."""
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
def store_running(mean, variance, running_mean, running_var, channel, inverse_count, momentum):
    """Update batch norm's running statistics; the variance is the unbiased one, as in torch."""
    old_mean, old_var = tl.load(running_mean + channel), tl.load(running_var + channel)
    tl.store(running_mean + channel, old_mean + momentum * (mean - old_mean))
    tl.store(running_var + channel, old_var + momentum * (variance / (1.0 - inverse_count) - old_var))


@triton.jit
def update_running(sums, running_mean, running_var, channel, inverse_count, momentum, CHANNELS: tl.constexpr):
    mean, variance = batch_moments(sums, channel, CHANNELS)
    store_running(mean, variance, running_mean, running_var, channel, inverse_count, momentum)


@triton.jit
def backward_affine(sums, gradient_sums, gamma, channel, inverse_count, eps, CHANNELS: tl.constexpr):
    """Coefficients a, b, c per channel of batch norm's backward pass, du * a + y * b + c.

    du: gradient at its output; y: its input. The gradient sums are those of du and of du times the normalised y.
    """
    mean, variance = batch_moments(sums, channel, CHANNELS)
    inverse = tl.rsqrt(variance + eps)
    mean_du = (read_sum(gradient_sums, channel, BACKWARD_UNIT, CHANNELS) * inverse_count).to(tl.float32)
    along = gradient_sums + COPIES * CHANNELS
    mean_along = (read_sum(along, channel, BACKWARD_UNIT, CHANNELS) * inverse_count).to(tl.float32)
    a = tl.load(gamma + channel) * inverse
    b = -a * inverse * mean_along
    return a, b, -a * mean_du - b * mean


MAX_ELEMENTS = 2**31
"""Largest number of elements of a tensor: the kernels compute offsets in 32 bits, which larger tensors overflow."""


def fits_32_bits(x: Tensor) -> bool:
    """Whether the kernels can compute every offset into ``x``."""
    return x.numel() <= MAX_ELEMENTS
