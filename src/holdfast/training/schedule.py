"""The optimiser of one task and its learning rate."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn

from holdfast.errors import HoldfastError
from holdfast.training.options import FitOptions


def learning_rate(options: FitOptions, epoch: int) -> float:
    """The learning rate of an epoch, counted from 0; constant within it and the same in every task."""
    if options.schedule == "constant":
        return options.lr
    if options.schedule == "cosine":
        weight = (1 + math.cos(math.pi * epoch / options.epochs)) / 2
        return options.final_lr + (options.lr - options.final_lr) * weight
    passed = sum(epoch >= round(fraction * options.epochs) for fraction in options.milestones)
    return options.lr * options.decay**passed


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Set the learning rate; in place if it is a tensor, because a captured step reads that tensor."""
    for group in optimizer.param_groups:
        own = rate * group.get("factor", 1.0)
        if isinstance(group["lr"], torch.Tensor):
            group["lr"].fill_(own)
        else:
            group["lr"] = own


def parameter_groups(encoder: nn.Module, method: nn.Module, options: FitOptions) -> list[dict[str, Any]]:
    """Parameter groups by factor of the learning rate (``options.lr_groups``) and by weight decay.

    The method's parameters have factor 1.
    """
    factors = lr_factors(encoder, options.lr_groups or {})
    rated = [(factors[name], parameter) for name, parameter in encoder.named_parameters()]
    rated += [(1.0, parameter) for parameter in method.parameters()]
    groups: dict[tuple[float, bool], list[nn.Parameter]] = {}
    for factor, parameter in rated:
        if parameter.requires_grad and parameter.numel():
            decays = options.decay_norms or parameter.ndim > 1
            groups.setdefault((factor, decays), []).append(parameter)
    if not groups:
        raise HoldfastError("nothing trains: all of the encoder is frozen, and the method has no parameters of its own")
    return [
        {"params": group, "factor": factor, "weight_decay": options.weight_decay if decays else 0.0}
        for (factor, decays), group in groups.items()
    ]


def lr_factors(encoder: nn.Module, lr_groups: Mapping[str, float]) -> dict[str, float]:
    """For each parameter of ``encoder`` the factor of its longest prefix, or 1; a prefix of no parameter is refused."""
    names = [name for name, _ in encoder.named_parameters()]
    for prefix in lr_groups:
        if not any(_below(prefix, name) for name in names):
            first = ", ".join(dict.fromkeys(".".join(name.split(".")[:2]) for name in names))
            raise HoldfastError(f"lr_groups: the encoder has no parameters {prefix!r}; known: {first}")
    by_length = sorted(lr_groups, key=len, reverse=True)
    return {name: next((lr_groups[prefix] for prefix in by_length if _below(prefix, name)), 1.0) for name in names}


def _below(prefix: str, name: str) -> bool:
    return name == prefix or name.startswith(f"{prefix}.")


def make_optimizer(
    groups: Sequence[dict[str, Any]], options: FitOptions, device: torch.device
) -> torch.optim.Optimizer:
    """A new optimiser for the groups of ``parameter_groups``.

    Fused: one kernel for all parameters. On a GPU the learning rate is a tensor, so that a captured graph can read it.
    """
    on_gpu = device.type == "cuda"
    rated = []
    for group in groups:
        rate = options.lr * group["factor"]
        rated.append({**group, "lr": torch.tensor(rate, device=device) if on_gpu else rate})
    if options.optimizer == "adamw":
        return torch.optim.AdamW(rated, lr=options.lr, fused=True, capturable=on_gpu)
    return torch.optim.SGD(rated, lr=options.lr, momentum=options.momentum, fused=True)
