"""Vectors in tables of other tools: JSON lines, CSV with ``[...]`` in a column, folders of Hugging Face ``datasets``.

Rows are copied to an unnamed temporary file, so that they need not fit into memory. Nothing is unpickled.
"""

import csv
import json
import struct
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from holdfast.core.errors import HoldfastError, first_line
from holdfast.core.locations import parquet_errors, pyarrow_for
from holdfast.core.untrusted_files import bounded_lines, check_regular, open_table, read_json
from holdfast.core.wording import printable
from holdfast.vectors.feature_set import ArrayRows, FeatureSet, MappedRows, Rows

_BATCH = 8192
_IDS, _LABELS = ("ids", "id", "_id"), ("labels", "label")
_LONGEST_FIELD = 2**23


class Columns(NamedTuple):
    """Names of a table's columns, or of an npz file's arrays; None: by rule.

    id: default ``ids``, ``id`` or ``_id``, if there is one.
    vector: default ``features``, or else the only column that holds vectors.
    label: default ``labels`` or ``label``, if there is one.
    """

    id: str | None = None
    vector: str | None = None
    label: str | None = None

    def choose(self, source: str, names: Sequence[str], vectors: Sequence[str]) -> "Columns":
        """The columns to read; id and label are None if there is none.

        names: all columns that the file has. vectors: those that may hold vectors.
        """
        for option, name in zip(("--id", "--vector", "--label"), self):
            if name is not None and name not in names:
                has = ", ".join(map(printable, names)) or "none"
                raise HoldfastError(f"{source}: no column {printable(name)} ({option}); it has {has}")
        # A column that is named for something else is not the vectors.
        possible = [name for name in vectors if name not in (self.id, self.label)]
        vector = self.vector
        if vector is None and ("features" in names or len(possible) == 1):
            vector = "features" if "features" in names else possible[0]
        if vector is None:
            has = ", ".join(map(printable, names)) or "nothing"
            which = f"several may hold the vectors ({', '.join(map(printable, possible))})"
            raise HoldfastError(
                f"{source}: {which if possible else 'no column holds vectors'}; it has {has}; name one with --vector"
            )
        id_, label = (
            named if named is not None else next((name for name in usual if name in names and name != vector), None)
            for named, usual in ((self.id, _IDS), (self.label, _LABELS))
        )
        return Columns(id_, vector, label)

    def refuse(self, source: str, kind: str) -> None:
        """Raise an error if a column is named; for files that have no named columns."""
        if any(name is not None for name in self):
            raise HoldfastError(f"{source}: {kind} has no named columns; leave out --id, --vector and --label")


BY_RULE = Columns()
"""No column is named."""


class CopiedRows:
    """Rows of a table, copied block by block to an unnamed temporary file. All blocks have one size and one type.

    most: bytes after which the file is refused; None: no limit.
    """

    def __init__(self, source: str, column: str, most: float | None = None) -> None:
        self._source, self._column, self._most = source, printable(column), most
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 (must stay open as long as the rows mapped from it)
        self._dtype: np.dtype | None = None
        self.count, self._dim = 0, -1

    def add(self, block: np.ndarray) -> None:
        """Append n x d numbers."""
        if block.dtype.kind not in "fiu" or block.ndim != 2 or (self._dim not in (-1, block.shape[1])):
            self._refuse()
        self._dtype, self._dim = self._dtype or block.dtype, block.shape[1]
        self._file.write(np.ascontiguousarray(block, self._dtype).tobytes())
        self.count += len(block)
        if self._most is not None and self._file.tell() > self._most:
            raise HoldfastError(f"{self._source}: its vectors are far larger than the file; write them as npz")

    def add_lists(self, lists: Any) -> None:
        """Append an arrow array of lists."""
        if lists.null_count:
            raise HoldfastError(f"{self._source}: {lists.null_count} rows without {self._column}; leave them out")
        if len(lists):
            values = np.asarray(lists.flatten().to_numpy(zero_copy_only=False))
            fixed = hasattr(lists.type, "list_size")
            if len(values) % len(lists) or (not fixed and len(set(lists.value_lengths().to_pylist())) > 1):
                self._refuse()
            self.add(values.reshape(len(lists), -1))

    def rows(self) -> Rows:
        """What was copied; refused if that is nothing."""
        if self.count == 0:
            raise HoldfastError(f"{self._source}: holds no rows")
        self._file.flush()
        if self._dim == 0 or self._dtype is None:
            return ArrayRows(np.empty((self.count, 0)))
        return MappedRows(self._file, self._dtype, (self.count, self._dim), 0, "C")

    def _refuse(self) -> None:
        as_first = f", {self._dim} as the first" if self._dim > 0 else ""
        raise HoldfastError(f"{self._source}: '{self._column}' must hold lists of numbers, all of one length{as_first}")


def holds_lists(kind: Any) -> bool:
    """Whether an arrow type is one of lists of numbers."""
    from pyarrow import types

    lists = types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
    return bool(lists and (types.is_floating(kind.value_type) or types.is_integer(kind.value_type)))


def read_json_lines(path: Path, columns: Columns) -> FeatureSet:
    """One JSON object per line: ``{"id": "a", "vector": [0.1, ...], "label": "cat"}``. Other values are ignored."""

    def records() -> Iterator[tuple[int, dict[str, Any]]]:
        with open_table(path) as file:
            for number, line in enumerate(bounded_lines(file, path), start=1):
                if line.strip():
                    try:
                        value = json.loads(line)
                    except (RecursionError, ValueError) as error:
                        raise HoldfastError(f"{path}: line {number}: not JSON ({first_line(error)})") from None
                    if not isinstance(value, dict):
                        raise HoldfastError(f'{path}: line {number}: must be an object, such as {{"id": ...}}')
                    yield number, value

    def vector(cell: Any) -> Any:
        return cell if isinstance(cell, list) else None

    def names(first: dict[str, Any]) -> Columns:
        return columns.choose(str(path), list(first), [name for name, cell in first.items() if vector(cell)])

    return _read_records(path, records(), names, vector)


def read_csv(path: Path, columns: Columns) -> FeatureSet:
    """CSV with a header, where a vector is a cell such as ``[0.1, 0.2]``; pandas writes NumPy arrays so."""

    def records() -> Iterator[tuple[int, dict[str, Any]]]:
        before = csv.field_size_limit(_LONGEST_FIELD)
        try:
            with open_table(path) as file:
                reader = csv.reader(bounded_lines(file, path), strict=True)
                header = [name.strip() for name in next(reader, [])]
                if len(set(header)) < len(header) or not all(header):
                    raise HoldfastError(f"{path}: line 1: a column has no name, or two have the same: {header}")
                for cells in reader:
                    if cells:
                        if len(cells) != len(header):
                            where = f"{path}: line {reader.line_num}"
                            raise HoldfastError(f"{where}: {len(header)} columns expected, found {len(cells)}")
                        yield reader.line_num, dict(zip(header, cells))
        except csv.Error as error:
            raise HoldfastError(f"{path}: not readable as CSV ({error})") from error
        finally:
            csv.field_size_limit(before)

    def vector(cell: Any) -> Any:
        text = cell.strip()
        if not (text.startswith("[") and text.endswith("]")):
            return None
        if "..." in text:
            raise HoldfastError(
                f"{path}: vectors were shortened when they were written ('...'); write lists of numbers"
            )
        return text[1:-1].replace(",", " ").split()

    def names(first: dict[str, Any]) -> Columns:
        return columns.choose(str(path), list(first), [name for name, cell in first.items() if vector(cell)])

    return _read_records(path, records(), names, vector, text=True)


def _read_records(
    path: Path, records: Iterable[tuple[int, dict[str, Any]]], names: Any, vector: Any, *, text: bool = False
) -> FeatureSet:
    """Vectors, ids and labels of records with their line numbers.

    names: gives the columns for the first record. vector: gives the list of a cell, or None. text: all cells are text.
    """
    chosen: Columns | None = None
    copied: CopiedRows | None = None
    block: list[Any] = []
    kept: dict[str, list[Any]] = {}
    try:
        for number, record in records:
            if chosen is None or copied is None:
                chosen = names(record)
                copied = CopiedRows(str(path), chosen.vector or "")
                kept = {name: [] for name in (chosen.id, chosen.label) if name is not None}
            where = f"{path}: line {number}"
            numbers = _numbers(vector(record.get(chosen.vector or "")), where, chosen.vector or "")
            if block and len(numbers) != len(block[0]):
                raise HoldfastError(f"{where}: {len(numbers)} numbers, but {len(block[0])} before")
            block.append(numbers)
            for name, cells in kept.items():
                cell = record.get(name)
                if not (isinstance(cell, str) and cell) and type(cell) is not int:
                    raise HoldfastError(
                        f"{where}: {printable(name)} must be text or a whole number, found {cell!r:.60}"
                    )
                cells.append(cell)
            if len(block) == _BATCH:
                copied.add(np.stack(block))
                block.clear()
    except (OSError, UnicodeDecodeError) as error:
        raise HoldfastError(f"{path}: not readable as UTF-8 text ({error})") from error
    if chosen is None or copied is None:
        raise HoldfastError(f"{path}: holds no rows")
    if block:
        copied.add(np.stack(block))
    ids, labels = (
        None if name is None else names_or_numbers(kept[name], parse=text) for name in (chosen.id, chosen.label)
    )
    return FeatureSet(str(path), copied.rows(), labels, ids)


def _numbers(cells: Any, where: str, column: str) -> np.ndarray:
    try:
        array = np.array(cells, dtype=np.float64)
    except (ValueError, TypeError, OverflowError):
        array = np.empty(0)
    if cells is None or array.ndim != 1 or not len(array):
        raise HoldfastError(f"{where}: '{printable(column)}' must be a list of numbers")
    return array


def names_or_numbers(cells: list[Any], *, parse: bool = False) -> np.ndarray:
    """Ids or labels as one type: whole numbers if all are, else text. parse: cells are texts, perhaps of numbers."""
    if parse:
        try:
            numbers = [int(cell) for cell in cells] if all(len(cell) < 19 for cell in cells) else None
        except ValueError:
            numbers = None
        if numbers is not None and all(str(number) == cell for number, cell in zip(numbers, cells)):
            cells = numbers
    if all(type(cell) is int and -(2**63) <= cell < 2**63 for cell in cells):
        return np.array(cells, dtype=np.int64)
    return np.array([str(cell) for cell in cells], dtype=object)


def is_datasets_folder(folder: Path) -> bool:
    """Whether Hugging Face ``datasets`` wrote this folder (``save_to_disk``), or it holds its ``.arrow`` files."""
    known = ("state.json", "dataset_dict.json")
    return any((folder / name).exists() for name in known) or any(folder.glob("*.arrow"))


def read_datasets_folder(folder: Path, columns: Columns) -> FeatureSet:
    """A folder that ``datasets`` wrote. Needs pyarrow, not ``datasets``."""
    if (folder / "dataset_dict.json").exists():
        found = read_json(folder / "dataset_dict.json")
        splits = found.get("splits") if isinstance(found, dict) else None
        named = ", ".join(printable(str(name)) for name in splits) if isinstance(splits, list) else "several"
        raise HoldfastError(f"{folder}: holds the splits {named}; name the folder of one")
    files = _data_files(folder)
    pyarrow = pyarrow_for(folder)
    copied: CopiedRows | None = None
    chosen: Columns | None = None
    kept: dict[str, list[Any]] = {}
    for file in files:
        check_regular(file)
        with parquet_errors(file):
            _refuse_compressed(file)
            with pyarrow.memory_map(str(file)) as source, _open_arrow(pyarrow, source) as reader:
                schema = reader.schema
                possible = [field.name for field in schema if holds_lists(field.type)]
                picked = columns.choose(str(file), schema.names, possible)
                _must_hold_lists(file, picked.vector, possible, schema)
                if copied is None:
                    chosen = picked
                    copied = CopiedRows(str(folder), picked.vector or "")
                    kept = {name: [] for name in (picked.id, picked.label) if name is not None}
                elif picked != chosen:
                    raise HoldfastError(f"{file}: has other columns than {files[0].name}")
                for batch in _batches(reader):
                    for name in picked:
                        if name is not None:
                            batch.column(name).validate(full=True)  # forged offsets would be read beyond their end
                    copied.add_lists(batch.column(picked.vector))
                    for name, cells in kept.items():
                        cells += batch.column(name).to_pylist()
    if copied is None or chosen is None:
        raise HoldfastError(f"{folder}: holds no rows")
    ids, labels = (None if name is None else _whole(kept[name], folder, name) for name in (chosen.id, chosen.label))
    return FeatureSet(str(folder), copied.rows(), labels, ids)


def _must_hold_lists(file: Path, vector: str | None, possible: Sequence[str], schema: Any) -> None:
    if vector not in possible:
        kind = schema.field(vector).type
        raise HoldfastError(f"{file}: '{printable(vector or '')}' must hold lists of numbers, not {kind}")


def _whole(cells: list[Any], folder: Path, name: str) -> np.ndarray:
    for row, cell in enumerate(cells):
        if not isinstance(cell, str) and type(cell) is not int:
            raise HoldfastError(f"{folder}: row {row}: {printable(name)} must be text or a whole number")
    return names_or_numbers(cells)


def _data_files(folder: Path) -> list[Path]:
    """The arrow files in the order of ``state.json``, or of their names."""
    if not (folder / "state.json").exists():
        return sorted(folder.glob("*.arrow"))
    state = read_json(folder / "state.json")
    listed = state.get("_data_files") if isinstance(state, dict) else None
    if not isinstance(listed, list) or not listed or state.get("_indices_data_files"):
        raise HoldfastError(f"{folder}: state.json names no data files, or indices into them; save the dataset again")
    names = [entry.get("filename") if isinstance(entry, dict) else None for entry in listed]
    for name in names:
        if not isinstance(name, str) or Path(name).name != name:
            raise HoldfastError(f"{folder}: state.json names {name!r:.80}, which is no file of the folder")
    return [folder / str(name) for name in names]


def _open_arrow(pyarrow: Any, source: Any) -> Any:
    start = source.read(6)
    source.seek(0)
    return (pyarrow.ipc.open_file if start == b"ARROW1" else pyarrow.ipc.open_stream)(source)


def _batches(reader: Any) -> Iterator[Any]:
    if hasattr(reader, "num_record_batches"):
        yield from (reader.get_batch(number) for number in range(reader.num_record_batches))
    else:
        yield from reader


def _refuse_compressed(file: Path) -> None:
    """Refuse compressed buffers, which may be any number of times larger: ``datasets`` never writes them."""
    import pyarrow

    with pyarrow.memory_map(str(file)) as source:
        if source.read(6) == b"ARROW1":
            raise HoldfastError(
                f"{file}: an arrow file, and not the stream that datasets writes; write parquet instead"
            )
        source.seek(0)
        for message in pyarrow.ipc.MessageReader.open_stream(source):
            if message.type in ("record batch", "dictionary") and _is_compressed(bytes(message.metadata)):
                raise HoldfastError(
                    f"{file}: has compressed buffers, which datasets never writes; write parquet instead"
                )


def _is_compressed(metadata: bytes) -> bool:
    """Whether the flatbuffer of an arrow message of a record batch, or of a dictionary, has a compression."""

    def field(table: int, number: int) -> int | None:
        """The position of a field of the table at this position; None if it is not there."""
        layout = table - struct.unpack_from("<i", metadata, table)[0]
        if 4 + 2 * number >= struct.unpack_from("<H", metadata, layout)[0]:
            return None
        offset = struct.unpack_from("<H", metadata, layout + 4 + 2 * number)[0]
        return table + offset if offset else None

    def child(table: int, number: int) -> int:
        place = field(table, number)
        if place is None:
            raise ValueError("an arrow message without a header")
        return int(place + struct.unpack_from("<I", metadata, place)[0])

    try:
        message = struct.unpack_from("<I", metadata, 0)[0]
        kind = metadata[field(message, 1) or 0]
        batch = child(message, 2)
        if kind == 2:  # a dictionary holds a record batch
            batch = child(batch, 1)
        return field(batch, 3) is not None
    except (struct.error, IndexError) as error:
        raise ValueError("a damaged arrow message") from error
