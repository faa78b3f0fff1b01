"""One file, one paper's method, one final class. Adding one never touches the training loop."""

from collections.abc import Callable

from holdfast.methods.er import ER
from holdfast.methods.interface import Batch, Method, Progress, TaskView
from holdfast.methods.simplex_fd import SimplexFD
from holdfast.methods.simplex_hoc import SimplexHOC

METHODS: dict[str, Callable[..., Method]] = {
    "er": ER,
    "simplex_fd": SimplexFD,
    "simplex_hoc": SimplexHOC,
}

__all__ = ["ER", "METHODS", "Batch", "Method", "Progress", "SimplexFD", "SimplexHOC", "TaskView"]
