"""The optimiser of one task and its learning rate."""

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.optim.lr_scheduler import ReduceLROnPlateau

from holdfast.core.errors import HoldfastError
from holdfast.train.engine.fit_options import FitOptions

MakeOptimizer = Callable[[list[dict[str, Any]]], torch.optim.Optimizer]
MakeScheduler = Callable[[torch.optim.Optimizer], Any]


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


class RateSchedule:
    """Sets the learning rate for each step of a task.

    optimizer: its groups get the rates.
    options: their schedule and warm-up are used if there is no ``scheduler``.
    per_epoch: steps of an epoch.
    done: steps done before, by a process that was killed; a ``scheduler`` takes as many steps at once.
    scheduler: makes the user's own scheduler of the optimiser; ``step`` of it is called after every training step.
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        options: FitOptions,
        per_epoch: int,
        done: int,
        scheduler: MakeScheduler | None = None,
    ) -> None:
        self._optimizer, self._options, self._per_epoch = optimizer, options, per_epoch
        self._warmup_steps = round(options.warmup * per_epoch * options.epochs)
        self._rate = math.nan
        self._scheduler = None if scheduler is None else _own_scheduler(scheduler, optimizer, done)

    @property
    def rate(self) -> float:
        """The rate of the last step, for the log; with an own scheduler that of the next, in the first group."""
        return self._rate if self._scheduler is None else float(self._optimizer.param_groups[0]["lr"])

    def before_step(self, done: int) -> None:
        """Set the rate of the step after ``done`` steps."""
        if self._scheduler is None:
            rate = learning_rate(self._options, done // self._per_epoch)
            if done < self._warmup_steps:
                rate *= (done + 1) / self._warmup_steps
            if rate != self._rate:
                self._rate = rate
                set_rate(self._optimizer, rate)

    def after_step(self) -> None:
        if self._scheduler is not None:
            self._scheduler.step()


def _own_scheduler(make: MakeScheduler, optimizer: torch.optim.Optimizer, done: int) -> Any:
    scheduler = make(optimizer)
    if not callable(getattr(scheduler, "step", None)):
        raise HoldfastError(f"scheduler: returned {type(scheduler).__name__}; it must return an object with step()")
    if isinstance(scheduler, ReduceLROnPlateau):
        raise HoldfastError("scheduler: ReduceLROnPlateau needs a validation loss, which fit has not; choose another")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # torch warns of scheduler steps without optimiser steps
        for _ in range(done):
            scheduler.step()
    return scheduler


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


def own_optimizer(make: MakeOptimizer, groups: Sequence[dict[str, Any]], options: FitOptions) -> torch.optim.Optimizer:
    """The user's own optimiser for the groups of ``parameter_groups``.

    The rates that ``make`` gives the groups are those at the start; the schedule and ``lr_groups`` multiply them.
    """
    optimizer = make([dict(group) for group in groups])
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise HoldfastError(f"optimizer: returned {type(optimizer).__name__}; it must return a torch.optim.Optimizer")
    given = {id(parameter) for group in groups for parameter in group["params"]}
    if given != {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}:
        raise HoldfastError("optimizer: it must have the parameters of the groups it was called with, and no others")
    for group in optimizer.param_groups:
        group["lr"] = group["lr"] * group.get("factor", 1.0)
        group["factor"] = float(group["lr"]) / options.lr  # set_rate multiplies it by the schedule's rate
    return optimizer
