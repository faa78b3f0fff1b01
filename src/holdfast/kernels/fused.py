"""Which networks can be carried out by fused kernels."""

import importlib.util
from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from holdfast.backbones import Encoder
from holdfast.backbones.regnet import RegNetY, YBlock
from holdfast.backbones.resnet import BasicBlock, Bottleneck, ResNet
from holdfast.backbones.resnet_cifar import CifarResNet
from holdfast.backbones.senet import PreActivationBlock, SENet

NETWORKS = (CifarResNet, RegNetY, ResNet, SENet)
PARTS = (YBlock, BasicBlock, Bottleneck, PreActivationBlock, nn.BatchNorm2d)
HALVED_BY_KERNELS = (CifarResNet, RegNetY)
"""Those whose own kernels halve an image, twice or more; cuDNN, which does it for the others, takes any side."""


def has_kernels(network: nn.Module) -> bool:
    """True for an ``Encoder`` around one of ``NETWORKS`` in channels-last, where triton is installed.

    Its norms must be plain: the kernels know nothing of statistics over several ranks, or of parts that are frozen. A
    class derived from a network, a block or a norm may do something else, so it has none.
    """
    return (
        isinstance(network, Encoder)
        and type(network.backbone) in NETWORKS
        and not network.frozen
        and all(type(m) in PARTS for m in network.modules() if isinstance(m, (*PARTS, _BatchNorm)))
        and importlib.util.find_spec("triton") is not None
        and all(p.is_contiguous(memory_format=torch.channels_last) for p in network.parameters() if p.ndim == 4)
    )


def takes_sides(network: nn.Module, height: int, width: int) -> bool:
    """Whether images of that size suit a network that ``has_kernels``."""
    halved = isinstance(getattr(network, "backbone", None), HALVED_BY_KERNELS)
    return not halved or height % 4 == 0 == width % 4


def fused_network(network: nn.Module) -> Callable[[Tensor], Tensor]:
    """A function that gives what ``network(x)`` gives under bf16 autocast, for a network that ``has_kernels``."""
    return _fused(network, torch.bfloat16, "ieee")


def frozen_network(network: nn.Module) -> Callable[[Tensor], Tensor]:
    """A function that gives what ``network(x)`` gives in float32 and eval mode, for a network that ``has_kernels``.

    With TF32 products where torch allows them, which it does unless told otherwise. On a GPU kernels that multiply cut
    off what torch rounds, so a feature is twice as far from float32 as torch's: 1e-3 after RegNetY-400MF. Those of a
    ResNet or a SENet leave products to torch.
    """
    run = _fused(network, torch.float32, "tf32" if torch.backends.cudnn.allow_tf32 else "ieee")

    def on_its_device(x: Tensor) -> Tensor:
        with torch.cuda.device_of(x):  # Triton launches on the current device, wherever the tensors are
            return run(x)

    return on_its_device


def _fused(network: nn.Module, dtype: torch.dtype, precision: Literal["ieee", "tf32"]) -> Callable[[Tensor], Tensor]:
    from holdfast.kernels.normed_network import NormedNetwork
    from holdfast.kernels.strips import BY_ROWS
    from holdfast.kernels.trunk import FusedTrunk

    assert isinstance(network, Encoder)
    if not isinstance(network.backbone, CifarResNet):
        return NormedNetwork(network, dtype, precision)
    by_rows = BY_ROWS and dtype == torch.bfloat16
    trunk, projection = FusedTrunk(network.backbone, dtype, precision, by_rows), network.projection
    return trunk if projection is None else lambda x: projection(trunk(x))
