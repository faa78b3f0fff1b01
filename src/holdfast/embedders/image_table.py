"""Rows of a CSV file that lists images, ``path`` and perhaps ``label``, ``id`` and ``split``; classes of folders."""

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from holdfast.core.errors import HoldfastError, unknown_name
from holdfast.core.untrusted_files import open_table

SPLIT_NAMES = ("train", "val", "valid", "validation", "test", "query", "gallery")
"""Folders of these names are splits if a folder holds no others."""

_COLUMNS = ("path", "label", "id", "split")


@dataclass(frozen=True)
class TableRow:
    """A row of a CSV file of images: the number of its line, and its texts; "" for a column that the file lacks."""

    line: int
    path: str
    label: str = ""
    id: str = ""
    split: str = "train"

    def origin(self, table: Path) -> str:
        return f"{table}, line {self.line}"


def read_table_rows(table: Path, needed: tuple[str, ...]) -> list[TableRow]:
    """The rows of a CSV file with a header. Its columns may have any order.

    needed: columns that it must have; the others of ``path``, ``label``, ``id`` and ``split`` may be missing.
    """
    rows: list[TableRow] = []
    try:
        with open_table(table) as stream:
            reader = csv.reader(stream, strict=True)
            header = [name.strip().lower() for name in next(reader, [])]
            _check_header(table, header, needed)
            rows += (_row(header, fields, reader.line_num, table) for fields in reader if fields)
    except (OSError, UnicodeDecodeError) as error:
        raise HoldfastError(f"{table}: not readable as UTF-8 text ({error})") from error
    except csv.Error as error:
        raise HoldfastError(f"{table}, line {reader.line_num}: {error}") from error
    if not rows:
        raise HoldfastError(f"{table}: no rows after the header")
    return rows


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


def _check_header(table: Path, header: Sequence[str], needed: Sequence[str]) -> None:
    if not set(needed) <= set(header) or len(set(header)) < len(header):
        wanted = f"{','.join(needed)}, perhaps with {' or '.join(name for name in _COLUMNS if name not in needed)}"
        raise HoldfastError(f"{table}, line 1: the header must be {wanted}, each once")
    for name in header:
        if name not in _COLUMNS:
            raise unknown_name(f"column of {table}", name, _COLUMNS)


def _row(header: Sequence[str], fields: Sequence[str], line: int, table: Path) -> TableRow:
    if len(fields) != len(header):
        raise HoldfastError(f"{table}, line {line}: {len(header)} columns expected, found {len(fields)}")
    cells = [field.strip() for field in fields]
    if not all(cells):
        raise HoldfastError(f"{table}, line {line}: an empty field")
    return TableRow(line, **dict(zip(header, cells, strict=True)))
