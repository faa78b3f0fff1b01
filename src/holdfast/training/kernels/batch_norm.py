"""Batch norm, the sum and the ReLU behind it as one operation that autograd knows.

Batch norm with the sum and the ReLU behind it, forward and back, for any number of channels.

Activations are N x H x W x C in bf16 (in tests and in evaluation float32: whatever the buffers are). A program takes
BLOCK pixels of WIDE channels, a power of two that divides the channels. Programs for the same pixels follow each other,
so that what lies together in memory is asked for at once. ``moments`` holds the mean of each channel and, behind them,
one over the standard deviation, both float32.
"""

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from holdfast.training.kernels.convolution import relu
from holdfast.training.kernels.sums import (
    BACKWARD_UNIT,
    COPIES,
    add_to_moments,
    add_to_sum,
    batch_moments,
    nan_where_unsound,
    read_sum,
    remember,
    within_reach,
)

WIDEST = 64
"""Channels of a program at most: 128 bytes of bf16, what memory hands out at once."""
TILE, WARPS = 4096, 4
"""Numbers that a program holds at a time: four loads of 16 bytes for each of 128 threads."""
PROGRAMS = 528
"""Of a sum over the batch, about: four for each multiprocessor of an H200. More would only add to the same sums."""


class RoomyNorm(nn.BatchNorm2d):
    """A norm that finds zeroed room for its sums, ``room_for`` numbers, made with that of all others at once."""

    room: Tensor | None = None


def room_for(norm: nn.BatchNorm2d) -> int:
    """Of int64: two sums for the way forward, behind them two for the way back."""
    return 4 * int(COPIES) * norm.num_features


def by_kernels(norm: nn.BatchNorm2d, y: Tensor, *others: Tensor | None) -> bool:
    """Whether the kernels can carry a norm out: plain, and in evaluation only where no gradient is asked for."""
    if norm.momentum is None or norm.running_mean is None or norm.running_var is None or not norm.affine:
        return False
    if not within_reach(y):
        return False
    if norm.training:
        return y.numel() > y.shape[1]  # torch refuses a single value, in its own words
    tensors = (y, norm.weight, norm.bias, *others)
    return not (torch.is_grad_enabled() and any(one is not None and one.requires_grad for one in tensors))


def normed(norm: nn.BatchNorm2d, y: Tensor, residual: Tensor | None = None, *, relu: bool = True) -> tuple[Tensor, ...]:
    """relu(norm(y) + residual), twice: who uses it twice takes both, and their gradients are added on the way."""
    if not by_kernels(norm, y, residual):
        u = norm(y) if residual is None else norm(y) + residual
        u = F.relu(u) if relu else u
        return u, u
    found: tuple[Tensor, ...] = _Norm.apply(y, residual, norm.weight, norm.bias, norm, relu)
    return found


def convolved_and_normed(part: nn.Module, x: Tensor) -> tuple[Tensor, ...]:
    """part(x), twice; by the kernels where part is a convolution, a norm and perhaps a ReLU, and nothing else.

    Any other stem or shortcut, such as one that pools first, is called as it is.
    """
    layers = list(part) if type(part) is nn.Sequential else []
    relu = len(layers) == 3 and type(layers[2]) is nn.ReLU
    if len(layers) == (3 if relu else 2) and isinstance(layers[1], nn.BatchNorm2d):
        return normed(layers[1], layers[0](x), relu=relu)
    return (part(x),) * 2


def twice(ctx: Any, out: Tensor) -> tuple[Tensor, Tensor]:
    """What an operation's ``forward`` returns for its two users, so that their gradients reach ``backward`` apart.

    A tensor that is returned twice is one output to autograd, which would add up the gradients of its users itself, in
    a pass over memory of its own; a detached alias is a second output, and takes no memory. An output that nobody used
    has None for its gradient, instead of zeros that would have to be written and read.
    """
    ctx.set_materialize_grads(False)
    return out, out.detach()


@dataclass(frozen=True)
class Cut:
    """How an activation is cut: programs of ``sizes["BLOCK"]`` pixels, or of ``each`` where they add up over many."""

    pixels: int
    programs: int
    summing: int
    each: int
    sizes: dict[str, int]


def cut(y: Tensor) -> Cut:
    channels, pixels = y.shape[1], y.numel() // y.shape[1]
    wide = min(WIDEST, channels & -channels)
    block = TILE // wide
    slices, blocks = channels // wide, -(-pixels // block)
    each = -(-blocks * slices // PROGRAMS)
    sizes = {"CHANNELS": channels, "WIDE": wide, "BLOCK": block, "num_warps": WARPS}
    return Cut(pixels, blocks * slices, -(-blocks // each) * slices, each * block, sizes)


def sums_of_batch(norm: nn.BatchNorm2d, y: Tensor, how: Cut) -> tuple[Tensor, Tensor]:
    """The norm's sums, and zeroed room for those on the way back; in evaluation neither is read."""
    if not norm.training:
        return y, y
    room = norm.room if isinstance(norm, RoomyNorm) else None
    room = y.new_zeros(room_for(norm), dtype=torch.int64) if room is None else room
    sums, back = room.chunk(2)
    add_up[(how.summing,)](y, sums, how.pixels, 1 / how.pixels, EACH=how.each, **how.sizes)
    return sums, back


def known_of(norm: nn.BatchNorm2d, y: Tensor, sums: Tensor) -> tuple[Any, ...]:
    """What ``moments_here`` asks for: ``sums`` first, room for the moments last."""
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
        how, out = cut(y), torch.empty_like(y)
        sums, back = sums_of_batch(norm, y, how)
        known = known_of(norm, y, sums)
        normalise_tile[(how.programs,)](
            y, y if residual is None else residual, out, *known, gamma, beta, how.pixels, 1 / how.pixels, norm.eps,
            norm.momentum, FROZEN=not norm.training, RESIDUAL=residual is not None, RELU=relu, **how.sizes,
        )  # fmt: skip
        from_out = relu and residual is not None
        ctx.relu, ctx.from_out, ctx.back = relu, from_out, [back]
        ctx.save_for_backward(y, out if from_out else None, gamma, beta, known[-1])
        return twice(ctx, out)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *given: Tensor | None) -> tuple[Tensor | None, ...]:
        present = [channels_last(one) for one in given if one is not None]
        if not present:
            return (None,) * 6
        y, out, gamma, beta, moments = ctx.saved_tensors
        how = cut(y)
        # A second time back through a graph that was kept finds the room used.
        sums = ctx.back.pop() if ctx.back else y.new_zeros(2 * int(COPIES) * y.shape[1], dtype=torch.int64)
        keep = ctx.from_out or len(present) > 1
        du = torch.empty_like(y) if keep else present[0]
        add_up_back[(how.summing,)](
            present[0], present[-1], y, y if out is None else out, moments, gamma, beta, du, sums, how.pixels,
            MORE=len(present) > 1, RELU=ctx.relu, FROM_OUT=ctx.from_out, KEEP=keep, EACH=how.each, **how.sizes,
        )  # fmt: skip
        dy, gradients = torch.empty_like(y), torch.empty_like(moments)
        through_tile[(how.programs,)](
            du, y, dy, moments, gamma, beta, sums, gradients, how.pixels, 1 / how.pixels,
            RELU=ctx.relu and not keep, **how.sizes,
        )  # fmt: skip
        return dy, du if ctx.needs_input_grad[1] else None, gradients[1], gradients[0], None, None


@triton.jit
def channels_of(program, CHANNELS: tl.constexpr, WIDE: tl.constexpr):
    return program % (CHANNELS // WIDE) * WIDE + tl.arange(0, WIDE)


@triton.jit
def tile_here(pixels, CHANNELS: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr):
    """This program's part of an activation: its channels, its first pixel, which places exist, and where they lie."""
    channel = channels_of(tl.program_id(0), CHANNELS, WIDE)
    start = tl.program_id(0) // (CHANNELS // WIDE) * BLOCK
    pixel = start + tl.arange(0, BLOCK)
    return channel, start, (pixel < pixels)[:, None], pixel[:, None] * CHANNELS + channel[None, :]


@triton.jit
def add_up(
    y, sums, pixels, share, EACH: tl.constexpr, CHANNELS: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """The sums that the moments of y are read from, over EACH of the pixels."""
    channel = channels_of(tl.program_id(0), CHANNELS, WIDE)
    part = tl.program_id(0) // (CHANNELS // WIDE)
    total, squares = tl.zeros((BLOCK, WIDE), tl.float32), tl.zeros((BLOCK, WIDE), tl.float32)
    for start in range(0, EACH, BLOCK):
        pixel = part * EACH + start + tl.arange(0, BLOCK)
        place = pixel[:, None] * CHANNELS + channel[None, :]
        seen = tl.load(y + place, mask=(pixel < pixels)[:, None], other=0.0).to(tl.float32)
        total += seen
        squares += seen * seen
    add_to_moments(sums, tl.sum(total, axis=0), tl.sum(squares, axis=0), channel, part, share, CHANNELS)


@triton.jit
def moments_here(
    sums, running_mean, running_var, moments, channel, first, share, eps, momentum,
    FROZEN: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    """Mean and one over the standard deviation: those remembered (FROZEN), or the batch's.

    Where ``first`` holds they are also stored, and a batch's are remembered.
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
            remember(mean, variance, running_mean, running_var, channel, share, momentum)
    return mean, inverse


@triton.jit
def scale_and_shift(mean, inverse, gamma, beta, channel):
    scale = tl.load(gamma + channel) * inverse
    return scale, tl.load(beta + channel) - mean * scale


@triton.jit
def normalise_tile(
    y, residual, out, sums, running_mean, running_var, moments, gamma, beta, pixels, share, eps, momentum,
    FROZEN: tl.constexpr, RESIDUAL: tl.constexpr, RELU: tl.constexpr, CHANNELS: tl.constexpr, WIDE: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """out = relu(bn(y) + residual), each of the two if asked for."""
    channel, start, inside, place = tile_here(pixels, CHANNELS, WIDE, BLOCK)
    before = tl.load(y + place, mask=inside, other=0.0).to(tl.float32)
    mean, inverse = moments_here(
        sums, running_mean, running_var, moments, channel, start == 0, share, eps, momentum, FROZEN, CHANNELS
    )
    scale, shift = scale_and_shift(mean, inverse, gamma, beta, channel)
    u = before * scale[None, :] + shift[None, :]
    if not FROZEN:
        u = nan_where_unsound(u, before)
    if RESIDUAL:
        u += tl.load(residual + place, mask=inside, other=0.0).to(tl.float32)
    if RELU:
        u = relu(u)
    tl.store(out + place, u.to(out.dtype.element_ty), mask=inside)


@triton.jit
def add_up_back(
    gradient, more, y, out, moments, gamma, beta, du, gradient_sums, pixels,
    MORE: tl.constexpr, RELU: tl.constexpr, FROM_OUT: tl.constexpr, KEEP: tl.constexpr, EACH: tl.constexpr,
    CHANNELS: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The sums of du, the gradient at the norm's output, and of du times the normalised y; du itself if KEEP.

    MORE: the gradient comes in two parts. FROM_OUT: where the ReLU was lit is read from out; else it follows from y.
    """
    channel = channels_of(tl.program_id(0), CHANNELS, WIDE)
    part = tl.program_id(0) // (CHANNELS // WIDE)
    mean, inverse = tl.load(moments + channel), tl.load(moments + CHANNELS + channel)
    scale, shift = scale_and_shift(mean, inverse, gamma, beta, channel)
    total, along = tl.zeros((BLOCK, WIDE), tl.float32), tl.zeros((BLOCK, WIDE), tl.float32)
    for start in range(0, EACH, BLOCK):
        pixel = part * EACH + start + tl.arange(0, BLOCK)
        inside = (pixel < pixels)[:, None]
        place = pixel[:, None] * CHANNELS + channel[None, :]
        g = tl.load(gradient + place, mask=inside, other=0.0).to(tl.float32)
        if MORE:
            g += tl.load(more + place, mask=inside, other=0.0).to(tl.float32)
        before = tl.load(y + place, mask=inside, other=0.0).to(tl.float32)
        if FROM_OUT:
            g = tl.where(tl.load(out + place, mask=inside, other=0.0).to(tl.float32) > 0, g, 0.0)
        elif RELU:
            g = tl.where(before * scale[None, :] + shift[None, :] > 0, g, 0.0)
        if KEEP:
            rounded = g.to(du.dtype.element_ty)
            tl.store(du + place, rounded, mask=inside)
            g = rounded.to(tl.float32)
        total += g
        along += g * ((before - mean[None, :]) * inverse[None, :])
    add_to_sum(gradient_sums, tl.sum(total, axis=0), channel, part, BACKWARD_UNIT, CHANNELS)
    add_to_sum(gradient_sums + COPIES * CHANNELS, tl.sum(along, axis=0), channel, part, BACKWARD_UNIT, CHANNELS)


@triton.jit
def back_affine(mean, inverse, gamma, sum_du, sum_along, channel, share):
    """Batch norm backwards as du * a + y * b + c, per channel."""
    a = tl.load(gamma + channel) * inverse
    b = -a * inverse * (sum_along * share)
    return a, b, -a * (sum_du * share) - b * mean


@triton.jit
def through_tile(
    du, y, dy, moments, gamma, beta, gradient_sums, gradients, pixels, share,
    RELU: tl.constexpr, CHANNELS: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """dy, the gradient at the norm's input. RELU: du has not been through it yet; whether it was lit follows from y.

    gradients: of beta and, behind it, of gamma.
    """
    channel, start, inside, place = tile_here(pixels, CHANNELS, WIDE, BLOCK)
    g = tl.load(du + place, mask=inside, other=0.0).to(tl.float32)
    before = tl.load(y + place, mask=inside, other=0.0).to(tl.float32)
    mean, inverse = tl.load(moments + channel), tl.load(moments + CHANNELS + channel)
    sum_du = read_sum(gradient_sums, channel, BACKWARD_UNIT, CHANNELS).to(tl.float32)
    sum_along = read_sum(gradient_sums + COPIES * CHANNELS, channel, BACKWARD_UNIT, CHANNELS).to(tl.float32)
    if RELU:
        scale, shift = scale_and_shift(mean, inverse, gamma, beta, channel)
        g = tl.where(before * scale[None, :] + shift[None, :] > 0, g, 0.0)
    a, b, c = back_affine(mean, inverse, gamma, sum_du, sum_along, channel, share)
    found = g * a[None, :] + before * b[None, :] + c[None, :]
    tl.store(dy + place, found.to(dy.dtype.element_ty), mask=inside)
    if start == 0:
        tl.store(gradients + channel, sum_du)
        tl.store(gradients + CHANNELS + channel, sum_along)
