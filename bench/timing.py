"""What the timing scripts share: steps by a host clock around a synchronised device, and figures written as JSON."""

import argparse
import time
from pathlib import Path
from typing import Any

import torch

from holdfast.core.storage import write_json

FILES = ("json", "profile", "folder", "lock", "keep", "reuse", "case", "url")
"""Options that name places on one machine; they say nothing about a figure and are not written with it."""


def synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def timed(run, steps: int, device: torch.device) -> float:
    """Milliseconds per step."""
    synchronize(device)
    started = time.perf_counter()
    for _ in range(steps):
        run()
    synchronize(device)
    return 1000 * (time.perf_counter() - started) / steps


def settings(options: argparse.Namespace) -> dict[str, Any]:
    return {name: value for name, value in vars(options).items() if name not in FILES}


def write_figures(
    path: str, bench: str, environment: dict[str, Any], options: argparse.Namespace, **found: Any
) -> None:
    write_json(Path(path), {"bench": bench, "environment": environment, **settings(options), **found})
