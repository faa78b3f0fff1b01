"""A user's image files: found, hashed, set apart for judging, decoded."""

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from holdfast.data.csv_list import csv_listing
from holdfast.data.folder import folder_listing
from holdfast.data.listing import Listing
from holdfast.errors import HoldfastError
from holdfast.seal import sha256_of


@dataclass(frozen=True)
class Picture:
    """One image file: the name of its class, where it lies, and the hash of its bytes."""

    name: str
    path: Path
    sha256: str


def find_pictures(source: Path) -> list[Picture]:
    """Every image of a folder with one folder per class, or of a CSV file, split ``train`` where there are splits."""
    listing = _listing(source)
    names = [listing.class_names[label] for label in listing.labels]
    paths = [Path(os.path.abspath(file)) for file in listing.files]
    return [Picture(name, path, sha256) for name, path, sha256 in zip(names, paths, hashes(paths), strict=True)]


def hashes(paths: Sequence[Path]) -> list[str]:
    """The hash of each file; threads, because hashing lets go of the interpreter lock."""
    with ThreadPoolExecutor(min(16, os.cpu_count() or 1)) as pool:
        return list(pool.map(sha256_of, paths))


def held_out(pictures: Sequence[Picture], share: float, already: frozenset[str]) -> np.ndarray:
    """Which pictures are for judging and never trained on: N booleans, about ``share`` of them.

    Decided by each file's content alone, so that a picture that comes again with a later version is on the same side;
    ``already`` are hashes that an earlier version held out. Of every class at least one picture is trained on.
    """
    places = np.array([int(picture.sha256[:8], 16) / 16**8 for picture in pictures])
    held = (places < share) | np.array([picture.sha256 in already for picture in pictures], dtype=bool)
    names = np.array([picture.name for picture in pictures])
    for name in np.unique(names):
        rows = np.flatnonzero(names == name)
        if held[rows].all() and not any(pictures[int(row)].sha256 in already for row in rows):
            held[rows[places[rows].argmax()]] = False
    return held


def _listing(source: Path) -> Listing:
    if source.is_dir():
        return folder_listing(source)
    if source.suffix.lower() == ".csv":
        return csv_listing(source)[0]
    if not source.exists():
        raise HoldfastError(f"{source}: no such folder or CSV file")
    raise HoldfastError(f"{source}: neither a folder with one folder per class nor a CSV file of path,label")
