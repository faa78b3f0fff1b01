"""The inputs of consecutive items, loaded when they are needed: image files, image bytes in parquet, vectors in memory.

Items are small and can be sent to another process, which loads and decodes them there.
"""

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from holdfast.core.errors import HoldfastError
from holdfast.core.locations import is_address, local_path, open_input, parent, parquet_errors, pyarrow_for, read_bytes
from holdfast.core.problems import Problem
from holdfast.core.wording import printable
from holdfast.embedders.model_inputs import ModelInput
from holdfast.vectors.feature_set import Rows

MOST_IMAGE_BYTES = 2**30
"""Bytes of an image file in an object store."""

NOT_A_VECTOR = "not finite, or zero"


class Items(Protocol):
    """Consecutive items of a source."""

    def __len__(self) -> int: ...

    def part(self, start: int, stop: int) -> "Items":
        """The items ``start`` to ``stop``."""

    def place(self, row: int) -> str:
        """Where an item is; different for different items."""

    def problem(self, row: int, reason: str) -> Problem:
        """The problem of an item that cannot be embedded."""

    def load(self) -> Sequence[Any]:
        """The inputs: local paths, addresses, bytes, or vectors. A text with ``Unreadable`` says why there is none."""


class Unreadable(str):
    """Why an item has no input."""


@dataclass(frozen=True)
class Files:
    """Image files.

    places: paths or addresses.
    """

    places: Sequence[str]

    def __len__(self) -> int:
        return len(self.places)

    def part(self, start: int, stop: int) -> "Files":
        return Files(self.places[start:stop])

    def place(self, row: int) -> str:
        return self.places[row]

    def problem(self, row: int, reason: str) -> Problem:
        return _file_problem(self.places[row], reason)

    def load(self) -> Sequence[Any]:
        return self.places


@dataclass(frozen=True)
class TableBytes:
    """The column ``bytes`` of parquet files, read by row groups.

    files: location and number of rows of each file.
    start, stop: rows, counted over all files.
    opened: different each time a source is opened. What a process keeps in memory of a file is used with it only: the
        file may have changed.
    """

    files: Sequence[tuple[str, int]]
    start: int
    stop: int
    opened: str

    def __len__(self) -> int:
        return self.stop - self.start

    def part(self, start: int, stop: int) -> "TableBytes":
        """Only the files that hold these rows are kept."""
        begin, end, kept, before = self.start + start, self.start + stop, [], 0
        skipped = 0
        for file, count in self.files:
            if before + count > begin and before < end:
                kept.append((file, count))
            elif before + count <= begin:
                skipped += count
            before += count
        return TableBytes(kept, begin - skipped, end - skipped, self.opened)

    def place(self, row: int) -> str:
        file, own = self._file_and_row(row)
        return f"{file}, row {own}"

    def problem(self, row: int, reason: str) -> Problem:
        file, own = self._file_and_row(row)
        return _file_problem(file, f"row {own}: {reason}")

    def _file_and_row(self, row: int) -> tuple[str, int]:
        before, wanted = 0, self.start + row
        for file, count in self.files:
            if wanted < before + count:
                return file, wanted - before
            before += count
        raise IndexError(row)

    def load(self) -> Sequence[Any]:
        found: list[Any] = []
        before = 0
        for file, count in self.files:
            first, last = max(self.start - before, 0), min(self.stop - before, count)
            if first < last:
                found += _read_rows(file, first, last, self.opened)
            before += count
        return found


def _read_rows(file: str, first: int, last: int, opened: str) -> list[Any]:
    found: list[Any] = []
    before = 0
    for group, count in enumerate(_group_sizes(file, opened)):
        start, stop = max(first - before, 0), min(last - before, count)
        if start < stop:
            rows = _row_group(file, group, opened).slice(start, stop - start).to_pylist()
            found += [Unreadable("no bytes in this row") if row is None else row for row in rows]
        before += count
    return found


@functools.lru_cache(maxsize=64)
def _group_sizes(file: str, opened: str) -> list[int]:
    pyarrow = pyarrow_for(file)
    with parquet_errors(file), open_input(file) as stream:
        metadata = pyarrow.parquet.ParquetFile(stream).metadata
        return [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]


@functools.lru_cache(maxsize=2)
def _row_group(file: str, group: int, opened: str) -> Any:
    """The bytes of one row group; the last two stay in memory, because batches are smaller than row groups."""
    pyarrow = pyarrow_for(file)
    with parquet_errors(file), open_input(file) as stream:
        table = pyarrow.parquet.ParquetFile(stream, page_checksum_verification=True)
        return table.read_row_group(group, columns=["bytes"]).column(0)


@dataclass(frozen=True)
class Vectors:
    """Vectors that a model takes as its input.

    name: of the file.
    rows: the vectors.
    ids: for messages.
    start, stop: which rows.
    """

    name: str
    rows: Rows | np.ndarray
    ids: Sequence[Any]
    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start

    def part(self, start: int, stop: int) -> "Vectors":
        return Vectors(self.name, self.rows, self.ids, self.start + start, self.start + stop)

    def place(self, row: int) -> str:
        return f"{self.name}, row {self.start + row}"

    def problem(self, row: int, reason: str) -> Problem:
        own = self.start + row
        return Problem(Path(self.name), f"row {own}, id {self.ids[own]}: {reason}")

    def load(self) -> Sequence[Any]:
        if isinstance(self.rows, np.ndarray):
            return list(self.rows[self.start : self.stop])
        with np.errstate(over="ignore"):
            return list(self.rows.block(self.start, self.stop).astype(np.float32))

    def __getstate__(self) -> dict[str, Any]:
        """Sent to another process, a part takes its own rows along."""
        rows, ids = np.stack(self.load()), list(self.ids[self.start : self.stop])
        return {"name": self.name, "rows": rows, "ids": ids, "start": 0, "stop": len(self)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        for name, value in state.items():
            object.__setattr__(self, name, value)


def _file_problem(file: str, reason: str) -> Problem:
    """A path cannot hold an address, so the folder of an address is the problem's origin."""
    if is_address(file):
        return Problem(Path(file.rpartition("/")[2]), reason, parent(file))
    return Problem(Path(file), reason)


def decode(taken: ModelInput, loaded: Any) -> np.ndarray | str:
    """One input as ``taken.arrays`` gives it, 1 x H x W x C or 1 x D; or the reason why it is unreadable."""
    if isinstance(loaded, Unreadable):
        return str(loaded)
    if isinstance(loaded, np.ndarray):
        return taken.arrays(loaded[None]) if np.isfinite(loaded).all() and loaded.any() else NOT_A_VECTOR
    try:
        if isinstance(loaded, bytes):
            return taken.arrays([loaded])
        if is_address(loaded):
            return taken.arrays([read_bytes(loaded, MOST_IMAGE_BYTES)])
        return taken.arrays([local_path(loaded)])
    except HoldfastError as error:
        named = ["the image"] if isinstance(loaded, bytes) or is_address(loaded) else [printable(loaded)]
        named += [] if isinstance(loaded, bytes) else [printable(local_path(loaded))]
        return functools.reduce(lambda text, name: text.removeprefix(f"{name}: "), named, str(error))
