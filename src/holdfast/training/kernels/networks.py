"""A network whose grouped convolutions and norms are carried out by the kernels, and all else by torch as before.

A RegNetY whose norms, sums, ReLUs and channel weights are carried out by the kernels.

A ResNet whose norms, sums and ReLUs are carried out by the kernels.

A SENet whose norms, ReLUs, channel weights and sums are carried out by the kernels.

Many parameters cast at once, and their gradients cast back at once: a few launches instead of two for each.
"""

from collections.abc import Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from holdfast.encoders.resnet import BasicBlock, Bottleneck, ResNet
from holdfast.encoders.squeeze_excite import PreActivationBlock, RegNetY, SENet, YBlock
from holdfast.training.kernels.batch_norm import RoomyNorm, convolved_and_normed, normed, room_for
from holdfast.training.kernels.grouped_convolution import GROUP_WIDTH, grouped_convolution
from holdfast.training.kernels.squeeze_excite import normed_and_weighed
from holdfast.training.kernels.squeeze_excite_sum import weighed_sum


class NormedYBlock(YBlock):
    """What ``YBlock`` gives, from its input and to its output twice: for the block's convolution and the shortcut."""

    def forward(self, x: tuple[Tensor, ...]) -> tuple[Tensor, ...]:  # type: ignore[override]
        h, _ = normed(self.bn1, self.conv1(x[0]))
        h = normed_and_weighed(self.bn2, self.weigh, self.conv2(h))
        residual = x[1] if self.shortcut is None else convolved_and_normed(self.shortcut, x[1])[0]
        return normed(self.bn3, self.conv3(h), residual)


class NormedRegNet(RegNetY):
    """What ``RegNetY`` gives, with blocks that stand in for its own."""

    def forward(self, x: Tensor) -> Tensor:
        out = convolved_and_normed(self.stem, x)
        for block in self.blocks:
            out = block(out)
        return out[0].mean(dim=(2, 3))


REGNET_MODULES: dict[type[nn.Module], type[nn.Module]] = {YBlock: NormedYBlock, RegNetY: NormedRegNet}


class NormedBasicBlock(BasicBlock):
    """What ``BasicBlock`` gives, from its input and to its output twice: for the convolution and the shortcut."""

    def forward(self, x: tuple[Tensor, ...]) -> tuple[Tensor, ...]:  # type: ignore[override]
        h, _ = normed(self.bn1, self.conv1(x[0]))
        return normed(self.bn2, self.conv2(h), _shortcut(self.downsample, x[1]))


class NormedBottleneck(Bottleneck):
    """What ``Bottleneck`` gives, as above."""

    def forward(self, x: tuple[Tensor, ...]) -> tuple[Tensor, ...]:  # type: ignore[override]
        h, _ = normed(self.bn1, self.conv1(x[0]))
        h, _ = normed(self.bn2, self.conv2(h))
        return normed(self.bn3, self.conv3(h), _shortcut(self.downsample, x[1]))


class NormedResNet(ResNet):
    """What ``ResNet`` gives, with blocks that stand in for its own."""

    def forward(self, x: Tensor) -> Tensor:
        out = normed(self.bn1, self.conv1(x))
        if not isinstance(self.maxpool, nn.Identity):
            out = (self.maxpool(out[0]),) * 2
        for stage in (self.layer1, self.layer2, self.layer3, self.layer4):
            out = stage(out)
        return out[0].mean(dim=(2, 3))


def _shortcut(downsample: nn.Sequential | None, x: Tensor) -> Tensor:
    return x if downsample is None else convolved_and_normed(downsample, x)[0]


RESNET_MODULES: dict[type[nn.Module], type[nn.Module]] = {
    BasicBlock: NormedBasicBlock,
    Bottleneck: NormedBottleneck,
    ResNet: NormedResNet,
}


class NormedPreActivationBlock(PreActivationBlock):
    """What ``PreActivationBlock`` gives, from its input and to its output twice: for the norm and the shortcut."""

    def forward(self, x: tuple[Tensor, ...]) -> tuple[Tensor, ...]:  # type: ignore[override]
        h, same = normed(self.bn1, x[0])
        shortcut = x[1] if self.shortcut is None else self.shortcut(same)
        h, _ = normed(self.bn2, self.conv1(h))
        return weighed_sum(self.weigh, self.conv2(h), shortcut)


class NormedSENet(SENet):
    """What ``SENet`` gives, with blocks that stand in for its own."""

    def forward(self, x: Tensor) -> Tensor:
        out = self.blocks((self.stem(x),) * 2)
        return normed(self.bn, out[0])[0].mean(dim=(2, 3))


SENET_MODULES: dict[type[nn.Module], type[nn.Module]] = {
    PreActivationBlock: NormedPreActivationBlock,
    SENet: NormedSENet,
}


FUSED_MODULES = REGNET_MODULES | RESNET_MODULES | SENET_MODULES


class NormedNetwork:
    """What ``network(x)`` gives, under bf16 autocast where ``dtype`` is bf16.

    Parameters, statistics and the modes of norms are the network's own, as they are at every call; layers that need
    something else, and the modules above them, are stood in for. Besides the grouped convolutions and what lies around
    the norms (``STANDS_IN``) that is what casts weights and counts batches: of such small kernels a RegNetY-400MF would
    launch 160 and 71, and 160 on the way back.
    """

    def __init__(self, network: nn.Module, dtype: torch.dtype = torch.bfloat16) -> None:
        self._dtype = dtype
        self._layers: list[tuple[nn.Module, nn.Module]] = []
        self._norms: list[tuple[nn.BatchNorm2d, RoomyNorm]] = []
        self._network = self._stand_in(network)

    def __call__(self, x: Tensor) -> Tensor:
        reduced = self._dtype != torch.float32
        places = [(one, own, name) for own, one in self._layers for name, _ in own.named_parameters()]
        casts = cast_together([getattr(own, name) for _, own, name in places], self._dtype)
        for (one, _, name), cast in zip(places, casts):
            one._parameters[name] = cast  # type: ignore[assignment]
        self._count_batch()
        self._make_room(x)
        with torch.autocast(x.device.type, self._dtype if reduced else None, enabled=reduced, cache_enabled=False):
            features: Tensor = self._network(x)
        for one, own, name in places:  # or the graph of this call would live until the next
            one._parameters[name] = own._parameters[name]
        for _, norm in self._norms:
            norm.room = None
        return features

    def _count_batch(self) -> None:
        """What each norm in training does by itself, for all of them."""
        for own, one in self._norms:
            one.training = own.training
            one._buffers = own._buffers | {"num_batches_tracked": None}
        counts = [own.num_batches_tracked for own, _ in self._norms if own.training]
        if present := [count for count in counts if count is not None]:
            torch._foreach_add_(present, 1)

    def _make_room(self, x: Tensor) -> None:
        """One buffer of zeros for the sums of all norms in training: new for every call, whose way back reads it."""
        norms = [one for _, one in self._norms if one.training]
        if norms:
            sizes = [room_for(one) for one in norms]
            for one, room in zip(norms, x.new_zeros(sum(sizes), dtype=torch.int64).split(sizes)):
                one.room = room

    def _stand_in(self, module: nn.Module) -> nn.Module:
        if isinstance(module, nn.Conv2d) and is_grouped(module):
            self._layers.append((module, _Grouped(module)))
            return self._layers[-1][1]
        if isinstance(module, nn.Conv2d | nn.Linear):
            self._layers.append((module, _copy(module, type(module), _parameters=dict(module._parameters))))
            return self._layers[-1][1]
        if isinstance(module, nn.BatchNorm2d) and module.momentum is not None:  # a plain mean would need the count
            self._norms.append((module, _copy(module, RoomyNorm)))
            return self._norms[-1][1]
        children = {name: self._stand_in(child) for name, child in module.named_children()}
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


def is_grouped(convolution: nn.Conv2d) -> bool:
    """Whether the kernels can carry it out: 3 x 3, in groups of 16 channels, with stride 1 or 2, and no bias."""
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


def cast_together(parameters: Sequence[Tensor], dtype: torch.dtype) -> tuple[Tensor, ...]:
    """Each parameter in ``dtype``, as autocast would make it; those of four dimensions must be channels-last.

    Where one has no gradient in ``dtype``, such as a weight whose gradient is found in float32, none is passed back.
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
        room = [parameters[0].new_empty(p.numel(), dtype=dtype) for p in parameters]
        torch._foreach_copy_(room, [_flat(parameter) for parameter in parameters])
        return tuple(one.as_strided(p.shape, p.stride()) for one, p in zip(room, parameters))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        found: list[Tensor | None] = [None] * len(gradients)
        given = [(i, gradient) for i, gradient in enumerate(gradients) if gradient is not None]
        room = [gradient.new_empty(gradient.numel(), dtype=ctx.like[i][2]) for i, gradient in given]
        torch._foreach_copy_(room, [_flat(gradient) for _, gradient in given])
        for (i, _), one in zip(given, room):
            shape, stride, _ = ctx.like[i]
            found[i] = one.as_strided(shape, stride)
        return (None, *found)


def _flat(x: Tensor) -> Tensor:
    """As it lies in memory. The strides of a 1 x 1 kernel can be written in several ways, and where two tensors differ
    in that torch copies one by one after all."""
    x = x.contiguous(memory_format=torch.channels_last) if x.ndim == 4 else x.contiguous()
    return x.as_strided((x.numel(),), (1,))
