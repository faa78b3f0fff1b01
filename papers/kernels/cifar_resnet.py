"""A CIFAR ResNet computed by fused kernels: the same parameters and arithmetic, fewer passes over memory.

Activations are N x H x W x C. Sums and gradients of all layers are in flat buffers, which two kernels fill at the
end of the backward pass.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from holdfast.core.errors import HoldfastError
from holdfast.train.encoders.resnet import CifarResNet
from papers.kernels.convolution import (
    convolve,
    convolve_backward,
    convolve_eval,
    mean_backward,
    norm_backward,
    norm_gradients,
    normalise,
    sum_parts,
    weight_parts,
    weight_parts_nine,
)
from papers.kernels.convolution_rows import (
    BACKWARD_ROWS,
    BY_ROWS,
    FORWARD_ROWS,
    NINE_TAPS,
    NineTiles,
    RowGrid,
    RowTiles,
    convolve_backward_rows,
    convolve_eval_rows,
    convolve_rows,
    row_grid,
)
from papers.kernels.sums import COPIES, MAX_ELEMENTS

LEAST_CHANNELS = 16
"""A matrix product needs at least 16 rows; the image's three channels are padded with zeros."""

TABLE_BLOCK = 256
"""Weights that one program adds up."""


@dataclass(frozen=True)
class Tiles:
    """Sizes of the programs for layers of one width; measured on an H200 (docs/results/kernels.md).

    convolve, backward, norm: pixels per program.
    parts: into how many parts the weights' gradient is divided at most, each in steps of ``part_block`` pixels.
    taps: taps per program of the weights' gradient.
    """

    convolve: int
    backward: int
    norm: int
    parts: int
    part_block: int
    taps: int


TILES = {
    16: Tiles(convolve=256, backward=256, norm=256, parts=88, part_block=128, taps=3),
    32: Tiles(convolve=256, backward=128, norm=128, parts=64, part_block=64, taps=3),
    64: Tiles(convolve=64, backward=64, norm=64, parts=32, part_block=64, taps=1),
}


@dataclass(frozen=True)
class Layer:
    """A 3 x 3 convolution and its batch norm; ``shrink``: height of the image divided by that of its output."""

    weight: Tensor
    norm: nn.BatchNorm2d
    stride: int
    shrink: int

    @property
    def inputs(self) -> int:
        return max(LEAST_CHANNELS, self.weight.shape[1])

    @property
    def outputs(self) -> int:
        return self.weight.shape[0]

    @property
    def size(self) -> int:
        """Number of its weights, with padding."""
        return self.outputs * 9 * self.inputs

    @property
    def sums(self) -> int:
        """Number of int64 that its two sums per channel take."""
        return 2 * int(COPIES) * self.outputs

    def parts(self, images: int, height: int, width: int, most: int, block: int) -> tuple[int, int]:
        """Number of parts of the weights' gradient, at most ``most``, and pixels of each, a multiple of ``block``."""
        pixels = images * (height // self.shrink) * (width // self.shrink)
        each = rounded_up(rounded_up(pixels, most) // most, block)
        return rounded_up(pixels, each) // each, each


def rounded_up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple


def starts(sizes: list[int]) -> list[int]:
    """The offset of each piece in a buffer that holds them one after the other, and the buffer's size."""
    found = [0]
    for size in sizes:
        found.append(found[-1] + size)
    return found


def layers_of(network: CifarResNet) -> list[Layer]:
    """The stem, then two layers for every block."""
    layers = [Layer(network.conv1.weight, network.bn1, 1, 1)]
    shrink = 1
    for block in network.blocks():
        shrink *= block.stride
        layers.append(Layer(block.conv1.weight, block.bn1, block.stride, shrink))
        layers.append(Layer(block.conv2.weight, block.bn2, 1, shrink))
    return layers


class GradientLayout:
    """The layout of a flat buffer for all gradients of one batch shape, and the tables by which two kernels fill it.

    limits: per layer, the largest number of parts of its weights' gradient, and the step of a part in pixels.
    """

    def __init__(
        self, layers: list[Layer], shape: tuple[int, int, int], limits: list[tuple[int, int]], device: torch.device
    ) -> None:
        self._layers = layers
        self._weights = starts([layer.size for layer in layers])
        self._norms = [self._weights[-1] + at for at in starts([2 * layer.outputs for layer in layers])]
        self.size = self._norms[-1]
        self.parts = [layer.parts(*shape, *limit) for layer, limit in zip(layers, limits)]
        self.part_starts = starts([n * layer.size for layer, (n, _) in zip(layers, self.parts)])
        rows = []
        for i, layer in enumerate(layers):
            for begin in range(0, layer.size, TABLE_BLOCK):
                block = min(TABLE_BLOCK, layer.size - begin)
                source, target = self.part_starts[i] + begin, self._weights[i] + begin
                rows.append((source, self.parts[i][0], layer.size, target, block))
        self.part_table = torch.tensor(rows, device=device)
        sums = starts([layer.sums for layer in layers])
        norms = [(s, layer.outputs, n, n + layer.outputs) for layer, s, n in zip(layers, sums, self._norms)]
        self.norm_table = torch.tensor(norms, device=device)

    def views(self, flat: Tensor) -> list[Tensor]:
        """The gradients of each layer's weight, norm weight and norm bias, in their memory layout.

        With the same strides as the parameter, autograd does not copy a gradient.
        """
        found = []
        for layer, at, norm in zip(self._layers, self._weights, self._norms):
            weight = flat[at : at + layer.size].view(layer.outputs, 3, 3, layer.inputs).permute(0, 3, 1, 2)
            found.append(weight[:, : layer.weight.shape[1]])
            found.append(flat[norm : norm + layer.outputs])
            found.append(flat[norm + layer.outputs : norm + 2 * layer.outputs])
        return found


class FusedCifarResNet:
    """Images N x 3 x H x W -> features N x 64 in float32, as ``CifarResNet`` computes them under bf16 autocast.

    network: its parameters are read at every call; in training mode its running statistics are updated, and gradients
        reach its parameters through autograd.
    dtype: of the activations.
    by_rows: whether convolutions go row by row if they can (``convolution_rows``) and weights' gradients compute nine
        taps at once, instead of tap by tap.

    H and W must be multiples of 4. Not supported: norms in another mode than the network, gradients in evaluation mode,
    gradients of the images.
    """

    def __init__(
        self,
        network: CifarResNet,
        dtype: torch.dtype = torch.bfloat16,
        by_rows: bool = BY_ROWS,
    ) -> None:
        self._network = network
        self.dtype = dtype
        self._by_rows = by_rows
        self.layers = layers_of(network)
        self.parameters = [p for layer in self.layers for p in (layer.weight, layer.norm.weight, layer.norm.bias)]
        stem = self.layers[0].weight
        padded = (stem.shape[0], LEAST_CHANNELS, 3, 3)
        self._stem = torch.zeros(padded, dtype=dtype, device=stem.device).to(memory_format=torch.channels_last)
        self._rest = [torch.empty_like(layer.weight, dtype=dtype) for layer in self.layers[1:]]
        self.packed = [self._stem, *self._rest]
        self._seen = [count for layer in self.layers if (count := layer.norm.num_batches_tracked) is not None]
        self._layouts: dict[tuple[int, int, int], GradientLayout] = {}

    def __call__(self, x: Tensor) -> Tensor:
        _refuse_too_many(x)
        self._refuse_mixed_modes()
        self._refuse_lost_gradients(x)
        with torch.no_grad():
            self._stem[:, : x.shape[1]].copy_(self.layers[0].weight)
            torch._foreach_copy_(self._rest, [layer.weight for layer in self.layers[1:]])
            x = F.pad(x.to(self.dtype).permute(0, 2, 3, 1), (0, LEAST_CHANNELS - x.shape[1])).contiguous()
            if not self._network.training:
                return self._frozen(x)
            torch._foreach_add_(self._seen, 1)
        features: Tensor = _TrainingPass.apply(x, self, *self.parameters)
        return features

    def layout(self, x: Tensor) -> GradientLayout:
        shape = (x.shape[0], x.shape[1], x.shape[2])
        if shape not in self._layouts:
            nine = [self.nine_tiles(i) for i in range(len(self.layers))]
            taps = [TILES[layer.outputs] for layer in self.layers]
            limits = [(n.parts, n.block) if n else (t.parts, t.part_block) for n, t in zip(nine, taps)]
            self._layouts[shape] = GradientLayout(self.layers, shape, limits, x.device)
        return self._layouts[shape]

    def output(self, i: int, x: Tensor) -> Tensor:
        """An empty tensor for the output of layer i on x."""
        layer = self.layers[i]
        shape = (x.shape[0], x.shape[1] // layer.stride, x.shape[2] // layer.stride, layer.outputs)
        return torch.empty(shape, dtype=self.dtype, device=x.device)

    def shape(self, i: int) -> dict[str, int]:
        layer = self.layers[i]
        return {"STRIDE": layer.stride, "INPUTS": layer.inputs, "OUTPUTS": layer.outputs}

    def row_grid(self, i: int, tiles: dict[int, RowTiles], y: Tensor) -> RowGrid | None:
        """The launch of layer i row by row, with y as its output; None if it goes tap by tap."""
        return row_grid(tiles, self.layers[i].stride, y) if self._by_rows else None

    def nine_tiles(self, i: int) -> NineTiles | None:
        """Sizes for the gradient of all nine taps of layer i at once; None if it computes one or three at a time."""
        layer = self.layers[i]
        return NINE_TAPS.get(layer.outputs) if self._by_rows and layer.stride == 1 else None

    def channels(self, i: int) -> dict[str, int]:
        return {"INPUTS": self.layers[i].inputs, "OUTPUTS": self.layers[i].outputs}

    def _refuse_mixed_modes(self) -> None:
        training = self._network.training
        others = sum(layer.norm.training != training for layer in self.layers)
        if others:
            mode, other = ("training", "evaluation") if training else ("evaluation", "training")
            raise HoldfastError(
                f"{others} norms are in {other} mode and the network in {mode} mode, which the kernels do not support; "
                "call train() or eval() on the whole network"
            )

    def _refuse_lost_gradients(self, x: Tensor) -> None:
        if not torch.is_grad_enabled():
            return
        if x.requires_grad:
            raise HoldfastError("the kernels do not compute gradients of the images; detach them")
        if not self._network.training and any(parameter.requires_grad for parameter in self.parameters):
            raise HoldfastError(
                "the kernels compute no gradients in evaluation mode; call the network under torch.no_grad() or train()"
            )

    def _frozen(self, x: Tensor) -> Tensor:
        out = self._frozen_layer(0, x, None)
        for i in range(1, len(self.layers), 2):
            out = self._frozen_layer(i + 1, self._frozen_layer(i, out, None), out)
        return out.flatten(1, 2).mean(1, dtype=torch.float32)

    def _frozen_layer(self, i: int, x: Tensor, shortcut: Tensor | None) -> Tensor:
        out, norm = self.output(i, x), self.layers[i].norm
        tensors = (x, self.packed[i], out, or_dummy(shortcut, out))
        known = (norm.weight, norm.bias, norm.running_mean, norm.running_var)
        kind = shortcut_kind(shortcut, out)
        if rows := self.row_grid(i, FORWARD_ROWS, out):
            convolve_eval_rows[rows.grid](
                *tensors, *known, len(out), norm.eps, **self.channels(i), SHORTCUT=kind, **rows.options
            )
            return out
        pixels, block = pixels_of(out), TILES[out.shape[3]].convolve
        convolve_eval[(-(-pixels // block),)](
            *tensors, *known, pixels, norm.eps, **size_of(out), **self.shape(i), SHORTCUT=kind, BLOCK=block
        )
        return out


def _refuse_too_many(x: Tensor) -> None:
    """The largest tensors of the network are its first layer's input and output."""
    most = MAX_ELEMENTS // (LEAST_CHANNELS * x.shape[2] * x.shape[3])
    if len(x) > most:
        size = f"{x.shape[2]} x {x.shape[3]}"
        raise HoldfastError(f"{len(x)} images of {size} at once are too many for the kernels; take at most {most}")


class _TrainingPass(torch.autograd.Function):
    """The network in training mode. ``_PassState`` holds the tensors for one backward pass."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, resnet: "FusedCifarResNet", *parameters: Tensor) -> Tensor:
        ctx.state = state = _PassState(resnet, x)
        out = state.layer(0, x, shortcut=None)
        for i in range(1, len(resnet.layers), 2):
            out = state.layer(i + 1, state.layer(i, out, shortcut=None), shortcut=out)
        return out.flatten(1, 2).mean(1, dtype=torch.float32)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        # Freed now, not with the graph, which lives until the end of the step: a second view may follow.
        state, ctx.state = ctx.state, None
        if state is None:
            raise RuntimeError(
                "second backward pass through a fused network: the first one freed its tensors, also with "
                "retain_graph=True; call the network again"
            )
        last = len(state.resnet.layers) - 1
        du = state.mean_backward(last, gradients[0])
        for i in range(last - 1, 0, -2):
            inner = state.layer_backward(i + 1, du, shortcut_du=None)
            du = state.layer_backward(i, inner, shortcut_du=du)
        state.weight_parts(0, state.norm_backward(0, du))
        return (None, None, *state.gradients())


class _PassState:
    """The tensors of one pass. Of layer i: ``x`` its input, ``y`` before its norm, ``out`` after norm and ReLU."""

    def __init__(self, resnet: "FusedCifarResNet", image: Tensor) -> None:
        self.resnet = resnet
        self.x: dict[int, Tensor] = {}
        self.y: dict[int, Tensor] = {}
        self.out: dict[int, Tensor] = {}
        self._sizes = [layer.sums for layer in resnet.layers]
        self._flat_sums = image.new_zeros(starts(self._sizes)[-1], dtype=torch.int64)
        self._sums = self._flat_sums.split(self._sizes)
        self._layout = resnet.layout(image)

    def layer(self, i: int, x: Tensor, *, shortcut: Tensor | None) -> Tensor:
        """relu(bn(conv(x)) + shortcut)"""
        norm, self.x[i] = self.resnet.layers[i].norm, x
        y = self.y[i] = self.resnet.output(i, x)
        pixels, tiles = pixels_of(y), TILES[y.shape[3]]
        tensors = (x, self.resnet.packed[i], y, self._sums[i])
        if rows := self.resnet.row_grid(i, FORWARD_ROWS, y):
            convolve_rows[rows.grid](*tensors, len(y), 1 / pixels, **self.resnet.channels(i), **rows.options)
        else:
            convolve[(-(-pixels // tiles.convolve),)](
                *tensors, pixels, 1 / pixels, **size_of(y), **self.resnet.shape(i), BLOCK=tiles.convolve
            )
        out = self.out[i] = torch.empty_like(y)
        normalise[(-(-pixels // tiles.norm),)](
            y, or_dummy(shortcut, y), out, self._sums[i], norm.weight, norm.bias, norm.running_mean, norm.running_var,
            pixels, 1 / pixels, norm.eps, norm.momentum, **size_of(y), CHANNELS=y.shape[3],
            SHORTCUT=shortcut_kind(shortcut, y), BLOCK=tiles.norm,
        )  # fmt: skip
        return out

    def mean_backward(self, i: int, gradient: Tensor) -> Tensor:
        y = self.y[i]
        self._flat_gradient_sums = torch.zeros_like(self._flat_sums)
        self._gradient_sums = self._flat_gradient_sums.split(self._sizes)
        self._parts = y.new_empty(self._layout.part_starts[-1], dtype=torch.float32)
        du, pixels, block = torch.empty_like(y), pixels_of(y), TILES[y.shape[3]].norm
        mean_backward[(-(-pixels // block),)](
            gradient.contiguous(), self.out[i], y, self._sums[i], du, self._gradient_sums[i], pixels,
            self.resnet.layers[i].norm.eps, POSITIONS=y.shape[1] * y.shape[2], CHANNELS=y.shape[3], BLOCK=block,
        )  # fmt: skip
        return du

    def layer_backward(self, i: int, du: Tensor, *, shortcut_du: Tensor | None) -> Tensor:
        """du of layer i - 1 from that of layer i, and the gradient of layer i's weights."""
        dy = self.norm_backward(i, du)
        self.weight_parts(i, dy)
        y, norm = self.y[i - 1], self.resnet.layers[i - 1].norm
        found, pixels, block = torch.empty_like(y), pixels_of(y), TILES[y.shape[3]].backward
        tensors = (
            dy, self.resnet.packed[i], or_dummy(shortcut_du, dy), y, self.out[i - 1], self._sums[i - 1],
            norm.weight, norm.bias, found, self._gradient_sums[i - 1],
        )  # fmt: skip
        kind = shortcut_kind(shortcut_du, y)
        if rows := self.resnet.row_grid(i, BACKWARD_ROWS, y):
            convolve_backward_rows[rows.grid](
                *tensors, len(y), norm.eps, **self.resnet.channels(i), SHORTCUT=kind, **rows.options
            )
        else:
            convolve_backward[(-(-pixels // block),)](
                *tensors, pixels, norm.eps, **size_of(y), **self.resnet.shape(i), SHORTCUT=kind, BLOCK=block
            )
        return found

    def norm_backward(self, i: int, du: Tensor) -> Tensor:
        norm = self.resnet.layers[i].norm
        dy, pixels, block = torch.empty_like(du), pixels_of(du), TILES[du.shape[3]].norm
        norm_backward[(-(-pixels // block),)](
            du, self.y[i], dy, self._sums[i], self._gradient_sums[i], norm.weight, pixels, 1 / pixels, norm.eps,
            CHANNELS=du.shape[3], BLOCK=block,
        )  # fmt: skip
        return dy

    def weight_parts(self, i: int, dy: Tensor) -> None:
        layer, (count, each) = self.resnet.layers[i], self._layout.parts[i]
        start, end = self._layout.part_starts[i : i + 2]
        tensors = (self.x[i], dy, self._parts[start:end])
        if nine := self.resnet.nine_tiles(i):
            weight_parts_nine[(count, 3 // nine.shifts)](
                *tensors, pixels_of(dy), EACH=each, **size_of(dy), **self.resnet.channels(i), SHIFTS=nine.shifts,
                WIDE=layer.inputs * (4 if nine.shifts == 3 else 1), HIGH=4 * layer.outputs, BLOCK=nine.block,
                STAGES=nine.stages, num_warps=nine.warps,
            )  # fmt: skip
            return
        tiles = TILES[layer.outputs]
        weight_parts[(count, 9 // tiles.taps)](
            *tensors, pixels_of(dy), EACH=each, **size_of(dy), **self.resnet.shape(i), TAPS=tiles.taps,
            WIDE=layer.inputs * (4 if tiles.taps == 3 else 1), BLOCK=tiles.part_block,
        )  # fmt: skip

    def gradients(self) -> list[Tensor]:
        flat = self._parts.new_empty(self._layout.size)
        parts, norms = self._layout.part_table, self._layout.norm_table
        sum_parts[(len(parts),)](self._parts, parts, flat, BLOCK=TABLE_BLOCK)
        norm_gradients[(len(norms),)](self._flat_gradient_sums, norms, flat, CHANNELS=max(TILES))
        return self._layout.views(flat)


def pixels_of(x: Tensor) -> int:
    return x.numel() // x.shape[3]


def size_of(x: Tensor) -> dict[str, int]:
    return {"HEIGHT": x.shape[1], "WIDTH": x.shape[2]}


def or_dummy(tensor: Tensor | None, anything: Tensor) -> Tensor:
    """The tensor, or another one for an argument that the kernel does not read."""
    return anything if tensor is None else tensor


def shortcut_kind(shortcut: Tensor | None, y: Tensor) -> str:
    if shortcut is None:
        return "none"
    return "same" if shortcut.shape == y.shape else "half"
