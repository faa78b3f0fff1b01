"""A network whose grouped convolutions and norms are carried out by the kernels, and all else by torch as before."""

from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from holdfast.kernels import normed_regnet, normed_resnet, normed_senet
from holdfast.kernels.cast import cast_together
from holdfast.kernels.grouped_convolution import GROUP_WIDTH, grouped_convolution
from holdfast.kernels.norm_operation import RoomyNorm, room_for

STANDS_IN = normed_regnet.STANDS_IN | normed_resnet.STANDS_IN | normed_senet.STANDS_IN


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
        kind = STANDS_IN.get(type(module), type(module))
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
