"""A 3 x 3 convolution in groups of 16 channels that autograd knows: ``F.conv2d`` by kernels made for small groups."""

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from holdfast.kernels.grouped import GROUP, convolve_groups, convolve_groups_back, group_weight_parts
from holdfast.kernels.reach import within_reach

GROUP_WIDTH = int(GROUP)


@dataclass(frozen=True)
class Tiles:
    """How the work is cut.

    groups: side by side in one program, where they divide the groups there are; convolve, back: pixels per program;
    programs: of the weights' gradient, about, each in steps of ``part_block`` pixels; stages: of loads in flight.
    """

    groups: int
    convolve: int
    back: int
    programs: int
    part_block: int
    stages: int = 3
    warps: int = 4


TILES = Tiles(groups=2, convolve=256, back=128, programs=396, part_block=64)
SMALL_TILES = Tiles(groups=2, convolve=128, back=128, programs=396, part_block=64)
FEW_PIXELS = 2**14
"""Below that, and for float32, which takes twice the room, the small tiles. Not measured yet: both are what 32-channel
layers of a CIFAR ResNet want on an H200 (bench/README.md), which are the same products; three programs of the weights'
gradient have room in each of its 132 multiprocessors."""


def grouped_convolution(x: Tensor, weight: Tensor, stride: int = 1, *, cast: Tensor | None = None) -> Tensor:
    """``F.conv2d(x, weight, stride=stride, padding=1, groups=C // 16)``, in x's dtype and channels-last.

    x: N x C x H x W, H and W multiples of the stride, which is 1 or 2. Beyond the kernels' reach torch carries it out.
    weight: C x 16 x 3 x 3 in float32, channels-last, and so is its gradient.
    cast: the weight in x's dtype, for callers who cast many at once.
    A value that is NaN or infinite spoils the group beside its own too.
    """
    if not within_reach(x):
        return F.conv2d(x, weight.to(x.dtype), stride=stride, padding=1, groups=x.shape[1] // GROUP_WIDTH)
    cast = weight.detach().to(x.dtype) if cast is None else cast
    result: Tensor = _Convolution.apply(x, weight, cast, stride)
    return result


class _Convolution(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, cast: Tensor, stride: int) -> Tensor:
        x, cast = _channels_last(x), _channels_last(cast)
        ctx.stride = stride
        ctx.save_for_backward(x, cast)
        shape = (x.shape[0], x.shape[1], x.shape[2] // stride, x.shape[3] // stride)
        y = torch.empty(shape, dtype=x.dtype, device=x.device, memory_format=torch.channels_last)
        tiles, sizes = _cut(y, stride)
        programs = _blocks(y, tiles.convolve) * (y.shape[1] // sizes["WIDE"])
        convolve_groups[(programs,)](x, cast, y, _pixels(y), **sizes, BLOCK=tiles.convolve, num_warps=tiles.warps)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        x, cast = ctx.saved_tensors
        dy = _channels_last(dy)
        dx = _gradient_of_input(dy, x, cast, ctx.stride) if ctx.needs_input_grad[0] else None
        dw = _gradient_of_weight(dy, x, ctx.stride) if ctx.needs_input_grad[1] else None
        return dx, dw, None, None


def _gradient_of_input(dy: Tensor, x: Tensor, cast: Tensor, stride: int) -> Tensor:
    tiles, sizes = _cut(dy, stride)
    dx = torch.empty_like(x)
    programs = _blocks(dy, tiles.back) * stride**2 * (dy.shape[1] // sizes["WIDE"])
    convolve_groups_back[(programs,)](dy, cast, dx, _pixels(dy), **sizes, BLOCK=tiles.back, num_warps=tiles.warps)
    return dx


def _gradient_of_weight(dy: Tensor, x: Tensor, stride: int) -> Tensor:
    """C x 16 x 3 x 3 in float32, laid out as the parameter is, so that autograd keeps it instead of copying it."""
    tiles, sizes = _cut(dy, stride)
    channels = dy.shape[1]
    slices = channels // sizes["WIDE"]
    steps = _blocks(dy, tiles.part_block)
    steps_each = -(-steps // max(1, tiles.programs // (3 * slices)))
    count, each = -(-steps // steps_each), steps_each * tiles.part_block
    parts = torch.empty((count, channels, 3, 3, GROUP_WIDTH), dtype=torch.float32, device=dy.device)
    group_weight_parts[(slices, 3, count)](
        x, dy, parts, _pixels(dy), EACH=each, **sizes, BLOCK=tiles.part_block, num_warps=tiles.warps
    )
    return parts.sum(0).permute(0, 3, 1, 2)


def _cut(y: Tensor, stride: int) -> tuple[Tiles, dict[str, int]]:
    """The tiles for an output, and the sizes that every kernel asks for."""
    tiles = SMALL_TILES if _pixels(y) < FEW_PIXELS or y.dtype == torch.float32 else TILES
    channels = y.shape[1]
    wide = GROUP_WIDTH * (tiles.groups if channels // GROUP_WIDTH % tiles.groups == 0 else 1)
    sizes = {"HEIGHT": y.shape[2], "WIDTH": y.shape[3], "STRIDE": stride, "CHANNELS": channels, "WIDE": wide}
    return tiles, sizes | {"STAGES": tiles.stages}


def _pixels(y: Tensor) -> int:
    return y.numel() // y.shape[1]


def _blocks(y: Tensor, block: int) -> int:
    return -(-_pixels(y) // block)


def _channels_last(x: Tensor) -> Tensor:
    return x.contiguous(memory_format=torch.channels_last)
