"""Which networks can be carried out by fused kernels."""

import importlib.util
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from holdfast.encoders import Encoder
from holdfast.encoders.resnet import BasicBlock, Bottleneck, CifarResNet, PlainShortcutBlock, ResNet
from holdfast.encoders.squeeze_excite import PreActivationBlock, RegNetY, SENet, SqueezeExcitation, YBlock

NETWORKS = (CifarResNet, RegNetY, ResNet, SENet)
BLOCKS = (PlainShortcutBlock, YBlock, BasicBlock, Bottleneck, PreActivationBlock, SqueezeExcitation)
PARTS = (Encoder, *BLOCKS, nn.BatchNorm2d, nn.Conv2d, nn.Linear)
"""What the kernels stand in for or call in another way; a derived class may do something else."""
HALVED_BY_KERNELS = (CifarResNet, RegNetY)
"""Those whose own kernels halve an image, twice; cuDNN, which does it for the others, takes any side."""
SIDES_MULTIPLE = 4


def why_no_kernels(network: nn.Module, height: int, width: int) -> str:
    """Why ``network`` cannot be carried out by the kernels on images of that size; empty where it can."""
    backbone = getattr(network, "backbone", network)
    name = type(backbone).__name__
    if not isinstance(network, Encoder) or type(backbone) not in NETWORKS:
        return f"there are no kernels for {name}"
    if importlib.util.find_spec("triton") is None:
        return "triton is not installed"
    if network.frozen:
        return f"the kernels know no frozen parts, and {name} has some: {', '.join(network.frozen)}"
    for part in network.modules():
        if isinstance(part, nn.SyncBatchNorm):
            return f"{name} has a SyncBatchNorm, and the kernels know nothing of other ranks"
        if isinstance(part, (*PARTS, _BatchNorm)) and type(part) not in PARTS:
            return f"{name} has a part that the kernels do not know, {type(part).__name__}"
    if not all(p.is_contiguous(memory_format=torch.channels_last) for p in network.parameters() if p.ndim == 4):
        return f"the kernels need weights in channels-last, and those of {name} are not"
    if isinstance(backbone, HALVED_BY_KERNELS) and (height % SIDES_MULTIPLE or width % SIDES_MULTIPLE):
        sides = f"sides that are multiples of {SIDES_MULTIPLE}"
        return f"{name}'s kernels need {sides} and the images are {height} x {width}"
    return ""


def fused_network(network: nn.Module) -> Callable[[Tensor], Tensor]:
    """A function that gives what ``network(x)`` gives under bf16 autocast, where ``why_no_kernels`` is empty."""
    from holdfast.training.kernels.cifar_resnet import FusedTrunk
    from holdfast.training.kernels.networks import NormedNetwork

    assert isinstance(network, Encoder)
    if not isinstance(network.backbone, CifarResNet):
        return NormedNetwork(network)
    trunk, projection = FusedTrunk(network.backbone), network.projection
    return trunk if projection is None else lambda x: projection(trunk(x))
