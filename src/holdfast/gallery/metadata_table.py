"""Metadata of many items in one CSV file: a column that says whose, and a column for each field."""

import csv
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from holdfast.checking.feature_set import some
from holdfast.errors import HoldfastError
from holdfast.gallery.filters import LABEL, LARGEST_WHOLE, Value, check_text, checked_name
from holdfast.gallery.items import MOST_FIELDS

_KEYS = ("id", "path")
_WHOLE = re.compile(r"-?(0|[1-9][0-9]{0,15})")  # 007 is a name, not a number
_NUMBER = re.compile(r"-?((0|[1-9][0-9]{0,15})(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,3})?")
_TRUTH = {"true": True, "false": False}


@dataclass(frozen=True)
class MetadataTable:
    """By id: the fields of an item, a ``label`` among them where ``has_labels``; an empty cell leaves its field out."""

    name: str
    rows: dict[str, dict[str, Value]]
    has_labels: bool

    def of(self, id: str) -> tuple[dict[str, Value], str | None]:
        """Metadata and label of an item; nothing where it has no row."""
        found = dict(self.rows.get(id, {}))
        label = found.pop(LABEL, None)
        return found, None if label is None else str(label)

    def meet(self, ids: Iterable[str], what: str) -> dict[str, int]:
        """How many rows have no item (``what``), and how many items no row; refused where no row has one."""
        asked = set(ids)
        known = len(asked & self.rows.keys())
        if not known:
            called = f"rows are called {some(list(self.rows), 2)}, {what}s {some(sorted(asked), 2)}"
            raise HoldfastError(f"{self.name}: none of its {len(self.rows)} rows names one of the {what}s; {called}")
        return {f"rows_without_{what}": len(self.rows) - known, f"{what}s_without_row": len(asked) - known}


def read_metadata(path: Path) -> MetadataTable:
    """A CSV file in UTF-8, separated by commas, with a header: ``id`` (or ``path``, the same), then fields.

    A column whose cells are all numbers becomes numbers, whole ones where all are whole; true and false likewise; any
    other is text. Numbers with leading zeros, or too large for a store to tell apart, make a column text.
    """
    header, lines = _read(path)
    key = next((name for name in _KEYS if name in header), None)
    if key is None:
        apart = "" if len(header) > 1 else "; columns are separated by commas"
        raise HoldfastError(f"{path}: no column id or path, which say whose a row is; it has {some(header)}{apart}")
    if len(set(header)) < len(header):
        twice = next(name for name in header if header.count(name) > 1)
        raise HoldfastError(f"{path}: two columns are called {twice!r}")
    fields = [name for name in header if name != key]
    if len(fields) > MOST_FIELDS:
        raise HoldfastError(f"{path}: {len(fields)} fields; an item has at most {MOST_FIELDS}")
    rows: dict[str, dict[str, Value]] = {}
    first: dict[str, int] = {}
    cells: dict[str, list[str]] = {name: [] for name in fields}
    for number, line in lines:
        if len(line) != len(header):
            raise HoldfastError(f"{path}: line {number} has {len(line)} cells, the header {len(header)}")
        row = dict(zip(header, line, strict=True))
        name = row[key]
        if not name:
            raise HoldfastError(f"{path}: line {number} has no {key}")
        if name in rows:
            raise HoldfastError(f"{path}: lines {first[name]} and {number} both are {key} {name!r}; keep one")
        rows[name], first[name] = {}, number
        for field in fields:
            cells[field].append(row[field])
    if not rows:
        raise HoldfastError(f"{path}: holds no rows")
    for field in fields:
        try:
            name = field if field == LABEL else checked_name(field)
            values = list(cells[field]) if field == LABEL else _values(cells[field])
            for value in values:
                if isinstance(value, str):
                    check_text(f"field {field!r}", value)
        except HoldfastError as error:
            raise HoldfastError(f"{path}: {error}") from None
        for row_fields, value, cell in zip(rows.values(), values, cells[field], strict=True):
            if cell:
                row_fields[name] = value
    return MetadataTable(str(path), rows, LABEL in fields)


def _read(path: Path) -> tuple[list[str], list[tuple[int, list[str]]]]:
    """Header and rows, each with the number of the line it ends on; empty lines are passed over."""
    found = []
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, strict=True)
            for row in reader:
                if row:
                    found.append((reader.line_num, [cell.strip() for cell in row]))
    except FileNotFoundError:
        raise HoldfastError(f"{path}: no such file") from None
    except UnicodeDecodeError as error:
        raise HoldfastError(f"{path}: not UTF-8 (byte {error.start}); save it as UTF-8") from None
    except (OSError, csv.Error) as error:
        raise HoldfastError(f"{path}: not readable as CSV ({error})") from error
    if not found:
        raise HoldfastError(f"{path}: empty; wanted a header with id and further columns")
    return found[0][1], found[1:]


def _values(cells: list[str]) -> list[Value]:
    """The cells of a column, in the one kind that all of them have; what stands for an empty one is not used."""
    given = [cell for cell in cells if cell]
    if given and all(cell.lower() in _TRUTH for cell in given):
        return [_TRUTH.get(cell.lower(), False) for cell in cells]
    numbers = {cell: _number(cell) for cell in set(given)}
    if not given or None in numbers.values():
        return list(cells)
    kind = int if all(isinstance(number, int) for number in numbers.values()) else float
    return [kind(numbers.get(cell) or 0) for cell in cells]


def _number(cell: str) -> int | float | None:
    if _WHOLE.fullmatch(cell):
        return int(cell) if abs(int(cell)) <= LARGEST_WHOLE else None
    found = float(cell) if _NUMBER.fullmatch(cell) else math.inf
    return found if math.isfinite(found) else None
