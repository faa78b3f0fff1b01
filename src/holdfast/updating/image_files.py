"""A user's image files: found, hashed, decoded."""

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from holdfast.data.csv_list import csv_listing
from holdfast.data.decode import decode
from holdfast.data.folder import folder_listing
from holdfast.data.listing import Listing
from holdfast.errors import HoldfastError
from holdfast.pixels import Colour
from holdfast.seal import sha256_of
from holdfast.updating.pictures import Picture


@dataclass(frozen=True)
class ImageFiles:
    """How pictures are decoded: the side of the square, the colour, and the shorter side before it is cut out."""

    size: int
    colour: Colour
    resize: int | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        return self.size, self.size, 3 if self.colour == "rgb" else 1

    def find(self, source: Path) -> list[Picture]:
        """Every image of a folder with one folder per class, or of a CSV file."""
        listing = _listing(source)
        names = [listing.class_names[label] for label in listing.labels]
        paths = [Path(os.path.abspath(file)) for file in listing.files]
        return [Picture(name, path, sha256) for name, path, sha256 in zip(names, paths, _hashes(paths), strict=True)]

    def read(self, pictures: Sequence[Picture]) -> np.ndarray:
        """uint8, N x size x size x C."""
        return decode([one.path for one in pictures], size=self.size, colour=self.colour, resize=self.resize)

    def unchanged(self, pictures: Sequence[Picture]) -> list[Picture]:
        there = [one for one in pictures if one.path.is_file()]
        now = _hashes([one.path for one in there])
        return [one for one, found in zip(there, now, strict=True) if one.sha256 == found]

    def called(self, picture: Picture) -> str:
        return str(picture.path)


def _hashes(paths: Sequence[Path]) -> list[str]:
    """The hash of each file; threads, because hashing lets go of the interpreter lock."""
    with ThreadPoolExecutor(min(16, os.cpu_count() or 1)) as pool:
        return list(pool.map(sha256_of, paths))


def _listing(source: Path) -> Listing:
    if source.is_dir():
        return folder_listing(source)
    if source.suffix.lower() == ".csv":
        return csv_listing(source)[0]
    if not source.exists():
        raise HoldfastError(f"{source}: no such folder or CSV file")
    raise HoldfastError(f"{source}: neither a folder with one folder per class nor a CSV file of path,label")
