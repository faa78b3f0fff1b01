"""Open the model that embeds: a folder or an encoder, with the hash that names it in files of features."""

from pathlib import Path

import torch

from holdfast.encoders import Encoder
from holdfast.encoders.encoder import CONFIG_FILE
from holdfast.errors import HoldfastError
from holdfast.storage import read_json

PathLike = str | Path


def open_model(model: Encoder | PathLike, device: torch.device | str) -> tuple[Encoder, str | None]:
    """The encoder on the device, and the hash of its weights (None without weights or without a folder)."""
    encoder = model.to(device) if isinstance(model, Encoder) else Encoder.from_pretrained(model, device=device)
    if encoder.preprocess is None:
        where = "the encoder" if isinstance(model, Encoder) else str(model)
        raise HoldfastError(f"{where}: has no preprocess, so it cannot embed images or vectors; save it with one")
    if isinstance(model, Encoder) or not encoder.state_dict():
        return encoder, None
    return encoder, read_json(Path(model) / CONFIG_FILE)["weights_sha256"]
