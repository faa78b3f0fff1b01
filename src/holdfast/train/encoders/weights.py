"""Load the user's weights into a network, from safetensors or a torch state dict. Nothing is unpickled but tensors."""

import pickle
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from holdfast.core.checksums import sha256_of
from holdfast.core.errors import HoldfastError, first_line, unknown_name
from holdfast.train.tensor_files import read_torch

SUFFIXES = (".safetensors", ".pt", ".pth")

COUNTER = "num_batches_tracked"
"""Batch norm's number of batches, which does not change its output. Files of older networks lack it."""


def load_weights(network: nn.Module, path: str | Path, *, prefix: str = "", skip: Sequence[str] = ()) -> dict[str, str]:
    """Copy weights from a file into ``network``. Names and shapes must match exactly; ``COUNTER`` may be missing.

    path: a .safetensors, .pt or .pth file.
    prefix: read only names with this prefix, and remove it; ``module.`` for DistributedDataParallel.
    skip: leave out names with one of these prefixes; ``fc.`` for a classifier.
    Returns the file's name and sha256.

    >>> import torch
    >>> from holdfast import build_backbone, load_weights
    >>> network = build_backbone("small", width=4)
    >>> torch.save({f"module.{name}": value for name, value in network.state_dict().items()}, "weights.pt")
    >>> load_weights(build_backbone("small", width=4), "weights.pt", prefix="module.")["file"]
    'weights.pt'
    """
    path = Path(path).expanduser()
    expected = network.state_dict()
    counters = {name: value for name, value in expected.items() if name.endswith(COUNTER)}
    tensors = {**counters, **_chosen(read_weights(path), path, prefix, skip)}
    check_weights_fit(path, tensors, expected, "backbone")
    network.load_state_dict(tensors)
    return {"file": path.name, "sha256": sha256_of(path)}


def read_weights(path: Path) -> Mapping[str, Tensor]:
    """The tensors of a .safetensors, .pt or .pth file by name; a file with anything else is refused."""
    if path.suffix not in SUFFIXES:
        raise unknown_name(f"kind of weights ({path})", path.suffix, SUFFIXES)
    if not path.is_file():
        raise HoldfastError(f"{path}: no such file")
    if path.suffix == ".safetensors":
        return read_torch(path)[0]
    try:
        found: Any = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        # Not torch's own message: it recommends to unpickle any object.
        raise HoldfastError(
            f"{path}: not a file of torch.save, or it contains other objects than tensors, which are not unpickled; "
            "save only model.state_dict()"
        ) from error
    except (RuntimeError, ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
        raise HoldfastError(f"{path}: cannot be read as a file of torch.save ({first_line(error)})") from error
    if not isinstance(found, Mapping) or not all(isinstance(value, Tensor) for value in found.values()):
        held = ", ".join(map(str, found)) if isinstance(found, Mapping) else type(found).__name__
        raise HoldfastError(f"{path}: not a state dict, it contains {held}; save only model.state_dict()")
    return found


def _chosen(tensors: Mapping[str, Tensor], path: Path, prefix: str, skip: Sequence[str]) -> dict[str, Tensor]:
    kept = {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
    if not kept:
        raise HoldfastError(f"{path}: no name begins with {prefix!r}; the first is {next(iter(tensors), 'missing')!r}")
    for start in skip:
        if not any(name.startswith(start) for name in kept):
            raise HoldfastError(f"{path}: no name begins with {start!r}, so nothing can be skipped; correct skip")
    return {name: value for name, value in kept.items() if not name.startswith(tuple(skip))}


MAX_NAMES = 40


def check_weights_fit(source: Path, tensors: Mapping[str, Tensor], expected: Mapping[str, Tensor], what: str) -> None:
    """Refuse weights with other names or shapes than ``expected``.

    source: the file, for errors.
    what: what the weights are for ("backbone", "network"), for errors.
    """
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
    more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
    return ", ".join(names[:MAX_NAMES]) + more if names else "none"
