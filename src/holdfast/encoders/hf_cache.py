"""Image networks of transformers that are on this machine already, found by their files alone."""

import os
from pathlib import Path

from holdfast.errors import HoldfastError
from holdfast.storage import read_json

WEIGHTS = ("model.safetensors", "model.safetensors.index.json")


def cached_image_models() -> list[str]:
    """Hub ids of the image networks with safetensors weights in the hub's local cache, sorted; nothing is imported.

    A configuration with ``image_size`` or ``num_channels`` at its top counts as that of an image network.
    """
    try:
        folders = sorted(_cache().glob("models--*"))
    except OSError:
        return []
    return [folder.name.removeprefix("models--").replace("--", "/") for folder in folders if _is_image_model(folder)]


def _cache() -> Path:
    """Where the hub's client keeps models, by the variables that it reads."""
    own = os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE")
    if own:
        return Path(own).expanduser()
    cache = os.environ.get("XDG_CACHE_HOME", "~/.cache")
    home = os.environ.get("HF_HOME") or str(Path(cache) / "huggingface")
    return Path(home).expanduser() / "hub"


def _is_image_model(folder: Path) -> bool:
    for config in folder.glob("snapshots/*/config.json"):
        try:
            found = read_json(config)
        except HoldfastError:
            continue
        takes_images = isinstance(found, dict) and ("image_size" in found or "num_channels" in found)
        if takes_images and any((config.parent / name).exists() for name in WEIGHTS):
            return True
    return False
