"""One pass of a CIFAR ResNet in training mode, and the way back."""

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from holdfast.kernels.backward import convolve_back, spread_mean, through_norm, weight_parts
from holdfast.kernels.backward_rows import convolve_back_rows
from holdfast.kernels.forward import convolve, normalise
from holdfast.kernels.forward_rows import convolve_rows
from holdfast.kernels.gradients import add_up_parts, norm_gradients
from holdfast.kernels.kernel_arguments import given_or, pixels_of, shortcut_kind, size_of
from holdfast.kernels.layers import TABLE_BLOCK, TILES, starts
from holdfast.kernels.strips import BACK_ROWS, FORWARD_ROWS
from holdfast.kernels.weights_nine import weight_parts_nine

if TYPE_CHECKING:
    from holdfast.kernels.trunk import FusedTrunk


class Pass(torch.autograd.Function):
    """One pass in training mode. What it keeps for the way back lives in a ``_Kept``, for one way back."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, trunk: "FusedTrunk", *parameters: Tensor) -> Tensor:
        ctx.kept = kept = _Kept(trunk, x)
        out = kept.layer(0, x, shortcut=None)
        for i in range(1, len(trunk.layers), 2):
            out = kept.layer(i + 1, kept.layer(i, out, shortcut=None), shortcut=out)
        return out.flatten(1, 2).mean(1, dtype=torch.float32)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        # Let go now, not with the graph, which lives until the end of the step: another view may be to come.
        kept, ctx.kept = ctx.kept, None
        if kept is None:
            raise RuntimeError(
                "trying to go back through a fused trunk a second time: the first time freed what it had kept, "
                "retain_graph=True or not; call the network again"
            )
        last = len(kept.trunk.layers) - 1
        du = kept.spread_mean(last, gradients[0])
        for i in range(last - 1, 0, -2):
            inner = kept.layer_back(i + 1, du, shortcut_du=None)
            du = kept.layer_back(i, inner, shortcut_du=du)
        kept.weight_parts(0, kept.through_norm(0, du))
        return (None, None, *kept.gradients())


class _Kept:
    """The tensors of one pass. Of layer i: ``x`` its input, ``y`` before its norm, ``out`` behind norm and ReLU."""

    def __init__(self, trunk: "FusedTrunk", image: Tensor) -> None:
        self.trunk = trunk
        self.x: dict[int, Tensor] = {}
        self.y: dict[int, Tensor] = {}
        self.out: dict[int, Tensor] = {}
        self._sizes = [layer.sums for layer in trunk.layers]
        self._flat_sums = image.new_zeros(starts(self._sizes)[-1], dtype=torch.int64)
        self._sums = self._flat_sums.split(self._sizes)
        self._layout = trunk.layout(image)

    def layer(self, i: int, x: Tensor, *, shortcut: Tensor | None) -> Tensor:
        """relu(bn(conv(x)) + shortcut)"""
        norm, self.x[i] = self.trunk.layers[i].norm, x
        y = self.y[i] = self.trunk.output(i, x)
        pixels, tiles = pixels_of(y), TILES[y.shape[3]]
        tensors = (x, self.trunk.packed[i], y, self._sums[i])
        if cut := self.trunk.strips(i, FORWARD_ROWS, y):
            convolve_rows[cut.grid](*tensors, len(y), 1 / pixels, **self.trunk.channels(i), **cut.options)
        else:
            convolve[(-(-pixels // tiles.convolve),)](
                *tensors, pixels, 1 / pixels, **size_of(y), **self.trunk.shape(i), BLOCK=tiles.convolve
            )
        out = self.out[i] = torch.empty_like(y)
        normalise[(-(-pixels // tiles.norm),)](
            y, given_or(shortcut, y), out, self._sums[i], norm.weight, norm.bias, norm.running_mean, norm.running_var,
            pixels, 1 / pixels, norm.eps, norm.momentum, **size_of(y), CHANNELS=y.shape[3],
            SHORTCUT=shortcut_kind(shortcut, y), BLOCK=tiles.norm,
        )  # fmt: skip
        return out

    def spread_mean(self, i: int, gradient: Tensor) -> Tensor:
        y = self.y[i]
        self._flat_gradient_sums = torch.zeros_like(self._flat_sums)
        self._gradient_sums = self._flat_gradient_sums.split(self._sizes)
        self._parts = y.new_empty(self._layout.part_starts[-1], dtype=torch.float32)
        du, pixels, block = torch.empty_like(y), pixels_of(y), TILES[y.shape[3]].norm
        spread_mean[(-(-pixels // block),)](
            gradient.contiguous(), self.out[i], y, self._sums[i], du, self._gradient_sums[i], pixels,
            self.trunk.layers[i].norm.eps, POSITIONS=y.shape[1] * y.shape[2], CHANNELS=y.shape[3], BLOCK=block,
        )  # fmt: skip
        return du

    def layer_back(self, i: int, du: Tensor, *, shortcut_du: Tensor | None) -> Tensor:
        """du of layer i - 1 from that of layer i; on the way the gradient of its weights."""
        dy = self.through_norm(i, du)
        self.weight_parts(i, dy)
        y, norm = self.y[i - 1], self.trunk.layers[i - 1].norm
        found, pixels, block = torch.empty_like(y), pixels_of(y), TILES[y.shape[3]].back
        tensors = (
            dy, self.trunk.packed[i], given_or(shortcut_du, dy), y, self.out[i - 1], self._sums[i - 1],
            norm.weight, norm.bias, found, self._gradient_sums[i - 1],
        )  # fmt: skip
        kind = shortcut_kind(shortcut_du, y)
        if cut := self.trunk.strips(i, BACK_ROWS, y):
            convolve_back_rows[cut.grid](
                *tensors, len(y), norm.eps, **self.trunk.channels(i), SHORTCUT=kind, **cut.options
            )
        else:
            convolve_back[(-(-pixels // block),)](
                *tensors, pixels, norm.eps, **size_of(y), **self.trunk.shape(i), SHORTCUT=kind, BLOCK=block
            )
        return found

    def through_norm(self, i: int, du: Tensor) -> Tensor:
        norm = self.trunk.layers[i].norm
        dy, pixels, block = torch.empty_like(du), pixels_of(du), TILES[du.shape[3]].norm
        through_norm[(-(-pixels // block),)](
            du, self.y[i], dy, self._sums[i], self._gradient_sums[i], norm.weight, pixels, 1 / pixels, norm.eps,
            CHANNELS=du.shape[3], BLOCK=block,
        )  # fmt: skip
        return dy

    def weight_parts(self, i: int, dy: Tensor) -> None:
        layer, (count, each) = self.trunk.layers[i], self._layout.parts[i]
        start, end = self._layout.part_starts[i : i + 2]
        tensors = (self.x[i], dy, self._parts[start:end])
        if nine := self.trunk.nine_tiles(i):
            weight_parts_nine[(count, 3 // nine.shifts)](
                *tensors, pixels_of(dy), EACH=each, **size_of(dy), **self.trunk.channels(i), SHIFTS=nine.shifts,
                WIDE=layer.inputs * (4 if nine.shifts == 3 else 1), HIGH=4 * layer.outputs, BLOCK=nine.block,
                STAGES=nine.stages, num_warps=nine.warps,
            )  # fmt: skip
            return
        tiles = TILES[layer.outputs]
        weight_parts[(count, 9 // tiles.taps)](
            *tensors, pixels_of(dy), EACH=each, **size_of(dy), **self.trunk.shape(i), TAPS=tiles.taps,
            WIDE=layer.inputs * (4 if tiles.taps == 3 else 1), BLOCK=tiles.part_block,
        )  # fmt: skip

    def gradients(self) -> list[Tensor]:
        flat = self._parts.new_empty(self._layout.size)
        parts, norms = self._layout.part_table, self._layout.norm_table
        add_up_parts[(len(parts),)](self._parts, parts, flat, BLOCK=TABLE_BLOCK)
        norm_gradients[(len(norms),)](self._flat_gradient_sums, norms, flat, CHANNELS=max(TILES))
        return self._layout.views(flat)
