"""What a method kept after a task, read back for the next one."""

from pathlib import Path

import torch

from holdfast.errors import HoldfastError
from holdfast.methods import Method
from holdfast.methods.interface import TaskView
from holdfast.randomness import GLOBAL_GENERATOR
from holdfast.storage import read_tensors


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
