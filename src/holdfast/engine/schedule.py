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


def make_optimizer(parameters: Iterable[nn.Parameter], options: FitOptions) -> torch.optim.Optimizer:
    """One fresh optimiser over everything that trains: the encoder's and the method's parameters."""
    trainable = [parameter for parameter in parameters if parameter.requires_grad]
    if options.optimizer == "adamw":
        return torch.optim.AdamW(trainable, lr=options.lr, weight_decay=options.weight_decay)
    return torch.optim.SGD(trainable, lr=options.lr, momentum=options.momentum, weight_decay=options.weight_decay)
