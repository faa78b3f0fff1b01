"""The middle of a task on disk: everything that decides how it goes on.

What a method kept after a task, read back for the next one.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from holdfast.errors import HoldfastError
from holdfast.methods import Method
from holdfast.methods.interface import TaskView
from holdfast.randomness import GLOBAL_GENERATOR
from holdfast.storage import read_tensors, write_tensors
from holdfast.training.step import Tally


@dataclass
class TrainingState:
    """What one task's training consists of at any step; saved and restored as a whole."""

    encoder: nn.Module
    method: nn.Module
    optimizer: torch.optim.Optimizer
    generator: torch.Generator
    tally: Tally

    def refuse_if_bad(self, task: int, steps_per_epoch: int) -> None:
        """Raise if the loss or a weight is no longer a number: such a state must not replace a good one on disk."""
        self.tally.refuse_if_bad(task, steps_per_epoch)
        # Of the method only what trains: what it keeps of the data may have gaps, and those are NaN on purpose.
        weights = [*self.encoder.state_dict().values(), *self.method.parameters()]
        if not torch.stack([tensor.isfinite().all() for tensor in weights]).all():
            raise HoldfastError(
                f"the weights became NaN or infinite in task {task}; the last good checkpoint is kept; "
                "try a lower train.lr"
            )


class CheckpointFile:
    """One safetensors file, replaced atomically: weights, optimiser, random generators, running sums, position."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def save(self, state: TrainingState, *, task: int, step: int) -> None:
        tensors = dict(_tensors(state))
        position = {"task": task, "step": step, "terms": state.tally.names}
        write_tensors(self.path, tensors, {"position": json.dumps(position)})

    def restore(self, state: TrainingState, *, task: int) -> int:
        """Load into ``state`` what was saved of ``task``; the number of steps done, 0 where nothing was."""
        if not self.path.exists():
            return 0
        try:
            tensors, metadata = read_tensors(self.path)
            position = json.loads(metadata.get("position", "null"))
            if not isinstance(position, dict) or not {"task", "step", "terms"} <= position.keys():
                raise HoldfastError(f"{self.path}: not a checkpoint")
            if position["task"] != task:
                return 0  # left by a task that finished before it could be cleared
            _load(state, tensors, position["terms"])
        except (HoldfastError, KeyError, RuntimeError, ValueError) as error:
            reason = str(error).splitlines()[0]
            raise HoldfastError(
                f"checkpoint cannot be used: {reason}; delete it to start task {task} from its beginning"
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
    yield "tally.sums", state.tally.sums


def _load(state: TrainingState, tensors: dict[str, Tensor], terms: list[str]) -> None:
    parts: dict[str, dict[str, Tensor]] = {}
    for key, tensor in tensors.items():
        part, name = key.split(".", 1)
        parts.setdefault(part, {})[name] = tensor
    state.encoder.load_state_dict(parts["encoder"])
    state.method.load_state_dict(parts.get("method", {}))
    per_parameter: dict[int, dict[str, Tensor]] = {}
    trained = [parameter for group in state.optimizer.param_groups for parameter in group["params"]]
    for key, tensor in parts.get("optimizer", {}).items():
        index, name = key.split(".", 1)
        parameter = trained[int(index)]
        if tensor.shape == parameter.shape:
            # In the parameter's memory layout: a fused optimiser walks both as they lie in memory.
            tensor = torch.empty_like(parameter, dtype=tensor.dtype, requires_grad=False).copy_(tensor)
        per_parameter.setdefault(int(index), {})[name] = tensor
    groups = state.optimizer.state_dict()["param_groups"]
    state.optimizer.load_state_dict({"state": per_parameter, "param_groups": groups})
    state.generator.set_state(parts["random"]["augment"])
    with GLOBAL_GENERATOR:
        torch.set_rng_state(parts["random"]["cpu"])
    if state.generator.device.type == "cuda":
        torch.cuda.set_rng_state(parts["random"]["cuda"], state.generator.device)
    state.tally.restore(terms, parts["tally"]["sums"])


def restore_method(method: Method, previous: TaskView, dim: int, path: Path) -> None:
    """Load into a fresh ``method`` what ``path`` holds of it after the task ``previous``.

    The state of the random generator is left as it was.
    """
    with GLOBAL_GENERATOR, torch.random.fork_rng(devices=[]):
        method.begin(previous, dim)  # for the shapes; what it draws is replaced
    state, _ = read_tensors(path)
    try:
        method.restore(state)
    except (RuntimeError, AttributeError) as error:
        raise HoldfastError(f"{path}: does not fit this method ({str(error).splitlines()[0]})") from error
