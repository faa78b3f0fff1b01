"""An encoder on disk: ``config.json`` says what it is, ``model.safetensors`` holds its weights; a card for people."""

from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from holdfast.backbones.fitting_weights import refuse_misfit
from holdfast.backbones.model_card import write_card
from holdfast.backbones.table import rebuild_backbone
from holdfast.errors import HoldfastError
from holdfast.seal import refuse_broken_seal, sha256_of
from holdfast.storage import read_json, read_tensors, write_json, write_tensors

FORMAT = "holdfast-encoder"
FORMAT_VERSION = 1
CONFIG = "config.json"
WEIGHTS = "model.safetensors"

_REQUIRED = ("backbone", "dim", "feature_dim", "preprocess", "info", "weights_sha256")


def write(folder: Path, description: Mapping[str, Any], state: Mapping[str, Any]) -> None:
    """Write weights, then the description with their hash: a description is never there before its weights."""
    for name, value in state.items():
        if not isinstance(value, Tensor):
            raise HoldfastError(f"cannot save {name}: {type(value).__name__} in a state dict is not a tensor")
    # torch.compile puts a prefix on the names of what it wraps; the saved model is the same, compiled or not.
    tensors = {name.replace("_orig_mod.", ""): value for name, value in state.items()}
    write_tensors(folder / WEIGHTS, tensors, {"format": "pt"})
    head = {"format": FORMAT, "format_version": FORMAT_VERSION, "holdfast_version": _version()}
    weights = sha256_of(folder / WEIGHTS)
    write_card(folder, description, weights)
    write_json(folder / CONFIG, {**head, **description, "weights_sha256": weights})


def read(folder: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The description and the weights, checked to belong together."""
    if not folder.is_dir():
        raise HoldfastError(f"{folder}: no such folder; an encoder is a folder with {CONFIG} and {WEIGHTS}")
    description = read_json(folder / CONFIG)
    if not isinstance(description, dict) or description.get("format") != FORMAT:
        raise HoldfastError(f"{folder / CONFIG}: does not describe a Holdfast encoder")
    version = description.get("format_version")
    if version != FORMAT_VERSION:
        raise HoldfastError(f"{folder / CONFIG}: format version {version!r}, this Holdfast reads {FORMAT_VERSION}")
    absent = [key for key in _REQUIRED if key not in description]
    if absent:
        raise HoldfastError(f"{folder / CONFIG}: lacks {', '.join(absent)}")
    if not isinstance(description["dim"], int) or not isinstance(description["info"], dict):
        raise HoldfastError(f"{folder / CONFIG}: dim must be a whole number and info an object")
    frozen = description.get("frozen", [])
    if not isinstance(frozen, list) or not all(isinstance(name, str) for name in frozen):
        raise HoldfastError(f"{folder / CONFIG}: frozen must be a list of names, found {frozen!r}")
    tensors, _ = read_tensors(folder / WEIGHTS)
    if sha256_of(folder / WEIGHTS) != description["weights_sha256"]:
        raise HoldfastError(f"{folder / WEIGHTS}: not the weights {CONFIG} was written for (sha256 differs)")
    refuse_broken_seal(folder, only=(CONFIG,))
    return description, tensors


def network_of(folder: Path, description: Mapping[str, Any]) -> nn.Module:
    """The network a description names, with random weights."""
    if description["backbone"] is None:
        kind = description.get("backbone_class", "network")
        raise HoldfastError(
            f"{folder}: its backbone is your own {kind}; pass from_pretrained(..., backbone=) a new one"
        )
    try:
        return rebuild_backbone(description["backbone"])
    except HoldfastError as error:
        raise HoldfastError(f"{folder / CONFIG}: {error}") from error


def load(encoder: nn.Module, tensors: Mapping[str, Tensor], folder: Path) -> None:
    """Copy the weights in, which must be exactly the encoder's, and take over their floating dtype."""
    refuse_misfit(folder / WEIGHTS, tensors, encoder.state_dict(), "network")
    dtypes = {value.dtype for value in tensors.values() if value.is_floating_point()}
    if len(dtypes) == 1:
        encoder.to(dtypes.pop())
    with torch.no_grad():
        encoder.load_state_dict(dict(tensors))


def _version() -> str | None:
    try:
        return metadata.version("holdfast")
    except metadata.PackageNotFoundError:
        return None
