"""Images to embed, from folders, files and CSV tables: their files, ids and, where they are known, classes."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from holdfast.core.errors import HoldfastError
from holdfast.core.problems import Problem
from holdfast.core.wording import first_few
from holdfast.embedders.image_folder import images_with_ids
from holdfast.embedders.image_table import SPLIT_NAMES, read_table_rows


@dataclass(frozen=True)
class ImageSource:
    """Image files with an id each.

    files: paths.
    ids: different texts: the path below its folder, the name of a single file, or what a table says.
    labels: the class of each file; None if it is not known for all of them.
    problems: files and folders that cannot be used, by their names or kinds alone.
    """

    files: tuple[Path, ...]
    ids: tuple[str, ...]
    labels: tuple[str, ...] | None
    problems: tuple[Problem, ...] = ()

    def __len__(self) -> int:
        return len(self.files)


def find_images(sources: Sequence[Path]) -> ImageSource:
    """The images of folders and files, or of one CSV file; nothing is decoded.

    sources: folders (searched with their subfolders, sorted by path) and image files; or one CSV file with a header:
        ``path`` (relative to the CSV file) and perhaps ``label``, ``id`` and ``split``; the split is not used.

    In folders of class folders the first folder below the source is the class, or the second if the first ones are
    called train, test and the like. Refused: no images, two files with the same id.
    """
    tables = [path for path in sources if path.suffix.lower() == ".csv" and not path.is_dir()]
    if tables and len(sources) > 1:
        raise HoldfastError(f"{tables[0]}: a CSV file is given alone, without other sources")
    found = _table(tables[0]) if tables else _files_and_folders(sources)
    _refuse_shared_ids(found)
    return found


def _table(table: Path) -> ImageSource:
    found = read_image_table(table)
    return ImageSource(tuple(table.parent / path for path in found.paths), found.ids, found.labels)


def _files_and_folders(sources: Sequence[Path]) -> ImageSource:
    listed, found = images_with_ids(sources)
    if not listed and not found.problems:
        raise HoldfastError(f"{first_few([str(path) for path in sources])}: no images there")
    ids = tuple(name for name, _ in listed)
    return ImageSource(tuple(file for _, file in listed), ids, classes_of_paths(ids), tuple(found.problems))


def classes_of_paths(paths: Sequence[str]) -> tuple[str, ...] | None:
    """The class of each path: its first folder, or the second if all first ones are names of splits.

    None if a path has no such folder.

    >>> classes_of_paths(["cat/1.jpg", "dog/2.jpg"])
    ('cat', 'dog')
    >>> classes_of_paths(["test/cat/1.jpg", "train/dog/2.jpg"])
    ('cat', 'dog')
    """
    parts = [path.split("/") for path in paths]
    level = 1 if all(one[0] in SPLIT_NAMES for one in parts) else 0
    if any(len(one) < level + 2 for one in parts):
        return None
    return tuple(one[level] for one in parts)


class ImageTable(NamedTuple):
    """The rows of a CSV file: paths as they are written, ids, and labels if there is such a column."""

    paths: tuple[str, ...]
    ids: tuple[str, ...]
    labels: tuple[str, ...] | None


def read_image_table(table: Path) -> ImageTable:
    """Read a CSV file with a header: ``path`` and perhaps ``label``, ``id`` and ``split``."""
    rows = read_table_rows(table, ("path",))
    labels = tuple(row.label for row in rows if row.label)
    return ImageTable(tuple(row.path for row in rows), tuple(row.id or row.path for row in rows), labels or None)


def _refuse_shared_ids(found: ImageSource) -> None:
    seen: dict[str, Path] = {}
    for name, path in zip(found.ids, found.files, strict=True):
        if name in seen:
            raise HoldfastError(
                f"{seen[name]} and {path}: both have the id {name!r}; give the folder above them, or other ids"
            )
        seen[name] = path
