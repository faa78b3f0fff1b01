"""Files of hub models that are on this machine already."""

import os
from pathlib import Path


def cached_snapshot(name: str) -> Path | None:
    """The folder of a hub model's files in the local cache, the newest one; None if it is not there."""
    folder = _cache() / f"models--{name.replace('/', '--')}" / "snapshots"
    found = [file for file in folder.glob("*/config.json") if file.is_file()]  # not links to files that are gone
    return max(found, key=lambda file: file.stat().st_mtime).parent if found else None


def _cache() -> Path:
    """Where the hub's client keeps models, by the variables that it reads."""
    own = os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE")
    if own:
        return Path(own).expanduser()
    cache = os.environ.get("XDG_CACHE_HOME", "~/.cache")
    home = os.environ.get("HF_HOME") or str(Path(cache) / "huggingface")
    return Path(home).expanduser() / "hub"
