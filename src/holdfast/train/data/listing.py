"""Lists of image files with their classes, checked before anything is decoded; the datasets' own text files."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from holdfast.core.errors import HoldfastError
from holdfast.core.wording import counted, first_few
from holdfast.embedders.image_folder import find_files, has_image_suffix
from holdfast.train.data.images import label_map
from holdfast.train.data.root import unsorted_hint

INCOMPLETE_ADVICE = "; complete it, or set incomplete = true to use the files that exist"


@dataclass(frozen=True, eq=False)
class FileListing:
    """Image files with one label each.

    source: the folder (or table) that they come from.
    files: paths.
    labels: int64, indices into ``class_names``.
    class_names: one name per class.
    missing: names of files that the dataset's own text files list but that do not exist.
    """

    source: Path
    files: tuple[Path, ...]
    labels: np.ndarray
    class_names: tuple[str, ...]
    missing: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.files)

    def select(self, kept: np.ndarray) -> "FileListing":
        """The files for which ``kept`` is true; the classes stay the same."""
        return replace(self, files=tuple(self.files[row] for row in np.flatnonzero(kept)), labels=self.labels[kept])

    def only_classes(self, names: Sequence[str]) -> "FileListing":
        """The files of the classes ``names``, labelled in that order."""
        if tuple(names) == self.class_names:
            return self
        labels = label_map(self.class_names, names)[self.labels]
        return replace(self, labels=labels, class_names=tuple(names)).select(labels >= 0)


def make_listing(source: Path, found: Sequence[tuple[Path, int]], class_names: Sequence[str]) -> FileListing:
    """A listing of pairs of file and label."""
    labels = np.array([label for _, label in found], dtype=np.int64)
    return FileListing(source, tuple(file for file, _ in found), labels, tuple(class_names))


def list_named_files(top: Path, named: Sequence[tuple[str, int]], class_names: Sequence[str]) -> FileListing:
    """A listing of pairs of file name in ``top`` and label; names without a file become ``missing``."""
    found, missing = [], []
    for name, label in named:
        file = top / name
        if file.is_file():
            found.append((file, label))
        else:
            missing.append(name)
    return replace(make_listing(top, found, class_names), missing=tuple(missing))


def list_class_folders(top: Path, class_names: Sequence[str]) -> FileListing:
    """The image files under ``top/CLASS/`` for each class. A class without a folder has no files."""
    if not top.is_dir():
        raise HoldfastError(f"{top}: no such folder")
    found = [(file, label) for label, name in enumerate(class_names) for file in list_image_files(top / name)]
    return make_listing(top, found, class_names)


def list_image_files(top: Path) -> list[Path]:
    """Every file below ``top`` that is named like an image, sorted. Links are followed, each folder is visited once."""
    found = find_files(top)
    return sorted([*found.images, *(one.path for one in found.problems if has_image_suffix(one.path.name))])


def check_complete(
    listing: FileListing, *, images: int | None, classes: int, incomplete: bool, per_class: int | None = None
) -> None:
    """Refuse a listing with the wrong number of images or of classes that have images.

    images: expected number of images; None is not checked.
    classes: expected number of classes.
    incomplete: accept any number but zero.
    per_class: expected images of each class, or None; used to name the incomplete classes in the error.
    """
    present = np.unique(listing.labels)
    wrong = []
    if len(present) != classes:
        wrong.append(f"{counted(len(present), 'class')} with images where {classes:,} are expected")
    if images is not None and len(listing) != images:
        wrong.append(f"{counted(len(listing), 'image')} where {images:,} are expected")
    if wrong and not (incomplete and len(listing)):
        parts = _missing_parts(listing, per_class)
        missing = f" ({'; '.join(parts)})" if parts else ""
        raise HoldfastError(f"{listing.source}: {' and '.join(wrong)}{missing}{_advice(listing)}")


def _advice(listing: FileListing) -> str:
    if len(listing):
        return INCOMPLETE_ADVICE
    unsorted = unsorted_hint(listing.source) if listing.source.is_dir() else ""
    return f"; {unsorted}" if unsorted else ""


def _missing_parts(listing: FileListing, per_class: int | None) -> list[str]:
    counts = dict(zip(listing.class_names, np.bincount(listing.labels, minlength=len(listing.class_names)).tolist()))
    empty = [name for name, count in counts.items() if not count]
    odd = [f"{name} has {count} of {per_class}" for name, count in counts.items() if count not in (0, per_class)]
    parts = [f"none of {first_few(empty)}"] if empty else []
    parts += [first_few(odd)] if odd and per_class is not None else []
    return parts + ([f"missing: {first_few(listing.missing)}"] if listing.missing else [])


def read_rows(file: Path, fields: int) -> Iterator[list[str]]:
    """The first ``fields`` blank-separated fields of each line. Empty lines are skipped, shorter ones refused."""
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
