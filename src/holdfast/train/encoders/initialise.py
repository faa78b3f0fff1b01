"""Initial weights of the convolutional networks, the check of their sizes, and building one without its memory."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_parameter_registration_hook
from torch.overrides import TorchFunctionMode

from holdfast.core.errors import HoldfastError


def kaiming_convolutions(network: nn.Module) -> None:
    """Set every convolution to He-normal weights (fan-out, ReLU). Batch norms already start at scale 1 and shift 0."""
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")


MOST_CHANNELS = 2**20
"""The largest size of a layer: it is refused before memory is allocated for it."""


def check_positive(backbone: str, **sizes: int) -> None:
    """Refuse a size that is not a whole number from 1 to ``MOST_CHANNELS``."""
    for option, value in sizes.items():
        if type(value) is not int or value < 1:
            raise HoldfastError(f"backbone {backbone}: {option} must be at least 1, got {value!r:.40}")
        if value > MOST_CHANNELS:
            raise HoldfastError(f"backbone {backbone}: {option} must be at most {MOST_CHANNELS}, got {value!r:.40}")


@contextmanager
def without_memory() -> Iterator[None]:
    """Build networks on torch's device "meta", without memory and initial weights, to see their names and shapes."""
    with torch.device("meta"), _NoInitialWeights():
        yield


@contextmanager
def at_most_parameters(most: int) -> Iterator[None]:
    """Refuse a network as soon as it has more parameters: a few bytes can ask for millions of layers."""
    thread, count = threading.get_ident(), 0

    def count_one(module: nn.Module, name: str, parameter: nn.Parameter) -> None:
        nonlocal count
        count += threading.get_ident() == thread  # the hook is that of all threads
        if count > most:
            raise HoldfastError(f"it has more than {most} weights, far more than are saved")

    hook = register_module_parameter_registration_hook(count_one)
    try:
        yield
    finally:
        hook.remove()


class _NoInitialWeights(TorchFunctionMode):
    """Skips functions that change a tensor of the device "meta". For random numbers torch would import its compiler."""

    def __torch_function__(
        self, function: Callable[..., Any], types: Any, arguments: Any = (), options: dict[str, Any] | None = None
    ) -> Any:
        name = getattr(function, "__name__", "")
        in_place = name.endswith("_") and not name.endswith("__")
        if in_place and arguments and isinstance(arguments[0], Tensor) and arguments[0].is_meta:
            return arguments[0]
        return function(*arguments, **(options or {}))
