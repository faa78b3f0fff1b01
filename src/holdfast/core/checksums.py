"""Checksums of a model folder: the hash of every file that a later version is built on."""

import hashlib
from collections.abc import Container
from pathlib import Path

from holdfast.core.errors import HoldfastError
from holdfast.core.storage import read_json, write_json
from holdfast.core.untrusted_files import open_regular

CHECKSUM_FILE = "seal.json"
_SUFFIXES = (".json", ".toml", ".safetensors", ".npy")
_EXCLUDED = (CHECKSUM_FILE, "environment.json", "checkpoint.safetensors")
"""Files about the training, not part of the model."""


def sha256_of(path: Path) -> str:
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_checksums(folder: Path) -> None:
    """Write the checksum file. It is written last, so a folder that has one is complete."""
    write_json(folder / CHECKSUM_FILE, {"sha256": {name: sha256_of(folder / name) for name in _checked_names(folder)}})


def verify_checksums(folder: Path, only: Container[str] | None = None) -> None:
    """Refuse a folder in which a listed file is missing or changed. A folder without a checksum file is accepted.

    only: check only the files of these names; the others may be large.
    """
    if not (folder / CHECKSUM_FILE).exists():
        return
    record = read_json(folder / CHECKSUM_FILE)
    checksums = record.get("sha256") if isinstance(record, dict) else None
    if not isinstance(checksums, dict):
        raise HoldfastError(f"{folder / CHECKSUM_FILE}: not a checksum file; restore the folder from a copy")
    for name, expected in checksums.items():
        if only is not None and name not in only:
            continue
        path = folder / name
        if not path.is_file():
            raise HoldfastError(f"{path}: missing since the model was written; restore the folder from a copy")
        if sha256_of(path) != expected:
            raise HoldfastError(
                f"{path}: changed since the model was written (sha256 differs); restore the folder from a copy"
            )


def _checked_names(folder: Path) -> list[str]:
    files = (path for path in folder.rglob("*") if path.is_file() and path.suffix in _SUFFIXES)
    names = (path.relative_to(folder).as_posix() for path in files)
    return sorted(name for name in names if name not in _EXCLUDED and not name.startswith("."))
