"""The optimiser of one task and its learning rate."""

import math
from collections.abc import Iterable

import torch
from torch import nn

from holdfast.engine.options import FitOptions


def learning_rate(options: FitOptions, epoch: int) -> float:
    """The rate of a 0-based epoch: constant within it, fresh at the start of every task."""
    if options.schedule == "constant":
        return options.lr
    if options.schedule == "cosine":
        turn = (1 + math.cos(math.pi * epoch / options.epochs)) / 2
        return options.final_lr + (options.lr - options.final_lr) * turn
    passed = sum(epoch >= round(fraction * options.epochs) for fraction in options.milestones)
    return options.lr * options.decay**passed


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Change the rate in place where it is a tensor: a captured step reads it from there."""
    for group in optimizer.param_groups:
        if isinstance(group["lr"], torch.Tensor):
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate


def make_optimizer(
    parameters: Iterable[nn.Parameter], options: FitOptions, device: torch.device
) -> torch.optim.Optimizer:
    """One fresh optimiser over everything that trains: the encoder's and the method's parameters.

    Fused: one kernel for all parameters. On a GPU the rate is a tensor there, so that it can change under a graph.
    """
    trainable = [parameter for parameter in parameters if parameter.requires_grad and parameter.numel()]
    on_gpu = device.type == "cuda"
    rate = torch.tensor(options.lr, device=device) if on_gpu else options.lr
    if options.optimizer == "adamw":
        return torch.optim.AdamW(trainable, lr=rate, weight_decay=options.weight_decay, fused=True, capturable=on_gpu)
    return torch.optim.SGD(trainable, lr=rate, momentum=options.momentum, weight_decay=options.weight_decay, fused=True)
