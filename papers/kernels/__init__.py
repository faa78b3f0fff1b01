"""Triton kernels that train some networks with fewer passes over memory. Importing them adds the executor "fused".

The executor is a CUDA graph of a step in bf16. It rounds in other places than torch does. Triton comes with torch's
CUDA builds. Modules that hold kernels are imported only when the executor is used.
"""

import importlib.util
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from holdfast.train.encoders import Encoder
from holdfast.train.encoders.resnet import BasicBlock, Bottleneck, CifarResNet, PlainShortcutBlock, ResNet
from holdfast.train.engine.executors import Kernels, register_kernels
from holdfast.train.engine.step import TrainingStep
from papers.networks.squeeze_excite import PreActivationBlock, RegNetY, SENet, SqueezeExcitation, YBlock

__all__ = ["fused_network", "why_no_kernels", "why_not_fused"]

NETWORKS = (CifarResNet, RegNetY, ResNet, SENet)
BLOCKS = (PlainShortcutBlock, YBlock, BasicBlock, Bottleneck, PreActivationBlock, SqueezeExcitation)
PARTS = (Encoder, *BLOCKS, nn.BatchNorm2d, nn.Conv2d, nn.Linear)
"""Modules that the kernels replace or call differently. A derived class may do something else, so it is refused."""
HALVED_BY_KERNELS = (CifarResNet, RegNetY)
"""Networks with kernels that halve the image twice. The others use cuDNN for that, which takes any side."""
SIDES_MULTIPLE = 4


def why_no_kernels(network: nn.Module, height: int, width: int) -> str:
    """Why the kernels cannot compute ``network`` on images of that size; empty if they can."""
    backbone = getattr(network, "backbone", network)
    name = type(backbone).__name__
    if not isinstance(network, Encoder) or type(backbone) not in NETWORKS:
        return f"there are no kernels for {name}"
    if importlib.util.find_spec("triton") is None:
        return "triton is not installed"
    if network.frozen:
        return f"the kernels do not support frozen parts, and {name} has some: {', '.join(network.frozen)}"
    for part in network.modules():
        if isinstance(part, (*PARTS, _BatchNorm)) and type(part) not in PARTS:
            return f"{name} has a part that the kernels do not support, {type(part).__name__}"
    if not all(p.is_contiguous(memory_format=torch.channels_last) for p in network.parameters() if p.ndim == 4):
        return f"the kernels need weights in channels-last, and those of {name} are not"
    if isinstance(backbone, HALVED_BY_KERNELS) and (height % SIDES_MULTIPLE or width % SIDES_MULTIPLE):
        sides = f"sides that are multiples of {SIDES_MULTIPLE}"
        return f"{name}'s kernels need {sides} and the images are {height} x {width}"
    return ""


def fused_network(network: nn.Module) -> Callable[[Tensor], Tensor]:
    """A function that computes ``network(x)`` as under bf16 autocast; ``why_no_kernels`` must be empty for it."""
    from papers.kernels.cifar_resnet import FusedCifarResNet
    from papers.kernels.networks import FusedNetwork

    assert isinstance(network, Encoder)
    if not isinstance(network.backbone, CifarResNet):
        return FusedNetwork(network)
    backbone, projection = FusedCifarResNet(network.backbone), network.projection
    return backbone if projection is None else lambda x: projection(backbone(x))


def why_not_fused(step: TrainingStep) -> str:
    """Why the step cannot use the kernels; empty if it can."""
    if step.options.precision != "bf16":
        return f"the kernels compute in bf16 and precision is {step.options.precision}"
    height, width = (step.options.resized_crop,) * 2 if step.options.resized_crop else step.images.height_width
    for network in (step.encoder, step.old):
        if network is not None and (reason := why_no_kernels(network, height, width)):
            return reason
    return ""


register_kernels("fused", Kernels(fused_network, why_not_fused))
