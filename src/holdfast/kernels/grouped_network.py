"""A network whose grouped convolutions are carried out by the kernels, and all else by its own modules."""

import torch
from torch import Tensor, nn

from holdfast.kernels.grouped_convolution import GROUP_WIDTH, Precision, grouped_convolution


class GroupedNetwork:
    """What ``network(x)`` gives, under bf16 autocast where ``dtype`` is bf16.

    Parameters, norms and their modes are the network's own, as they are at every call; only the modules above its
    grouped convolutions are copied, without what they hold.
    precision: of the grouped convolutions' products where dtype is float32.
    """

    def __init__(self, network: nn.Module, dtype: torch.dtype = torch.bfloat16, precision: Precision = "ieee") -> None:
        self._dtype = dtype
        self._precision = precision
        self._grouped: list[_Grouped] = []
        self._twin = self._twin_of(network)

    def __call__(self, x: Tensor) -> Tensor:
        reduced = self._dtype != torch.float32
        with torch.autocast(x.device.type, self._dtype if reduced else None, enabled=reduced, cache_enabled=False):
            with torch.no_grad():
                self._cast()
            features: Tensor = self._twin(x)
        return features

    def _twin_of(self, module: nn.Module) -> nn.Module:
        if isinstance(module, nn.Conv2d) and is_grouped(module):
            self._grouped.append(_Grouped(module, self._precision))
            return self._grouped[-1]
        children = {name: self._twin_of(child) for name, child in module.named_children()}
        if all(child is getattr(module, name) for name, child in children.items()):
            return module
        twin = module.__new__(type(module))
        twin.__dict__ = module.__dict__ | {"_modules": module._modules | children}
        return twin

    def _cast(self) -> None:
        """All weights at once, into one new buffer: the way back of an earlier call may still read the last one."""
        weights = [one.convolution.weight for one in self._grouped]
        sizes = [weight.numel() for weight in weights]
        flat = weights[0].new_empty(sum(sizes), dtype=self._dtype)
        casts = [part.as_strided(w.shape, w.stride()) for part, w in zip(flat.split(sizes), weights)]
        torch._foreach_copy_(casts, weights)
        for one, cast in zip(self._grouped, casts):
            one.cast = cast


class _Grouped(nn.Module):
    def __init__(self, convolution: nn.Conv2d, precision: Precision) -> None:
        super().__init__()
        self.convolution = convolution
        self.cast: Tensor | None = None
        self._precision = precision

    def forward(self, x: Tensor) -> Tensor:
        assert self.cast is not None
        convolution, x = self.convolution, x.to(self.cast.dtype)
        return grouped_convolution(
            x, convolution.weight, convolution.stride[0], cast=self.cast, precision=self._precision
        )


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
