"""Weights that the user brings along for a network: safetensors, or a state dict that torch saved, read as data.

Whether weights are those of a network: no name missing, none too many, every shape the same.
"""

import pickle
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from holdfast.checksums import sha256_of
from holdfast.errors import HoldfastError, unknown_name
from holdfast.storage import read_tensors

SUFFIXES = (".safetensors", ".pt", ".pth")


def load_weights(network: nn.Module, path: str | Path, *, prefix: str = "", skip: Sequence[str] = ()) -> dict[str, str]:
    """Copy the weights in ``path`` (relative to the working directory) into ``network``; every one must fit.

    prefix: read only the names that begin with it, and without it: ``module.`` for what DistributedDataParallel saved.
    skip: names that begin with one of these are left out: ``fc.`` for a classifier that is not wanted.
    Gives the file's name and hash, to be kept with the model.
    """
    path = Path(path).expanduser()
    tensors = _chosen(_read(path), path, prefix, skip)
    refuse_misfit(path, tensors, network.state_dict(), "backbone")
    network.load_state_dict(dict(tensors))
    return {"file": path.name, "sha256": sha256_of(path)}


def _read(path: Path) -> Mapping[str, Tensor]:
    if path.suffix not in SUFFIXES:
        raise unknown_name(f"kind of weights ({path})", path.suffix, SUFFIXES)
    if not path.is_file():
        raise HoldfastError(f"{path}: no such file of weights")
    if path.suffix == ".safetensors":
        return read_tensors(path)[0]
    try:
        found: Any = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise HoldfastError(f"{path}: holds no plain tensors, and nothing else is unpickled ({reason})") from error
    if not isinstance(found, Mapping) or not all(isinstance(value, Tensor) for value in found.values()):
        held = ", ".join(map(str, found)) if isinstance(found, Mapping) else type(found).__name__
        raise HoldfastError(f"{path}: not a state dict, it holds {held}; save model.state_dict() by itself")
    return found


def _chosen(tensors: Mapping[str, Tensor], path: Path, prefix: str, skip: Sequence[str]) -> dict[str, Tensor]:
    kept = {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
    if not kept:
        raise HoldfastError(f"{path}: no name begins with {prefix!r}; the first is {next(iter(tensors), 'missing')!r}")
    for start in skip:
        if not any(name.startswith(start) for name in kept):
            raise HoldfastError(f"{path}: no name begins with {start!r}, so there is nothing of it to skip")
    return {name: value for name, value in kept.items() if not name.startswith(tuple(skip))}


MOST_NAMED = 40


def refuse_misfit(source: Path, tensors: Mapping[str, Tensor], expected: Mapping[str, Tensor], what: str) -> None:
    """Raise unless ``tensors``, read from ``source``, have the names and shapes of ``expected``, those of ``what``."""
    missing, unexpected = sorted(expected.keys() - tensors.keys()), sorted(tensors.keys() - expected.keys())
    if missing or unexpected:
        raise HoldfastError(
            f"{source}: does not fit the {what}; missing: {_listed(missing)}; unexpected: {_listed(unexpected)}"
        )
    wrong = [
        f"{name} {tuple(tensors[name].shape)} instead of {tuple(value.shape)}"
        for name, value in expected.items()
        if tensors[name].shape != value.shape
    ]
    if wrong:
        raise HoldfastError(f"{source}: shapes do not fit the {what}: {_listed(wrong)}")


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ", ".join(names[:MOST_NAMED]) + more if names else "none"
