"""Image files with their classes, listed and counted before anything is decoded.

The small text files beside datasets: one row per line, fields between blanks.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from holdfast.data.decode import IMAGE_SUFFIXES
from holdfast.data.images import renumbering
from holdfast.data.root import unsorted_files
from holdfast.errors import HoldfastError
from holdfast.wording import counted, first_few


@dataclass(frozen=True, eq=False)
class Listing:
    """``files`` with one label each; for errors, ``source``, the folder they were found in, and ``missing``, the names
    of files that the set lists of itself and that are not there."""

    source: Path
    files: tuple[Path, ...]
    labels: np.ndarray
    class_names: tuple[str, ...]
    missing: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.files)

    def select(self, kept: np.ndarray) -> "Listing":
        """The files where ``kept`` is true; the classes stay."""
        return replace(self, files=tuple(self.files[row] for row in np.flatnonzero(kept)), labels=self.labels[kept])

    def only_classes(self, names: Sequence[str]) -> "Listing":
        """The files of the classes ``names``, numbered in that order."""
        if tuple(names) == self.class_names:
            return self
        labels = renumbering(self.class_names, names)[self.labels]
        return replace(self, labels=labels, class_names=tuple(names)).select(labels >= 0)


def listed(source: Path, found: Sequence[tuple[Path, int]], class_names: Sequence[str]) -> Listing:
    """A listing from pairs of file and label."""
    labels = np.array([label for _, label in found], dtype=np.int64)
    return Listing(source, tuple(file for file, _ in found), labels, tuple(class_names))


def listed_if_there(top: Path, named: Sequence[tuple[str, int]], class_names: Sequence[str]) -> Listing:
    """A listing from pairs of a name below ``top`` and a label, as a set's own text files have them."""
    found, missing = [], []
    for name, label in named:
        file = top / name
        if file.is_file():
            found.append((file, label))
        else:
            missing.append(name)
    return replace(listed(top, found, class_names), missing=tuple(missing))


def class_folders(top: Path, class_names: Sequence[str]) -> Listing:
    """The image files under ``top/CLASS/`` for each class; a class whose folder is missing has none."""
    if not top.is_dir():
        raise HoldfastError(f"{top}: no such folder")
    found = [(file, label) for label, name in enumerate(class_names) for file in image_files(top / name)]
    return listed(top, found, class_names)


def image_files(top: Path) -> list[Path]:
    """Every image below ``top``, by name, each folder visited once even where links make a loop."""
    files: list[Path] = []
    seen: set[str] = set()
    for where, folders, names in os.walk(top, followlinks=True):
        real = os.path.realpath(where)
        if real in seen:
            folders.clear()
            continue
        seen.add(real)
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        files += [
            Path(where, name)
            for name in sorted(names)
            if not name.startswith(".") and os.path.splitext(name)[1].lower() in IMAGE_SUFFIXES
        ]
    return files


def refuse_if_incomplete(
    listing: Listing, *, images: int | None, classes: int, incomplete: bool, per_class: int | None = None
) -> None:
    """Compare with how many images and classes (with an image) the set has; ``incomplete`` takes what is there.

    The error names the first classes without an image, the first with another number of them than ``per_class``, where
    that is known, and the first files, where the set says what they are called.
    An empty listing is refused in any case.
    """
    present = np.unique(listing.labels)
    wrong = []
    if len(present) != classes:
        wrong.append(f"{counted(len(present), 'class')} with images where {classes:,} are expected")
    if images is not None and len(listing) != images:
        wrong.append(f"{counted(len(listing), 'image')} where {images:,} are expected")
    if wrong and not (incomplete and len(listing)):
        lacks = _lacks(listing, per_class)
        without = f" ({'; '.join(lacks)})" if lacks else ""
        raise HoldfastError(f"{listing.source}: {' and '.join(wrong)}{without}{_way_out(listing)}")


def _way_out(listing: Listing) -> str:
    if len(listing):
        return "; complete it, or set incomplete = true to go on with what is there"
    unsorted = unsorted_files(listing.source) if listing.source.is_dir() else ""
    return f"; {unsorted}" if unsorted else ""


def _lacks(listing: Listing, per_class: int | None) -> list[str]:
    counts = dict(zip(listing.class_names, np.bincount(listing.labels, minlength=len(listing.class_names)).tolist()))
    empty = [name for name, count in counts.items() if not count]
    odd = [f"{name} has {count} of {per_class}" for name, count in counts.items() if count not in (0, per_class)]
    lacks = [f"none of {first_few(empty)}"] if empty else []
    lacks += [first_few(odd)] if odd and per_class is not None else []
    return lacks + ([f"missing: {first_few(listing.missing)}"] if listing.missing else [])


def rows(file: Path, fields: int) -> Iterator[list[str]]:
    """The first ``fields`` fields of each line; empty lines are passed over, shorter ones refused."""
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        raise HoldfastError(f"{file}: no such file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise HoldfastError(f"{file}: not readable as text ({error})") from error
    for number, line in enumerate(lines, start=1):
        found = line.split()
        if found and len(found) < fields:
            raise HoldfastError(f"{file}, line {number}: {fields} fields expected, found {len(found)}")
        if found:
            yield found[:fields]


def number_pairs(file: Path) -> Iterator[tuple[int, int]]:
    """The first two fields of each line, both whole numbers."""
    for first, second in rows(file, 2):
        try:
            yield int(first), int(second)
        except ValueError:
            raise HoldfastError(f"{file}: two whole numbers expected, found {first} {second}") from None
