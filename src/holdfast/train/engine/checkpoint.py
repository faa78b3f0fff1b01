"""The state in the middle of a task on disk, and a method's state after a task."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from holdfast.core.errors import DivergedError, HoldfastError, first_line
from holdfast.train.engine.step import LossSums
from holdfast.train.methods import Method
from holdfast.train.methods.interface import TaskView
from holdfast.train.randomness import GENERATOR_LOCK
from holdfast.train.tensor_files import read_torch, write_torch


@dataclass
class TrainingState:
    """Everything that changes while a task trains; saved and restored as a whole."""

    encoder: nn.Module
    method: nn.Module
    optimizer: torch.optim.Optimizer
    generator: torch.Generator
    loss_sums: LossSums

    def refuse_if_bad(self, task: int, steps_per_epoch: int) -> None:
        """Raise if the loss or a weight is NaN or infinite: such a state must not replace a good one on disk."""
        self.loss_sums.refuse_if_bad(task, steps_per_epoch)
        # Only the method's parameters: its buffers may hold NaN on purpose, for classes without data.
        weights = [*self.encoder.state_dict().values(), *self.method.parameters()]
        if not torch.stack([tensor.isfinite().all() for tensor in weights]).all():
            raise DivergedError(
                f"the weights became NaN or infinite in task {task}; the last good checkpoint is kept; try a lower lr"
            )


class CheckpointFile:
    """One safetensors file, replaced atomically: weights, optimiser, random generators, loss sums, position."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def save(self, state: TrainingState, *, task: int, step: int, training: Mapping[str, Any]) -> None:
        """Write ``state`` after ``step`` steps of ``task``.

        training: what the weights depend on, as JSON; a training that differs cannot resume from the file.
        """
        tensors = dict(_tensors(state))
        position = {"task": task, "step": step, "terms": state.loss_sums.names, "training": training}
        metadata = {"position": json.dumps(position), "optimizer": json.dumps(_numbers(state.optimizer))}
        write_torch(self.path, tensors, metadata)

    def restore(self, state: TrainingState, *, task: int, training: Mapping[str, Any]) -> int:
        """Load the saved state of ``task`` into ``state``; returns the number of steps done, 0 if none was saved.

        training: as in ``save``.
        """
        if not self.path.exists():
            return 0
        try:
            tensors, metadata = read_torch(self.path)
            position = json.loads(metadata.get("position", "null"))
            if not isinstance(position, dict) or not {"task", "step", "terms"} <= position.keys():
                raise HoldfastError(f"{self.path}: not a checkpoint")
            if position["task"] != task:
                return 0  # left by a task that finished before it could be cleared
            saved = position.get("training", training)  # older files have none
            if changed := [key for key, value in training.items() if saved.get(key) != value]:
                raise HoldfastError(f"it was saved by a training with another {' and '.join(changed)}")
            numbers = json.loads(metadata.get("optimizer", "{}"))  # older files have none
            _load(state, tensors, position["terms"], numbers)
        except (HoldfastError, LookupError, RuntimeError, ValueError) as error:
            # torch names the cause in the second line.
            reason = " ".join(line.strip() for line in str(error).splitlines()[:2])
            raise HoldfastError(
                f"{self.path}: the checkpoint cannot be used ({reason}); delete it to start task {task} from its "
                "beginning"
            ) from error
        return int(position["step"])

    def clear(self) -> None:
        self.path.unlink(missing_ok=True)


def _tensors(state: TrainingState) -> Iterator[tuple[str, Tensor]]:
    for part in ("encoder", "method"):
        for name, tensor in getattr(state, part).state_dict().items():
            yield f"{part}.{name}", tensor
    for index, values in state.optimizer.state_dict()["state"].items():
        for name, value in values.items():
            if isinstance(value, Tensor):
                yield f"optimizer.{index}.{name}", value
    yield "random.augment", state.generator.get_state()
    yield "random.cpu", torch.get_rng_state()
    if state.generator.device.type == "cuda":
        yield "random.cuda", torch.cuda.get_rng_state(state.generator.device)
    yield "tally.sums", state.loss_sums.sums  # the name in files of earlier versions


def _numbers(optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """What an optimiser keeps besides tensors, as JSON: ``state`` by parameter, and ``groups`` without their rates.

    The rates follow from the schedule. torch's own optimisers keep only tensors; a user's own may keep numbers.
    """
    state_dict = optimizer.state_dict()
    state = {
        str(index): {name: value for name, value in values.items() if not isinstance(value, Tensor)}
        for index, values in state_dict["state"].items()
    }
    groups = [
        {name: value for name, value in group.items() if isinstance(value, bool | int | float) and name not in _RATES}
        for group in state_dict["param_groups"]
    ]
    try:
        json.dumps(state)
    except TypeError as error:
        raise HoldfastError(
            f"{type(optimizer).__name__}: its state cannot be saved ({error}); train without a checkpoint"
        ) from error
    return {"state": {index: values for index, values in state.items() if values}, "groups": groups}


_RATES = ("lr", "initial_lr")


def _load(state: TrainingState, tensors: dict[str, Tensor], terms: list[str], numbers: Mapping[str, Any]) -> None:
    parts: dict[str, dict[str, Tensor]] = {}
    for key, tensor in tensors.items():
        part, name = key.split(".", 1)
        parts.setdefault(part, {})[name] = tensor
    state.encoder.load_state_dict(parts["encoder"])
    state.method.load_state_dict(parts.get("method", {}))
    per_parameter: dict[int, dict[str, Any]] = {int(key): dict(own) for key, own in numbers.get("state", {}).items()}
    trained = [parameter for group in state.optimizer.param_groups for parameter in group["params"]]
    for key, tensor in parts.get("optimizer", {}).items():
        index, name = key.split(".", 1)
        parameter = trained[int(index)]
        if tensor.shape == parameter.shape:
            # In the parameter's memory layout: a fused optimiser reads both in memory order.
            tensor = torch.empty_like(parameter, dtype=tensor.dtype, requires_grad=False).copy_(tensor)
        per_parameter.setdefault(int(index), {})[name] = tensor
    groups = state.optimizer.state_dict()["param_groups"]
    for group, own in zip(groups, numbers.get("groups", []), strict=False):
        group |= own
    state.optimizer.load_state_dict({"state": per_parameter, "param_groups": groups})
    state.generator.set_state(parts["random"]["augment"])
    with GENERATOR_LOCK:
        torch.set_rng_state(parts["random"]["cpu"])
    if state.generator.device.type == "cuda":
        torch.cuda.set_rng_state(parts["random"]["cuda"], state.generator.device)
    state.loss_sums.restore(terms, parts["tally"]["sums"])


def restore_method(method: Method, previous: TaskView, dim: int, path: Path) -> None:
    """Load the state that a method had after the task ``previous`` into a fresh ``method``.

    method: changed in place.
    previous: the task before the next one.
    dim: size of the features.
    path: safetensors file of the state.

    torch's random generator is not changed.
    """
    with GENERATOR_LOCK, torch.random.fork_rng(devices=[]):
        method.begin(previous, dim)  # makes tensors of the right shapes; their values are replaced
    state, _ = read_torch(path)
    try:
        method.restore(state)
    except (RuntimeError, AttributeError) as error:
        raise HoldfastError(f"{path}: does not fit this method ({first_line(error)})") from error
