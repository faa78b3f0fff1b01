"""Items from files: vectors in npz, npy or parquet, read in blocks, and metadata of many items in one CSV file."""

import csv
import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from holdfast.core.errors import HoldfastError
from holdfast.core.locations import Location, parquet_errors
from holdfast.core.untrusted_files import open_npz, open_table
from holdfast.gallery.filters import LABEL, Value, check_text, checked_name
from holdfast.gallery.gallery_items import Item
from holdfast.gallery.item_limits import LARGEST_WHOLE, MOST_FIELDS
from holdfast.vectors.feature_files import MODEL_NAME, open_parquet, read_features
from holdfast.vectors.feature_set import shorten
from holdfast.vectors.feature_shards import FeatureShards

VECTOR_SUFFIXES = frozenset((".npz", ".npy", ".parquet"))
PATHS = "paths"
_FEATURE_ARRAYS = ("features", "labels", "ids")
_BLOCK_ROWS = 4096


class VectorFile:
    """Vectors with ids and, if the file has them, labels, paths of images and metadata.

    model: the name or hash of the model that made the vectors; None if the file does not say.
    fields: names of further arrays or columns with one text, number or boolean per row; they become metadata. An item
        with a missing value (null, NaN) does not get the field.
    ignored: names of other arrays or columns, each with the reason.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        found = read_features(path, "gallery")
        if found.ids is None:
            where = f"{path.stem}.ids.npy beside it" if path.suffix.lower() == ".npy" else "ids in it"
            raise HoldfastError(f"{path}: has no ids; write {where}, a different text or number for each vector")
        self._rows, self._labels, self._ids = found.rows, found.labels, found.ids
        self.width, self.model = found.dim, found.model
        self.has_labels = found.labels is not None
        problems = _parquet_unusable(path) if path.suffix.lower() == ".parquet" else _npz_unusable(path, len(found))
        self.ignored = {name: reason for name, reason in problems.items() if reason}
        fields = [name for name, reason in problems.items() if not reason and name != PATHS]
        self.fields = fields[:MOST_FIELDS]
        self.ignored |= dict.fromkeys(fields[MOST_FIELDS:], f"an item has at most {MOST_FIELDS} fields")
        self._columns = [name for name in problems if name in self.fields or (name == PATHS and not problems[name])]

    def __len__(self) -> int:
        return len(self._ids)

    def ids(self) -> Iterator[str]:
        return (str(one) for one in self._ids)

    def items(self) -> Iterator[Item]:
        """Every row as an item. Paths in the file are relative to its folder."""
        start = 0
        for columns, count in self._blocks():
            with np.errstate(over="ignore"):  # a number too large for float32 becomes infinite, which is refused later
                vectors = self._rows.block(start, start + count).astype(np.float32, copy=False)
            for row in range(count):
                values = {
                    name: value for name, column in columns.items() if (value := _present(column[row])) is not None
                }
                path = values.pop(PATHS, None) or None  # an array of texts has "" where there is none
                yield Item(
                    str(self._ids[start + row]),
                    vector=vectors[row],
                    metadata=values,
                    label=None if self._labels is None else str(self._labels[start + row]),
                    path=None if path is None else self.path.parent / str(path),
                )
            start += count

    def _blocks(self) -> Iterator[tuple[dict[str, list[Value | None]], int]]:
        """Metadata columns of a block of rows, and the number of rows, in the file's order."""
        if self.path.suffix.lower() == ".parquet" and self._columns:
            file, _ = open_parquet(self.path, set(self._columns))
            batches = file.iter_batches(_BLOCK_ROWS, columns=self._columns)
            while True:
                with parquet_errors(self.path):
                    batch = next(batches, None)
                    if batch is None:
                        return
                    columns = {name: batch.column(name).to_pylist() for name in self._columns}
                yield columns, len(batch)
        arrays = _npz_arrays(self.path, self._columns) if self._columns else {}
        for start in range(0, len(self), _BLOCK_ROWS):
            stop = min(len(self), start + _BLOCK_ROWS)
            yield {name: array[start:stop].tolist() for name, array in arrays.items()}, stop - start


class ShardFolder:
    """A folder of shards as ``holdfast embed`` writes it; used like a ``VectorFile``.

    model: the hash of the model that made the vectors.
    """

    def __init__(self, path: Location) -> None:
        self._shards = FeatureShards(path)
        self.model = self._shards.manifest.model
        self.width = self._shards.manifest.dim
        self.has_labels = self._shards.manifest.labels
        self.ignored: dict[str, str] = {}

    def __len__(self) -> int:
        return self._shards.count()

    def ids(self) -> Iterator[str]:
        return self._shards.ids()

    def items(self) -> Iterator[Item]:
        """Every vector as an item; the next shard is read when all of one are used."""
        for shard in self._shards:
            for row, name in enumerate(shard.ids):
                yield Item(
                    name,
                    vector=shard.vectors[row],
                    label=None if shard.labels is None else shard.labels[row],
                    path=None if shard.paths is None else shard.paths[row],
                )


def _npz_unusable(path: Path, count: int) -> dict[str, str]:
    """The other arrays of an npz file, by name: why the array cannot be metadata, "" if it can. Empty for npy."""
    if path.suffix.lower() != ".npz":
        return {}
    with open_npz(path) as pack:
        names = pack.names
    found = {}
    for name in (name for name in names if name not in _FEATURE_ARRAYS):
        found[name] = _bad_name(name)
        if not found[name]:
            try:
                array = _npz_arrays(path, [name])[name]
                if name == MODEL_NAME and array.ndim == 0:
                    del found[name]  # the name of the model that made the vectors
                else:
                    found[name] = _bad_array(array, count)
            except HoldfastError:
                found[name] = "not readable as a plain array"
    return found


def _bad_array(array: np.ndarray, count: int) -> str:
    longer_than_double = array.dtype.kind == "f" and array.dtype.itemsize > 8
    if array.shape != (count,) or array.dtype.kind not in "iufbU" or longer_than_double:
        return f"{array.dtype} of shape {array.shape}, not one text or number a row"
    return _too_large(int(array.min()), int(array.max())) if array.dtype.kind in "iu" else ""


def _npz_arrays(path: Path, names: list[str]) -> dict[str, np.ndarray]:
    with open_npz(path) as pack:
        return {name: pack.array(name) for name in names}


def _parquet_unusable(path: Path) -> dict[str, str]:
    """As ``_npz_unusable``, for the columns of a parquet file."""
    file, names = open_parquet(path, set())
    with parquet_errors(path):
        return {name: _bad_name(name) or _bad_column(file, name) for name in names if name not in _FEATURE_ARRAYS}


def _bad_column(file: Any, name: str) -> str:
    import pyarrow.compute
    import pyarrow.types as kinds

    if len(file.schema_arrow.get_all_field_indices(name)) > 1:
        return "several columns have this name"
    kind = file.schema_arrow.field(name).type
    if kinds.is_integer(kind):
        ends = pyarrow.compute.min_max(file.read(columns=[name]).column(0)).as_py()
        return _too_large(ends["min"] or 0, ends["max"] or 0)
    plain = kind.value_type if kinds.is_dictionary(kind) else kind
    checks = (kinds.is_floating, kinds.is_boolean, kinds.is_string, kinds.is_large_string)
    return "" if any(check(plain) for check in checks) else f"{kind}, not text or numbers"


def _too_large(least: int, most: int) -> str:
    return "" if least >= -LARGEST_WHOLE and most <= LARGEST_WHOLE else "whole numbers beyond 2^53; write them as text"


def _bad_name(name: str) -> str:
    if name == LABEL:
        return "classes are called labels"
    try:
        checked_name(name)
    except HoldfastError:
        return "a field is named by letters, digits and underscores, no digit first"
    return ""


def _present(value: Value | None) -> Value | None:
    return None if isinstance(value, float) and math.isnan(value) else value


_KEYS = ("id", "path")
_BOOLEANS = {"true": True, "false": False}


@dataclass(frozen=True)
class MetadataTable:
    """Metadata read from a CSV file.

    name: of the file.
    rows: fields by id, with ``label`` among them if ``has_labels``. An empty cell gives no field.
    """

    name: str
    rows: dict[str, dict[str, Value]]
    has_labels: bool

    def fields_of(self, id: str) -> tuple[dict[str, Value], str | None]:
        """Metadata and label of an item; empty and None if it has no row."""
        found = dict(self.rows.get(id, {}))
        label = found.pop(LABEL, None)
        return found, None if label is None else str(label)

    def count_unmatched(self, ids: Iterable[str], what: str) -> dict[str, int]:
        """How many rows have no item, and how many items no row; refused if no row has an item.

        what: "image" or "vector", for the names of the counts.
        """
        given = set(ids)
        known = len(given & self.rows.keys())
        if not known:
            called = f"rows are called {shorten(list(self.rows), 2)}, {what}s {shorten(sorted(given), 2)}"
            raise HoldfastError(f"{self.name}: none of its {len(self.rows)} rows names one of the {what}s; {called}")
        return {f"rows_without_{what}": len(self.rows) - known, f"{what}s_without_row": len(given) - known}


def read_metadata(path: Path) -> MetadataTable:
    """Read a CSV file in UTF-8, separated by commas, with a header: ``id`` (or ``path``) and one column per field.

    A column of numbers as JSON writes them becomes numbers, and a column of true and false becomes booleans. Any other
    column is text, also one that has numbers with leading zeros or beyond 2^53.
    """
    (_, header), *lines = _read(path)
    key = next((name for name in _KEYS if name in header), None)
    if key is None:
        apart = "" if len(header) > 1 else "; columns are separated by commas"
        raise HoldfastError(
            f"{path}: no column id or path to say which item a row belongs to; it has {shorten(header)}{apart}"
        )
    twice = next((name for name in header if header.count(name) > 1), None)
    if twice is not None:
        raise HoldfastError(f"{path}: two columns are called {twice!r}")
    if len(header) - 1 > MOST_FIELDS:
        raise HoldfastError(f"{path}: {len(header) - 1} fields; an item has at most {MOST_FIELDS}")
    first: dict[str, int] = {}  # the line of each id
    for number, cells in lines:
        if len(cells) != len(header):
            raise HoldfastError(f"{path}: line {number} has {len(cells)} cells, the header {len(header)}")
        name = cells[header.index(key)]
        if not name:
            raise HoldfastError(f"{path}: line {number} has no {key}")
        if name in first:
            raise HoldfastError(f"{path}: lines {first[name]} and {number} both are {key} {name!r}; keep one")
        first[name] = number
    if not first:
        raise HoldfastError(f"{path}: holds no rows")
    rows: dict[str, dict[str, Value]] = {name: {} for name in first}
    for place, field in enumerate(header):
        if field == key:
            continue
        try:
            name = field if field == LABEL else checked_name(field)
            values = _values([cells[place] for _, cells in lines], text=field == LABEL)
            for fields, value in zip(rows.values(), values, strict=True):
                if isinstance(value, str):
                    check_text(f"field {field!r}", value)
                if value is not None:
                    fields[name] = value
        except HoldfastError as error:
            raise HoldfastError(f"{path}: {error}") from None
    return MetadataTable(str(path), rows, LABEL in header)


def _read(path: Path) -> list[tuple[int, list[str]]]:
    """The rows, the header first, each with the number of its last line; empty lines are skipped."""
    try:
        with open_table(path) as file:
            reader = csv.reader(file, strict=True)
            rows = [(reader.line_num, [cell.strip() for cell in row]) for row in reader if row]
    except UnicodeDecodeError as error:
        raise HoldfastError(f"{path}: not UTF-8 (byte {error.start}); save it as UTF-8") from None
    except (OSError, csv.Error) as error:
        raise HoldfastError(f"{path}: not readable as CSV ({error})") from error
    if not rows:
        raise HoldfastError(f"{path}: empty; wanted a header with id and further columns")
    return rows


def _values(cells: list[str], *, text: bool) -> list[Value | None]:
    """The cells of a column in the type that all of them have; None for an empty cell."""
    values = [_value(cell) for cell in cells]
    kinds = {type(value) for value, cell in zip(values, cells, strict=True) if cell}
    if text or not (kinds <= {bool} or kinds <= {int, float}):
        values = list(cells)
    return [value if cell else None for value, cell in zip(values, cells, strict=True)]


def _value(cell: str) -> Value:
    if cell.lower() in _BOOLEANS:
        return _BOOLEANS[cell.lower()]
    try:
        value = json.loads(cell, parse_constant=str)
    except (ValueError, RecursionError):
        return cell
    is_number = isinstance(value, int | float) and math.isfinite(value)
    return value if is_number and (isinstance(value, float) or abs(value) <= LARGEST_WHOLE) else cell
