"""The rows of a CSV file that lists images: ``path`` and perhaps ``label``, ``id`` and ``split``."""

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

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
