"""Image networks of transformers and timm that are on this machine already, found by their files alone."""

import contextlib
import os
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from holdfast.core.errors import HoldfastError
from holdfast.core.storage import read_json

WEIGHTS = ("model.safetensors", "model.safetensors.index.json")


class CachedNetwork(NamedTuple):
    """A network in the hub's local cache.

    name: ``hf:ID`` or ``timm:NAME``.
    size: bytes of its weights.
    """

    name: str
    size: int


def cached_networks() -> list[str]:
    """Names of the image networks with safetensors weights in the hub's local cache, sorted; nothing is imported.

    A configuration with ``image_size`` or ``num_channels`` at its top counts as that of an image network of
    transformers, one with ``architecture`` as that of timm, which is listed only if timm is installed.
    """
    return sorted(one.name for one in _networks())


def best_cached_network() -> str | None:
    """The network to use if the user leaves the choice: DINO first, then the smallest; None if there is none.

    DINO is trained for neighbours without labels, and the smallest is the fastest to fine-tune.
    """
    found = sorted(_networks(), key=lambda one: ("dino" not in one.name.lower(), one.size, one.name))
    return found[0].name if found else None


def cached_snapshot(name: str) -> Path | None:
    """The folder of a hub model's files in the local cache, the newest one; None if it is not there."""
    folder = _cache() / f"models--{name.replace('/', '--')}" / "snapshots"
    found = [file for file in folder.glob("*/config.json") if file.is_file()]  # not links to files that are gone
    return max(found, key=lambda file: file.stat().st_mtime).parent if found else None


def _networks() -> Iterator[CachedNetwork]:
    try:
        folders = sorted(_cache().glob("models--*"))
    except OSError:
        return
    for folder in folders:
        found = None
        for config in folder.glob("snapshots/*/config.json"):
            with contextlib.suppress(OSError):  # a cache may have links to files that are gone
                found = _network(folder, config)
            if found is not None:
                yield found
                break


def _cache() -> Path:
    """Where the hub's client keeps models, by the variables that it reads."""
    own = os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE")
    if own:
        return Path(own).expanduser()
    cache = os.environ.get("XDG_CACHE_HOME", "~/.cache")
    home = os.environ.get("HF_HOME") or str(Path(cache) / "huggingface")
    return Path(home).expanduser() / "hub"


def _network(folder: Path, config: Path) -> CachedNetwork | None:
    weights = [file for file in config.parent.iterdir() if file.name.startswith("model") and "safetensors" in file.name]
    if not any(file.name in WEIGHTS for file in weights):
        return None
    try:
        found = read_json(config)
    except HoldfastError:
        return None
    size = sum(file.stat().st_size for file in weights)
    name = folder.name.removeprefix("models--").replace("--", "/")
    if isinstance(found, dict) and "architecture" in found:
        is_timm = name.startswith("timm/") and find_spec("timm") is not None
        return CachedNetwork(f"timm:{name.removeprefix('timm/')}", size) if is_timm else None
    takes_images = isinstance(found, dict) and ("image_size" in found or "num_channels" in found)
    return CachedNetwork(f"hf:{name}", size) if takes_images else None
