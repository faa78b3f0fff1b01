"""A model folder's seal: the hash of every file that the next version goes on from."""

import hashlib
from collections.abc import Container
from pathlib import Path

from holdfast.errors import HoldfastError
from holdfast.storage import read_json, write_json

SEAL = "seal.json"
_SEALED = (".json", ".toml", ".safetensors", ".npy")
_FREE = (SEAL, "environment.json", "checkpoint.safetensors")
"""What tells of the making and not of the model."""


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def seal(folder: Path) -> None:
    """Write the seal; it comes last, so that a folder with one is whole."""
    write_json(folder / SEAL, {"sha256": {name: sha256_of(folder / name) for name in _names(folder)}})


def refuse_broken_seal(folder: Path, only: Container[str] | None = None) -> None:
    """Refuse a folder in which a sealed file is gone or changed; one without a seal is taken as it is.

    only: look at the files of these names and leave the others, which may be large.
    """
    if not (folder / SEAL).exists():
        return
    record = read_json(folder / SEAL)
    sealed = record.get("sha256") if isinstance(record, dict) else None
    if not isinstance(sealed, dict):
        raise HoldfastError(f"{folder / SEAL}: not a seal; restore the folder as it was written")
    for name, expected in sealed.items():
        if only is not None and name not in only:
            continue
        path = folder / name
        if not path.is_file():
            raise HoldfastError(f"{path}: gone since the model was written; restore the folder as it was")
        if sha256_of(path) != expected:
            raise HoldfastError(
                f"{path}: changed since the model was written (sha256 differs); restore the folder as it was"
            )


def _names(folder: Path) -> list[str]:
    files = (path for path in folder.rglob("*") if path.is_file() and path.suffix in _SEALED)
    names = (path.relative_to(folder).as_posix() for path in files)
    return sorted(name for name in names if name not in _FREE and not name.startswith("."))
