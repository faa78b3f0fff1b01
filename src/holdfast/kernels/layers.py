"""Where everything of a CIFAR ResNet lies: its layers in order, and the flat buffers their sums and gradients share."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from holdfast.backbones.resnet_cifar import CifarResNet
from holdfast.kernels.sums import COPIES

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
