"""A CIFAR ResNet carried out by the fused kernels: the same parameters and arithmetic, fewer passes over memory.

One pass of a CIFAR ResNet in training mode, and the way back.

Where everything of a CIFAR ResNet lies: its layers in order, and the flat buffers their sums and gradients share.

What a kernel is told of an activation N x H x W x C, and of a shortcut that may not be there.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from holdfast.encoders.resnet import CifarResNet
from holdfast.errors import HoldfastError
from holdfast.training.kernels.convolution import (
    add_up_parts,
    convolve,
    convolve_back,
    convolve_frozen,
    norm_gradients,
    normalise,
    spread_mean,
    through_norm,
    weight_parts,
    weight_parts_nine,
)
from holdfast.training.kernels.convolution_rows import (
    BACK_ROWS,
    BY_ROWS,
    FORWARD_ROWS,
    NINE_TAPS,
    NineTiles,
    RowTiles,
    Strips,
    convolve_back_rows,
    convolve_frozen_rows,
    convolve_rows,
    strips,
)
from holdfast.training.kernels.sums import COPIES, REACH

LEAST_CHANNELS = 16
"""A matrix product takes 16 rows at least; the image's three channels are padded with zeros."""

TABLE_BLOCK = 256
"""Weights that one program adds up."""


@dataclass(frozen=True)
class Tiles:
    """How the work on one width of layer is cut; measured on an H200 (bench/README.md).

    convolve, back, norm: pixels per program. parts: into how many parts the weights' gradient is cut, at most, each of
    steps of ``part_block`` pixels; taps: how many taps a program of it takes.
    """

    convolve: int
    back: int
    norm: int
    parts: int
    part_block: int
    taps: int


TILES = {
    16: Tiles(convolve=256, back=256, norm=256, parts=88, part_block=128, taps=3),
    32: Tiles(convolve=256, back=128, norm=128, parts=64, part_block=64, taps=3),
    64: Tiles(convolve=64, back=64, norm=64, parts=32, part_block=64, taps=1),
}


@dataclass(frozen=True)
class Layer:
    """A 3 x 3 convolution and its batch norm; ``shrink``: how much smaller its output is than the image."""

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
        """Of its weights, padded."""
        return self.outputs * 9 * self.inputs

    @property
    def sums(self) -> int:
        """How many numbers its two sums per channel take."""
        return 2 * int(COPIES) * self.outputs

    def parts(self, images: int, height: int, width: int, most: int, block: int) -> tuple[int, int]:
        """How many parts the weights' gradient has, at most ``most``, and the pixels of each, a multiple of block."""
        pixels = images * (height // self.shrink) * (width // self.shrink)
        each = rounded_up(rounded_up(pixels, most) // most, block)
        return rounded_up(pixels, each) // each, each


def rounded_up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple


def starts(sizes: list[int]) -> list[int]:
    """Where each of several pieces begins in a buffer that holds them one behind the other, and its end."""
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
    """One flat buffer for all gradients of a batch shape, and the tables by which two kernels fill it.

    cuts: of each layer, into how many parts its weights' gradient is cut at most, and the step of a part in pixels.
    """

    def __init__(
        self, layers: list[Layer], shape: tuple[int, int, int], cuts: list[tuple[int, int]], device: torch.device
    ) -> None:
        self._layers = layers
        self._weights = starts([layer.size for layer in layers])
        self._norms = [self._weights[-1] + at for at in starts([2 * layer.outputs for layer in layers])]
        self.size = self._norms[-1]
        self.parts = [layer.parts(*shape, *cut) for layer, cut in zip(layers, cuts)]
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
        """The gradients of each layer's weight, norm weight and norm bias, laid out as the parameters are.

        The same strides matter: autograd then keeps a gradient as it is instead of copying it.
        """
        found = []
        for layer, at, norm in zip(self._layers, self._weights, self._norms):
            weight = flat[at : at + layer.size].view(layer.outputs, 3, 3, layer.inputs).permute(0, 3, 1, 2)
            found.append(weight[:, : layer.weight.shape[1]])
            found.append(flat[norm : norm + layer.outputs])
            found.append(flat[norm + layer.outputs : norm + 2 * layer.outputs])
        return found


class FusedTrunk:
    """Images N x 3 x H x W -> features N x 64 in float32, as ``CifarResNet`` gives them under bf16 autocast.

    Reads the network's parameters at every call and, in training mode, updates what its norms remember. H and W must
    be multiples of 4. In training mode gradients reach the parameters through autograd, as always. Refused: norms in
    another mode than the network's, and to ask for gradients in evaluation or for those of the images.
    dtype: of the activations; by_rows: whether convolutions go row by row where they can (``rows.py``) and their
    weights' gradients take nine taps at once (``weights_nine.py``), instead of tap by tap.
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
        room = (stem.shape[0], LEAST_CHANNELS, 3, 3)
        self._stem = torch.zeros(room, dtype=dtype, device=stem.device).to(memory_format=torch.channels_last)
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
        features: Tensor = Pass.apply(x, self, *self.parameters)
        return features

    def layout(self, x: Tensor) -> GradientLayout:
        shape = (x.shape[0], x.shape[1], x.shape[2])
        if shape not in self._layouts:
            nine = [self.nine_tiles(i) for i in range(len(self.layers))]
            taps = [TILES[layer.outputs] for layer in self.layers]
            cuts = [(n.parts, n.block) if n else (t.parts, t.part_block) for n, t in zip(nine, taps)]
            self._layouts[shape] = GradientLayout(self.layers, shape, cuts, x.device)
        return self._layouts[shape]

    def output(self, i: int, x: Tensor) -> Tensor:
        """Room for what layer i makes of x."""
        layer = self.layers[i]
        shape = (x.shape[0], x.shape[1] // layer.stride, x.shape[2] // layer.stride, layer.outputs)
        return torch.empty(shape, dtype=self.dtype, device=x.device)

    def shape(self, i: int) -> dict[str, int]:
        layer = self.layers[i]
        return {"STRIDE": layer.stride, "INPUTS": layer.inputs, "OUTPUTS": layer.outputs}

    def strips(self, i: int, tiles: dict[int, RowTiles], y: Tensor) -> Strips | None:
        """How layer i goes row by row over y, which has a pixel for each of its results; None: tap by tap."""
        return strips(tiles, self.layers[i].stride, y) if self._by_rows else None

    def nine_tiles(self, i: int) -> NineTiles | None:
        """How layer i's gradient of all nine taps at once is cut; None: a row of taps or one after the other."""
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
                f"{others} norms are in {other} mode and the network in {mode} mode, which the kernels cannot do; "
                "call train() or eval() on the whole network"
            )

    def _refuse_lost_gradients(self, x: Tensor) -> None:
        if not torch.is_grad_enabled():
            return
        if x.requires_grad:
            raise HoldfastError("the kernels find no gradient of the images; detach them")
        if not self._network.training and any(parameter.requires_grad for parameter in self.parameters):
            raise HoldfastError(
                "the kernels find no gradients in evaluation mode; call the network under torch.no_grad() or train it"
            )

    def _frozen(self, x: Tensor) -> Tensor:
        out = self._frozen_layer(0, x, None)
        for i in range(1, len(self.layers), 2):
            out = self._frozen_layer(i + 1, self._frozen_layer(i, out, None), out)
        return out.flatten(1, 2).mean(1, dtype=torch.float32)

    def _frozen_layer(self, i: int, x: Tensor, shortcut: Tensor | None) -> Tensor:
        out, norm = self.output(i, x), self.layers[i].norm
        tensors = (x, self.packed[i], out, given_or(shortcut, out))
        known = (norm.weight, norm.bias, norm.running_mean, norm.running_var)
        kind = shortcut_kind(shortcut, out)
        if cut := self.strips(i, FORWARD_ROWS, out):
            convolve_frozen_rows[cut.grid](
                *tensors, *known, len(out), norm.eps, **self.channels(i), SHORTCUT=kind, **cut.options
            )
            return out
        pixels, block = pixels_of(out), TILES[out.shape[3]].convolve
        convolve_frozen[(-(-pixels // block),)](
            *tensors, *known, pixels, norm.eps, **size_of(out), **self.shape(i), SHORTCUT=kind, BLOCK=block
        )
        return out


def _refuse_too_many(x: Tensor) -> None:
    """Nothing in the network is larger than its first layer's input and output."""
    most = REACH // (LEAST_CHANNELS * x.shape[2] * x.shape[3])
    if len(x) > most:
        size = f"{x.shape[2]} x {x.shape[3]}"
        raise HoldfastError(f"{len(x)} images of {size} at once are too many for the kernels; take {most} at most")


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


def pixels_of(x: Tensor) -> int:
    return x.numel() // x.shape[3]


def size_of(x: Tensor) -> dict[str, int]:
    return {"HEIGHT": x.shape[1], "WIDTH": x.shape[2]}


def given_or(tensor: Tensor | None, anything: Tensor) -> Tensor:
    """A kernel's argument that it does not read must be a tensor all the same."""
    return anything if tensor is None else tensor


def shortcut_kind(shortcut: Tensor | None, y: Tensor) -> str:
    if shortcut is None:
        return "none"
    return "same" if shortcut.shape == y.shape else "half"
