"""The two small layers of squeeze and excitation, which torch carries out between the kernels."""

from typing import TypeAlias

import torch
from torch import Tensor

from holdfast.backbones.squeeze import SqueezeExcitation

Weights: TypeAlias = tuple[Tensor, Tensor, Tensor, Tensor]
"""Weight and bias of the layer that squeezes, and of the one that gives the logits."""


def weights_like(weigh: SqueezeExcitation, y: Tensor) -> Weights | None:
    """What ``weigh`` learns; None where something of it is missing or has another dtype than y."""
    first, second = weigh.squeeze, weigh.excite
    w1, b1, w2, b2 = first.weight, first.bias, second.weight, second.bias
    if b1 is None or b2 is None or any(one.dtype != y.dtype for one in (w1, b1, w2, b2)):
        return None
    return w1, b1, w2, b2


def hidden_and_logits(mean: Tensor, weights: Weights) -> tuple[Tensor, Tensor]:
    w1, b1, w2, b2 = weights
    with torch.autocast(mean.device.type, enabled=False):  # all has one dtype, and the way back relies on it
        hidden = torch._addmm_activation(b1, mean, w1.flatten(1).t())  # with the ReLU in the same kernel
        return hidden, torch.addmm(b2, hidden, w2.flatten(1).t())


def weight_gradients(
    d_hidden: Tensor, mean: Tensor, w1: Tensor, d_logits: Tensor, hidden: Tensor, w2: Tensor
) -> tuple[Tensor, Tensor]:
    return (d_hidden.t() @ mean).view(w1.shape), (d_logits.t() @ hidden).view(w2.shape)
