"""Which device a command or a call uses."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from holdfast.core.errors import HoldfastError


def resolve_device(name: str | torch.device = "auto") -> torch.device:
    """The torch device of a name: ``auto`` is $HOLDFAST_DEVICE, else the GPU if torch sees one, else the CPU.

    name: ``auto``, or a device as torch names it (``cpu``, ``cuda``, ``cuda:1``), or a ``torch.device``.
    Refused: a name that torch does not know, and a GPU that is not there.
    """
    if name == "auto":
        name = os.environ.get("HOLDFAST_DEVICE") or "auto"
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise HoldfastError(f"unknown device {name!r}; use auto, cpu, cuda or cuda:N") from error
    if device.type != "cuda":
        return device
    if not torch.cuda.is_available():
        raise HoldfastError(f"device {str(name)!r} cannot be used: torch sees no GPU; use cpu")
    if device.index is not None and device.index >= torch.cuda.device_count():
        last = torch.cuda.device_count() - 1
        raise HoldfastError(f"device {str(name)!r} does not exist: the last GPU that torch sees is cuda:{last}")
    return device


def gpu_descriptions() -> list[str]:
    """Name and memory of each GPU that torch sees."""
    found = [torch.cuda.get_device_properties(number) for number in range(torch.cuda.device_count())]
    return [f"{gpu.name}, {gpu.total_memory / 2**30:.0f} GiB" for gpu in found] if torch.cuda.is_available() else []


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Let torch use so many threads of the CPU for an operation in the block."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
