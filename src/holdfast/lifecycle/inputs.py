"""Which reader a recipe asks for: image files or vectors.

A user's image files: found, hashed, decoded.

A user's vectors in npz or parquet files: embeddings of text, sound or products, each row an item.

What a version is trained and judged on: one picture or one vector each, known by its content.
"""

import hashlib
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from holdfast.checksums import sha256_of
from holdfast.data.decode import decode
from holdfast.data.listing import Listing
from holdfast.data.readers.image_files import csv_listing, folder_listing
from holdfast.data.readers.vectors import ALL, VECTOR_SUFFIXES, of_split, read_labelled
from holdfast.encoders import Preprocess, VectorInput
from holdfast.errors import HoldfastError
from holdfast.experiments.schema import Recipe
from holdfast.pixels import Colour
from holdfast.wording import counted


@dataclass(frozen=True)
class Picture:
    """One image file, or one vector of a file: the name of its class, the file, and the hash of its bytes."""

    name: str
    path: Path
    sha256: str


class Reader(Protocol):
    """How a user's files are read, as pictures or as vectors."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one item as it is trained on: H x W x C."""

    def find(self, source: Path) -> list[Picture]:
        """Every item of ``source``, split ``train`` where there are splits."""

    def read(self, pictures: Sequence[Picture]) -> np.ndarray:
        """N x ``shape``."""

    def unchanged(self, pictures: Sequence[Picture]) -> list[Picture]:
        """Those that are still there, with the content they had."""

    def called(self, picture: Picture) -> str:
        """Its name in a report."""


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


def holds_vectors(source: Path) -> bool:
    """Whether ``source`` is a file of vectors; folders and CSV files name images."""
    return source.suffix in VECTOR_SUFFIXES and not source.is_dir()


def reader_to_train(recipe: Recipe, preprocess: Preprocess | VectorInput | None) -> Reader:
    """Items as they are trained on. preprocess: of the model before, if there is one."""
    data: Mapping[str, Any] = recipe["data"]
    if "features" not in data:
        return ImageFiles(data["size"], data["colour"])
    return VectorRows(data["features"], data["labels"], preprocess.channels if preprocess else None)


def reader_to_judge(recipe: Recipe, preprocess: Preprocess | VectorInput) -> Reader:
    """Items as ``encode`` sees them."""
    if isinstance(preprocess, VectorInput):
        return reader_to_train(recipe, preprocess)
    return ImageFiles(preprocess.height_width[0], preprocess.colour, preprocess.resize)


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


@dataclass(frozen=True)
class VectorRows:
    """features, labels: what the two arrays or columns are called. width: of a vector; None where any will do yet."""

    features: str
    labels: str
    width: int | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        return 1, 1, self.width or 0

    def find(self, source: Path) -> list[Picture]:
        """Every vector of a file."""
        if source.suffix not in VECTOR_SUFFIXES:
            raise HoldfastError(f"{source}: this model takes vectors; give an npz or parquet file of them")
        rows, classes, said = read_labelled(source, self.features, self.labels)
        self._refuse_other_width(rows, source)
        kept = of_split(said, ALL if said is None else "train", len(rows), source)
        path, names = source.absolute(), classes.astype(str)
        return [Picture(str(names[row]), path, _hash(rows[row])) for row in kept]

    def read(self, pictures: Sequence[Picture]) -> np.ndarray:
        """float32, N x 1 x 1 x D: a vector is an image of one pixel. Rows are found by their content."""
        found: dict[tuple[Path, str], np.ndarray] = {}
        for path in dict.fromkeys(one.path for one in pictures):
            rows, _, _ = read_labelled(path, self.features, self.labels)
            self._refuse_other_width(rows, path)
            found.update({(path, _hash(row)): row for row in rows})
        missing = [one.path for one in pictures if (one.path, one.sha256) not in found]
        if missing:
            raise HoldfastError(f"{missing[0]}: {counted(len(missing), 'vector')} changed while being read")
        vectors = [found[one.path, one.sha256] for one in pictures]
        return np.stack(vectors)[:, None, None, :] if vectors else np.zeros((0, *self.shape), np.float32)

    def unchanged(self, pictures: Sequence[Picture]) -> list[Picture]:
        there: set[tuple[Path, str]] = set()
        for path in dict.fromkeys(one.path for one in pictures if one.path.is_file()):
            rows, _, _ = read_labelled(path, self.features, self.labels)
            there.update((path, _hash(row)) for row in rows)
        return [one for one in pictures if (one.path, one.sha256) in there]

    def called(self, picture: Picture) -> str:
        return f"{picture.path}#{picture.sha256[:16]}"

    def _refuse_other_width(self, rows: np.ndarray, file: Path) -> None:
        if self.width is not None and rows.shape[1] != self.width:
            raise HoldfastError(f"{file}: vectors of {rows.shape[1]} numbers, but the model takes {self.width}")


def _hash(row: np.ndarray) -> str:
    return hashlib.sha256(row.tobytes()).hexdigest()
