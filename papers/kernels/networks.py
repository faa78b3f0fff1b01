"""Networks with batch norms, ReLUs, sums, squeeze-excitation, grouped convolutions and stems computed by the kernels.

All other layers are computed by torch. Weights are cast to bf16 together, and so are their gradients back to float32:
a few kernel launches instead of two per weight.
"""

from collections.abc import Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from holdfast.train.encoders.resnet import BasicBlock, Bottleneck, ResNet
from papers.kernels.batch_norm import (
    PreallocatedNorm,
    convolution_batch_norm,
    fused_batch_norm,
    sums_size,
)
from papers.kernels.grouped_convolution import GROUP_WIDTH, grouped_convolution
from papers.kernels.squeeze_excite import batch_norm_squeeze_excite, squeeze_excite_add
from papers.kernels.stem import is_stem, max_pool, stem_convolution
from papers.networks.squeeze_excite import PreActivationBlock, RegNetY, SENet, YBlock


class FusedNetwork:
    """Computes ``network(x)``, under bf16 autocast if ``dtype`` is bf16.

    Parameters, statistics and modes are read from ``network`` at every call. Layers with kernels and the modules above
    them (``FUSED_MODULES``) are replaced by copies that share its state. Casting the weights and counting the batches
    is done for all layers at once: for a RegNetY-400MF that replaces 160 and 71 small kernels in the forward pass and
    160 in the backward pass.
    """

    def __init__(self, network: nn.Module, dtype: torch.dtype = torch.bfloat16) -> None:
        self._dtype = dtype
        self._layers: list[tuple[nn.Module, nn.Module]] = []
        self._norms: list[tuple[nn.BatchNorm2d, PreallocatedNorm]] = []
        self._network = self._replaced(network)

    def __call__(self, x: Tensor) -> Tensor:
        reduced = self._dtype != torch.float32
        parameters = [(one, own, name) for own, one in self._layers for name, _ in own.named_parameters()]
        casts = cast_together([getattr(own, name) for _, own, name in parameters], self._dtype)
        for (one, _, name), cast in zip(parameters, casts):
            one._parameters[name] = cast  # type: ignore[assignment]
        self._count_batch()
        self._allocate_sums(x)
        with torch.autocast(x.device.type, self._dtype if reduced else None, enabled=reduced, cache_enabled=False):
            features: Tensor = self._network(x)
        for one, own, name in parameters:  # otherwise the graph of this call would live until the next
            one._parameters[name] = own._parameters[name]
        for _, norm in self._norms:
            norm.sums_buffer = None
        return features

    def _count_batch(self) -> None:
        """Count the batch for all norms in training at once."""
        for own, one in self._norms:
            one.training = own.training
            one._buffers = own._buffers | {"num_batches_tracked": None}
        counts = [own.num_batches_tracked for own, _ in self._norms if own.training]
        if present := [count for count in counts if count is not None]:
            torch._foreach_add_(present, 1)

    def _allocate_sums(self, x: Tensor) -> None:
        """One buffer of zeros for the sums of all norms in training; a new one for each call, for its backward pass."""
        norms = [one for _, one in self._norms if one.training]
        if norms:
            sizes = [sums_size(one) for one in norms]
            for one, buffer in zip(norms, x.new_zeros(sum(sizes), dtype=torch.int64).split(sizes)):
                one.sums_buffer = buffer

    def _replaced(self, module: nn.Module) -> nn.Module:
        if isinstance(module, nn.Conv2d) and is_grouped(module):
            self._layers.append((module, _Grouped(module)))
            return self._layers[-1][1]
        if isinstance(module, nn.Conv2d) and is_stem(module):
            self._layers.append((module, _Stem(module)))
            return self._layers[-1][1]
        if isinstance(module, nn.Conv2d | nn.Linear):
            self._layers.append((module, _copy(module, type(module), _parameters=dict(module._parameters))))
            return self._layers[-1][1]
        if isinstance(module, nn.BatchNorm2d) and module.momentum is not None:  # a plain mean would need the count
            self._norms.append((module, _copy(module, PreallocatedNorm)))
            return self._norms[-1][1]
        children = {name: self._replaced(child) for name, child in module.named_children()}
        kind = FUSED_MODULES.get(type(module), type(module))
        return _copy(module, kind, _modules=module._modules | children) if children else module


Kind = TypeVar("Kind", bound=nn.Module)


def _copy(module: nn.Module, kind: type[Kind], **changed: Any) -> Kind:
    one = kind.__new__(kind)
    one.__dict__ = module.__dict__ | changed
    return one


class _Grouped(nn.Module):
    weight: Tensor

    def __init__(self, convolution: nn.Conv2d) -> None:
        super().__init__()
        self._parameters["weight"] = convolution._parameters["weight"]
        self._own = convolution

    def forward(self, x: Tensor) -> Tensor:
        own, cast = self._own, self.weight
        return grouped_convolution(x.to(cast.dtype), own.weight, own.stride[0], cast=cast)


class _Stem(nn.Module):
    weight: Tensor

    def __init__(self, convolution: nn.Conv2d) -> None:
        super().__init__()
        self._parameters["weight"] = convolution._parameters["weight"]

    def forward(self, x: Tensor) -> Tensor:
        return stem_convolution(x, self.weight)


def is_grouped(convolution: nn.Conv2d) -> bool:
    """Whether the kernels can compute it: 3 x 3, groups of 16 channels, stride 1 or 2, no bias."""
    return (
        convolution.groups > 1
        and convolution.in_channels == convolution.out_channels == GROUP_WIDTH * convolution.groups
        and convolution.kernel_size == (3, 3)
        and convolution.padding == (1, 1)
        and convolution.padding_mode == "zeros"
        and convolution.dilation == (1, 1)
        and convolution.stride in ((1, 1), (2, 2))
        and convolution.bias is None
    )


class FusedYBlock(YBlock):
    """``YBlock`` on pairs: input and output come twice, for the block's convolution and for the shortcut."""

    def forward(self, x: tuple[Tensor, ...]) -> tuple[Tensor, ...]:  # type: ignore[override]
        h, _ = fused_batch_norm(self.bn1, self.conv1(x[0]))
        h = batch_norm_squeeze_excite(self.bn2, self.weigh, self.conv2(h))
        residual = x[1] if self.shortcut is None else convolution_batch_norm(self.shortcut, x[1])[0]
        return fused_batch_norm(self.bn3, self.conv3(h), residual)


class FusedRegNet(RegNetY):
    """``RegNetY`` with fused blocks."""

    def forward(self, x: Tensor) -> Tensor:
        out = convolution_batch_norm(self.stem, x)
        for block in self.blocks:
            out = block(out)
        return out[0].mean(dim=(2, 3))


REGNET_MODULES: dict[type[nn.Module], type[nn.Module]] = {YBlock: FusedYBlock, RegNetY: FusedRegNet}


class FusedBasicBlock(BasicBlock):
    """``BasicBlock`` on pairs, as ``FusedYBlock``."""

    def forward(self, x: tuple[Tensor, ...]) -> tuple[Tensor, ...]:  # type: ignore[override]
        h, _ = fused_batch_norm(self.bn1, self.conv1(x[0]))
        return fused_batch_norm(self.bn2, self.conv2(h), _shortcut(self.downsample, x[1]))


class FusedBottleneck(Bottleneck):
    """``Bottleneck`` on pairs, as ``FusedYBlock``."""

    def forward(self, x: tuple[Tensor, ...]) -> tuple[Tensor, ...]:  # type: ignore[override]
        h, _ = fused_batch_norm(self.bn1, self.conv1(x[0]))
        h, _ = fused_batch_norm(self.bn2, self.conv2(h))
        return fused_batch_norm(self.bn3, self.conv3(h), _shortcut(self.downsample, x[1]))


class FusedResNet(ResNet):
    """``ResNet`` with fused blocks."""

    def forward(self, x: Tensor) -> Tensor:
        out = fused_batch_norm(self.bn1, self.conv1(x))
        if not isinstance(self.maxpool, nn.Identity):
            out = max_pool(self.maxpool, out[0])
        for stage in (self.layer1, self.layer2, self.layer3, self.layer4):
            out = stage(out)
        return out[0].mean(dim=(2, 3))


def _shortcut(downsample: nn.Sequential | None, x: Tensor) -> Tensor:
    return x if downsample is None else convolution_batch_norm(downsample, x)[0]


RESNET_MODULES: dict[type[nn.Module], type[nn.Module]] = {
    BasicBlock: FusedBasicBlock,
    Bottleneck: FusedBottleneck,
    ResNet: FusedResNet,
}


class FusedPreActivationBlock(PreActivationBlock):
    """``PreActivationBlock`` on pairs: input and output come twice, for the norm and for the shortcut."""

    def forward(self, x: tuple[Tensor, ...]) -> tuple[Tensor, ...]:  # type: ignore[override]
        h, same = fused_batch_norm(self.bn1, x[0])
        shortcut = x[1] if self.shortcut is None else self.shortcut(same)
        h, _ = fused_batch_norm(self.bn2, self.conv1(h))
        return squeeze_excite_add(self.weigh, self.conv2(h), shortcut)


class FusedSENet(SENet):
    """``SENet`` with fused blocks."""

    def forward(self, x: Tensor) -> Tensor:
        out = self.blocks((self.stem(x),) * 2)
        return fused_batch_norm(self.bn, out[0])[0].mean(dim=(2, 3))


SENET_MODULES: dict[type[nn.Module], type[nn.Module]] = {
    PreActivationBlock: FusedPreActivationBlock,
    SENet: FusedSENet,
}


FUSED_MODULES = REGNET_MODULES | RESNET_MODULES | SENET_MODULES


def cast_together(parameters: Sequence[Tensor], dtype: torch.dtype) -> tuple[Tensor, ...]:
    """Each parameter in ``dtype``, as autocast would cast it; those with four dimensions must be channels-last.

    A parameter without a gradient in ``dtype``, such as a weight with a gradient in float32, gets none from here.
    """
    if all(parameter.dtype == dtype for parameter in parameters):
        return tuple(parameters)
    casts: tuple[Tensor, ...] = _Cast.apply(dtype, *parameters)
    return casts


class _Cast(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, dtype: torch.dtype, *parameters: Tensor) -> tuple[Tensor, ...]:
        ctx.like = [(parameter.shape, parameter.stride(), parameter.dtype) for parameter in parameters]
        ctx.set_materialize_grads(False)
        flat = [parameters[0].new_empty(p.numel(), dtype=dtype) for p in parameters]
        torch._foreach_copy_(flat, [_flat(parameter) for parameter in parameters])
        return tuple(one.as_strided(p.shape, p.stride()) for one, p in zip(flat, parameters))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        found: list[Tensor | None] = [None] * len(gradients)
        given = [(i, gradient) for i, gradient in enumerate(gradients) if gradient is not None]
        flat = [gradient.new_empty(gradient.numel(), dtype=ctx.like[i][2]) for i, gradient in given]
        torch._foreach_copy_(flat, [_flat(gradient) for _, gradient in given])
        for (i, _), one in zip(given, flat):
            shape, stride, _ = ctx.like[i]
            found[i] = one.as_strided(shape, stride)
        return (None, *found)


def _flat(x: Tensor) -> Tensor:
    """In memory order, one dimension. A 1 x 1 kernel has several valid strides, and torch copies tensors with different
    strides one by one."""
    x = x.contiguous(memory_format=torch.channels_last) if x.ndim == 4 else x.contiguous()
    return x.as_strided((x.numel(),), (1,))
