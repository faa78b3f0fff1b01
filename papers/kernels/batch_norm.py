"""Batch norm, the sum with a residual and the ReLU after it as one operation with its gradient.

Activations are N x H x W x C in bf16; in tests and in evaluation float32 (the kernels use the dtype of the buffers). A
program computes BLOCK pixels of WIDE channels, a power of two that divides the channels. Programs for the same pixels
have consecutive numbers, so that neighbouring memory is read at the same time. ``moments`` holds the mean of each
channel, then one over its standard deviation, both float32.
"""

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from papers.kernels.convolution import relu
from papers.kernels.sums import (
    BACKWARD_UNIT,
    COPIES,
    add_to_moments,
    add_to_sum,
    batch_moments,
    fits_32_bits,
    nan_where_too_large,
    read_sum,
    store_running,
)

WIDEST = 64
"""Most channels of a program: 128 bytes of bf16, one memory transaction."""
TILE, WARPS = 4096, 4
"""Numbers that a program holds at a time: four loads of 16 bytes for each of 128 threads."""
PROGRAMS = 528
"""Approximate number of programs for a sum over the batch: four per multiprocessor of an H200. More only add to the
same sums."""


class PreallocatedNorm(nn.BatchNorm2d):
    """A batch norm with a zeroed buffer for its sums, ``sums_size`` numbers, allocated together with all others."""

    sums_buffer: Tensor | None = None


def sums_size(norm: nn.BatchNorm2d) -> int:
    """Number of int64 that its sums take: two sums for the forward pass, then two for the backward pass."""
    return 4 * int(COPIES) * norm.num_features


def kernels_support(norm: nn.BatchNorm2d, y: Tensor, *others: Tensor | None) -> bool:
    """Whether the kernels can compute a norm: affine, with running statistics, and in evaluation without gradients."""
    if norm.momentum is None or norm.running_mean is None or norm.running_var is None or not norm.affine:
        return False
    if not fits_32_bits(y):
        return False
    if norm.training:
        return y.numel() > y.shape[1]  # torch refuses a single value with its own message
    tensors = (y, norm.weight, norm.bias, *others)
    return not (torch.is_grad_enabled() and any(one is not None and one.requires_grad for one in tensors))


def fused_batch_norm(
    norm: nn.BatchNorm2d, y: Tensor, residual: Tensor | None = None, *, relu: bool = True
) -> tuple[Tensor, ...]:
    """relu(norm(y) + residual), as two outputs: two users take one each, and the kernel adds their gradients."""
    if not kernels_support(norm, y, residual):
        u = norm(y) if residual is None else norm(y) + residual
        u = F.relu(u) if relu else u
        return u, u
    found: tuple[Tensor, ...] = _Norm.apply(y, residual, norm.weight, norm.bias, norm, relu)
    return found


def convolution_batch_norm(part: nn.Module, x: Tensor) -> tuple[Tensor, ...]:
    """part(x), as two outputs; with the kernels if part is a convolution, a batch norm and at most a ReLU.

    Any other stem or shortcut, such as one that pools first, is called unchanged.
    """
    layers = list(part) if type(part) is nn.Sequential else []
    relu = len(layers) == 3 and type(layers[2]) is nn.ReLU
    if len(layers) == (3 if relu else 2) and isinstance(layers[1], nn.BatchNorm2d):
        return fused_batch_norm(layers[1], layers[0](x), relu=relu)
    return (part(x),) * 2


def two_outputs(ctx: Any, out: Tensor) -> tuple[Tensor, Tensor]:
    """What an operation's ``forward`` returns for two users, so that ``backward`` receives their gradients separately.

    A tensor returned twice is one output to autograd, which would add the gradients of its users in an extra pass over
    memory. A detached alias is a second output and takes no memory. The gradient of an unused output is None, instead
    of zeros that would have to be written and read.
    """
    ctx.set_materialize_grads(False)
    return out, out.detach()


@dataclass(frozen=True)
class Tiling:
    """How an activation is divided among programs.

    pixels: N x H x W.
    programs: number of programs of ``sizes["BLOCK"]`` pixels.
    summing: number of programs of ``each`` pixels, for sums over the batch.
    sizes: constants of the kernels.
    """

    pixels: int
    programs: int
    summing: int
    each: int
    sizes: dict[str, int]


def tiling(y: Tensor) -> Tiling:
    channels, pixels = y.shape[1], y.numel() // y.shape[1]
    wide = min(WIDEST, channels & -channels)
    block = TILE // wide
    slices, blocks = channels // wide, -(-pixels // block)
    each = -(-blocks * slices // PROGRAMS)
    sizes = {"CHANNELS": channels, "WIDE": wide, "BLOCK": block, "num_warps": WARPS}
    return Tiling(pixels, blocks * slices, -(-blocks // each) * slices, each * block, sizes)


def batch_sums(norm: nn.BatchNorm2d, y: Tensor, tiles: Tiling) -> tuple[Tensor, Tensor]:
    """The norm's sums, and zeros for those of the backward pass. In evaluation neither is read."""
    if not norm.training:
        return y, y
    buffer = norm.sums_buffer if isinstance(norm, PreallocatedNorm) else None
    buffer = y.new_zeros(sums_size(norm), dtype=torch.int64) if buffer is None else buffer
    sums, backward_sums = buffer.chunk(2)
    sum_batch[(tiles.summing,)](y, sums, tiles.pixels, 1 / tiles.pixels, EACH=tiles.each, **tiles.sizes)
    return sums, backward_sums


def norm_arguments(norm: nn.BatchNorm2d, y: Tensor, sums: Tensor) -> tuple[Any, ...]:
    """Arguments of ``norm_moments``: ``sums`` first, an empty tensor for the moments last."""
    return sums, norm.running_mean, norm.running_var, y.new_empty(2, y.shape[1], dtype=torch.float32)


def channels_last(x: Tensor) -> Tensor:
    return x.contiguous(memory_format=torch.channels_last)


class _Norm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, y: Tensor, residual: Tensor | None, gamma: Tensor, beta: Tensor, norm: nn.BatchNorm2d, relu: bool
    ) -> tuple[Tensor, Tensor]:
        y = channels_last(y)
        residual = None if residual is None else channels_last(residual)
        tiles, out = tiling(y), torch.empty_like(y)
        sums, backward_sums = batch_sums(norm, y, tiles)
        known = norm_arguments(norm, y, sums)
        normalise_tile[(tiles.programs,)](
            y, y if residual is None else residual, out, *known, gamma, beta, tiles.pixels, 1 / tiles.pixels, norm.eps,
            norm.momentum, FROZEN=not norm.training, RESIDUAL=residual is not None, RELU=relu, **tiles.sizes,
        )  # fmt: skip
        from_out = relu and residual is not None
        ctx.relu, ctx.from_out, ctx.backward_sums = relu, from_out, [backward_sums]
        ctx.save_for_backward(y, out if from_out else None, gamma, beta, known[-1])
        return two_outputs(ctx, out)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *given: Tensor | None) -> tuple[Tensor | None, ...]:
        present = [channels_last(one) for one in given if one is not None]
        if not present:
            return (None,) * 6
        y, out, gamma, beta, moments = ctx.saved_tensors
        tiles = tiling(y)
        # A second backward pass (retain_graph) finds the zeroed sums used.
        unused = ctx.backward_sums
        sums = unused.pop() if unused else y.new_zeros(2 * int(COPIES) * y.shape[1], dtype=torch.int64)
        keep = ctx.from_out or len(present) > 1
        du = torch.empty_like(y) if keep else present[0]
        sum_gradients[(tiles.summing,)](
            present[0], present[-1], y, y if out is None else out, moments, gamma, beta, du, sums, tiles.pixels,
            MORE=len(present) > 1, RELU=ctx.relu, FROM_OUT=ctx.from_out, KEEP=keep, EACH=tiles.each, **tiles.sizes,
        )  # fmt: skip
        dy, gradients = torch.empty_like(y), torch.empty_like(moments)
        norm_backward_tile[(tiles.programs,)](
            du, y, dy, moments, gamma, beta, sums, gradients, tiles.pixels, 1 / tiles.pixels,
            RELU=ctx.relu and not keep, **tiles.sizes,
        )  # fmt: skip
        return dy, du if ctx.needs_input_grad[1] else None, gradients[1], gradients[0], None, None


@triton.jit
def channels_of(program, CHANNELS: tl.constexpr, WIDE: tl.constexpr):
    return program % (CHANNELS // WIDE) * WIDE + tl.arange(0, WIDE)


@triton.jit
def own_tile(pixels, CHANNELS: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr):
    """This program's tile of an activation: its channels, first pixel, mask of existing pixels, and offsets."""
    channel = channels_of(tl.program_id(0), CHANNELS, WIDE)
    start = tl.program_id(0) // (CHANNELS // WIDE) * BLOCK
    pixel = start + tl.arange(0, BLOCK)
    return channel, start, (pixel < pixels)[:, None], pixel[:, None] * CHANNELS + channel[None, :]


@triton.jit
def sum_batch(
    y, sums, pixels, inverse_count, EACH: tl.constexpr, CHANNELS: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """Add EACH pixels of y to the sums that give its moments."""
    channel = channels_of(tl.program_id(0), CHANNELS, WIDE)
    part = tl.program_id(0) // (CHANNELS // WIDE)
    total, squares = tl.zeros((BLOCK, WIDE), tl.float32), tl.zeros((BLOCK, WIDE), tl.float32)
    for start in range(0, EACH, BLOCK):
        pixel = part * EACH + start + tl.arange(0, BLOCK)
        offset = pixel[:, None] * CHANNELS + channel[None, :]
        seen = tl.load(y + offset, mask=(pixel < pixels)[:, None], other=0.0).to(tl.float32)
        total += seen
        squares += seen * seen
    add_to_moments(sums, tl.sum(total, axis=0), tl.sum(squares, axis=0), channel, part, inverse_count, CHANNELS)


@triton.jit
def norm_moments(
    sums, running_mean, running_var, moments, channel, first, inverse_count, eps, momentum,
    FROZEN: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    """Mean and one over the standard deviation: the running ones (FROZEN) or the batch's.

    first: also store them, and update the running statistics.
    """
    if FROZEN:
        mean, variance = tl.load(running_mean + channel), tl.load(running_var + channel)
    else:
        mean, variance = batch_moments(sums, channel, CHANNELS)
    inverse = tl.rsqrt(variance + eps)
    if first:
        tl.store(moments + channel, mean)
        tl.store(moments + CHANNELS + channel, inverse)
        if not FROZEN:
            store_running(mean, variance, running_mean, running_var, channel, inverse_count, momentum)
    return mean, inverse


@triton.jit
def scale_and_shift(mean, inverse, gamma, beta, channel):
    scale = tl.load(gamma + channel) * inverse
    return scale, tl.load(beta + channel) - mean * scale


@triton.jit
def normalise_tile(
    y, residual, out, sums, running_mean, running_var, moments, gamma, beta, pixels, inverse_count, eps, momentum,
    FROZEN: tl.constexpr, RESIDUAL: tl.constexpr, RELU: tl.constexpr, CHANNELS: tl.constexpr, WIDE: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """out = relu(bn(y) + residual); RELU and RESIDUAL switch these parts on."""
    channel, start, inside, offset = own_tile(pixels, CHANNELS, WIDE, BLOCK)
    before = tl.load(y + offset, mask=inside, other=0.0).to(tl.float32)
    mean, inverse = norm_moments(
        sums, running_mean, running_var, moments, channel, start == 0, inverse_count, eps, momentum, FROZEN, CHANNELS
    )
    scale, shift = scale_and_shift(mean, inverse, gamma, beta, channel)
    u = before * scale[None, :] + shift[None, :]
    if not FROZEN:
        u = nan_where_too_large(u, before)
    if RESIDUAL:
        u += tl.load(residual + offset, mask=inside, other=0.0).to(tl.float32)
    if RELU:
        u = relu(u)
    tl.store(out + offset, u.to(out.dtype.element_ty), mask=inside)


@triton.jit
def sum_gradients(
    gradient, more, y, out, moments, gamma, beta, du, gradient_sums, pixels,
    MORE: tl.constexpr, RELU: tl.constexpr, FROM_OUT: tl.constexpr, KEEP: tl.constexpr, EACH: tl.constexpr,
    CHANNELS: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The sums of du, the gradient at the norm's output, and of du times the normalised y; du itself if KEEP.

    MORE: the gradient has two parts. FROM_OUT: whether the ReLU was active is read from out, otherwise computed from y.
    """
    channel = channels_of(tl.program_id(0), CHANNELS, WIDE)
    part = tl.program_id(0) // (CHANNELS // WIDE)
    mean, inverse = tl.load(moments + channel), tl.load(moments + CHANNELS + channel)
    scale, shift = scale_and_shift(mean, inverse, gamma, beta, channel)
    total, along = tl.zeros((BLOCK, WIDE), tl.float32), tl.zeros((BLOCK, WIDE), tl.float32)
    for start in range(0, EACH, BLOCK):
        pixel = part * EACH + start + tl.arange(0, BLOCK)
        inside = (pixel < pixels)[:, None]
        offset = pixel[:, None] * CHANNELS + channel[None, :]
        g = tl.load(gradient + offset, mask=inside, other=0.0).to(tl.float32)
        if MORE:
            g += tl.load(more + offset, mask=inside, other=0.0).to(tl.float32)
        before = tl.load(y + offset, mask=inside, other=0.0).to(tl.float32)
        if FROM_OUT:
            g = tl.where(tl.load(out + offset, mask=inside, other=0.0).to(tl.float32) > 0, g, 0.0)
        elif RELU:
            g = tl.where(before * scale[None, :] + shift[None, :] > 0, g, 0.0)
        if KEEP:
            rounded = g.to(du.dtype.element_ty)
            tl.store(du + offset, rounded, mask=inside)
            g = rounded.to(tl.float32)
        total += g
        along += g * ((before - mean[None, :]) * inverse[None, :])
    add_to_sum(gradient_sums, tl.sum(total, axis=0), channel, part, BACKWARD_UNIT, CHANNELS)
    add_to_sum(gradient_sums + COPIES * CHANNELS, tl.sum(along, axis=0), channel, part, BACKWARD_UNIT, CHANNELS)


@triton.jit
def backward_affine_of(mean, inverse, gamma, sum_du, sum_along, channel, inverse_count):
    """As ``backward_affine``, from moments and sums already read."""
    a = tl.load(gamma + channel) * inverse
    b = -a * inverse * (sum_along * inverse_count)
    return a, b, -a * (sum_du * inverse_count) - b * mean


@triton.jit
def norm_backward_tile(
    du, y, dy, moments, gamma, beta, gradient_sums, gradients, pixels, inverse_count,
    RELU: tl.constexpr, CHANNELS: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """dy, the gradient at the norm's input.

    RELU: du is the gradient after the ReLU; whether that was active is computed from y.
    gradients: of beta, then of gamma.
    """
    channel, start, inside, offset = own_tile(pixels, CHANNELS, WIDE, BLOCK)
    g = tl.load(du + offset, mask=inside, other=0.0).to(tl.float32)
    before = tl.load(y + offset, mask=inside, other=0.0).to(tl.float32)
    mean, inverse = tl.load(moments + channel), tl.load(moments + CHANNELS + channel)
    sum_du = read_sum(gradient_sums, channel, BACKWARD_UNIT, CHANNELS).to(tl.float32)
    sum_along = read_sum(gradient_sums + COPIES * CHANNELS, channel, BACKWARD_UNIT, CHANNELS).to(tl.float32)
    if RELU:
        scale, shift = scale_and_shift(mean, inverse, gamma, beta, channel)
        g = tl.where(before * scale[None, :] + shift[None, :] > 0, g, 0.0)
    a, b, c = backward_affine_of(mean, inverse, gamma, sum_du, sum_along, channel, inverse_count)
    found = g * a[None, :] + before * b[None, :] + c[None, :]
    tl.store(dy + offset, found.to(dy.dtype.element_ty), mask=inside)
    if start == 0:
        tl.store(gradients + channel, sum_du)
        tl.store(gradients + CHANNELS + channel, sum_along)
