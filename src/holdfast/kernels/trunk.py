"""A CIFAR ResNet carried out by the fused kernels: the same parameters and arithmetic, fewer passes over memory."""

import torch
from torch import Tensor
from torch.nn import functional as F

from holdfast.backbones.resnet_cifar import CifarResNet
from holdfast.errors import HoldfastError
from holdfast.kernels.forward import convolve_frozen
from holdfast.kernels.forward_rows import convolve_frozen_rows
from holdfast.kernels.kernel_arguments import given_or, pixels_of, shortcut_kind, size_of
from holdfast.kernels.layers import LEAST_CHANNELS, TILES, GradientLayout, layers_of
from holdfast.kernels.reach import REACH
from holdfast.kernels.strips import BY_ROWS, FORWARD_ROWS, NINE_TAPS, NineTiles, RowTiles, Strips, strips
from holdfast.kernels.trunk_pass import Pass


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
