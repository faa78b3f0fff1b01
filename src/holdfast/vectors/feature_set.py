"""Features from any framework, with optional labels and ids. Files are read block by block."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike

from holdfast.core.errors import HoldfastError
from holdfast.core.real_arrays import check_real, real_array

MODEL_NAME = "model"
"""The array of an npz, or the metadata of a parquet file, that names the model."""
WRITTEN_TYPES = ("float32", "float16")
ROWS_AT_ONCE = 64
_MOST_TEXT = 2**33  # bytes of an array of ids: every one takes the room of the longest


class Rows(Protocol):
    """N x d numbers, read in parts."""

    shape: tuple[int, int]

    def block(self, start: int, stop: int) -> np.ndarray:
        """A copy of rows start .. stop."""

    def take(self, rows: np.ndarray) -> np.ndarray:
        """The rows with these numbers, in this order."""


class ArrayRows:
    """Rows of an array in memory, or of one that the caller has mapped."""

    def __init__(self, array: np.ndarray) -> None:
        self._array = array
        self.shape = (array.shape[0], array.shape[1])

    def block(self, start: int, stop: int) -> np.ndarray:
        return np.array(self._array[start:stop])

    def take(self, rows: np.ndarray) -> np.ndarray:
        return self._array[rows]


class MappedRows:
    """Rows of an array in a file, mapped again for every read, so that no rows stay in memory."""

    def __init__(self, path: Path | Any, dtype: np.dtype, shape: tuple[int, int], offset: int, order: str) -> None:
        self._where = {"filename": path, "dtype": dtype, "shape": shape, "offset": offset, "order": order}
        self.shape = shape

    def block(self, start: int, stop: int) -> np.ndarray:
        return np.array(self._mapped()[start:stop])

    def take(self, rows: np.ndarray) -> np.ndarray:
        out = np.empty((len(rows), self.shape[1]), self._where["dtype"])
        for start in range(0, len(rows), ROWS_AT_ONCE):  # a row brings its neighbours in the file into memory
            part = slice(start, start + ROWS_AT_ONCE)
            out[part] = self._mapped()[rows[part]]
        return out

    def _mapped(self) -> np.ndarray:
        return np.memmap(mode="r", **self._where)  # type: ignore[call-overload]


class ExpandedRows:
    """Full features of rows that are stored compact (``holdfast.train.encoders.compact``), expanded when they are read.

    compact: N x d rows. basis: D x d; the full features are compact @ basis.T, N x D.
    """

    def __init__(self, compact: Rows, basis: np.ndarray) -> None:
        self._compact, self._basis = compact, basis.astype(np.float32, copy=False)
        self.shape = (compact.shape[0], basis.shape[0])

    def block(self, start: int, stop: int) -> np.ndarray:
        return self._expanded(self._compact.block(start, stop))

    def take(self, rows: np.ndarray) -> np.ndarray:
        return self._expanded(self._compact.take(rows))

    def _expanded(self, rows: np.ndarray) -> np.ndarray:
        full: np.ndarray = rows.astype(np.float32, copy=False) @ self._basis.T
        return full


class ChosenRows:
    """Some rows of another source, read when they are needed. numbers: their numbers in that source."""

    def __init__(self, source: Rows, numbers: np.ndarray) -> None:
        self._source, self.numbers = source, numbers
        self.shape = (len(numbers), source.shape[1])

    def block(self, start: int, stop: int) -> np.ndarray:
        return self._source.take(self.numbers[start:stop])

    def take(self, rows: np.ndarray) -> np.ndarray:
        return self._source.take(self.numbers[rows])


@dataclass(frozen=True)
class FeatureSet:
    """Features (N x d) of one model over one set of images; shapes are checked, values are not.

    name: used in messages.
    rows: the features.
    labels: N classes, numbers or text, or None.
    ids: N different names, numbers or text, or None.
    model: what the model is called, such as a hash of its weights; None if unknown.
    dim: d.
    """

    name: str
    rows: Rows
    labels: np.ndarray | None = None
    ids: np.ndarray | None = None
    model: str | None = None
    dim: int = field(init=False)

    def __post_init__(self) -> None:
        count, dim = self.rows.shape
        if count == 0 or dim == 0:
            raise HoldfastError(f"{self.name}: features of shape {count} x {dim}; there is nothing to compare")
        object.__setattr__(self, "dim", dim)
        for what in ("labels", "ids"):
            values = getattr(self, what)
            if values is not None:
                object.__setattr__(self, what, _column(values, count, f"{self.name}: {what}"))
        if self.ids is not None:
            _, first, times = np.unique(self.ids, return_index=True, return_counts=True)
            twice = self.ids[np.sort(first[times > 1])]
            if len(twice):
                raise HoldfastError(
                    f"{self.name}: {len(twice)} ids occur more than once ({shorten(twice)}); make ids unique"
                )

    def __len__(self) -> int:
        return self.rows.shape[0]

    def names(self) -> np.ndarray:
        """The ids, or row numbers from 0 without ids."""
        return np.arange(len(self)) if self.ids is None else self.ids

    def chosen(self, numbers: np.ndarray) -> "FeatureSet":
        """The set with these rows only."""
        labels, ids = (None if column is None else column[numbers] for column in (self.labels, self.ids))
        return replace(self, rows=ChosenRows(self.rows, numbers), labels=labels, ids=ids)

    def row_numbers(self, start: int, stop: int) -> np.ndarray:
        """What rows start .. stop are called in messages: their numbers in the file, also if only some are chosen."""
        return self.rows.numbers[start:stop] if isinstance(self.rows, ChosenRows) else np.arange(start, stop)


def feature_set(
    name: str, features: ArrayLike, labels: ArrayLike | None = None, ids: ArrayLike | None = None
) -> FeatureSet:
    """A FeatureSet of arrays in memory.

    name: used in messages.
    features: N x d.
    labels, ids: N each, or None.
    """
    array = real_array(features, f"{name}: features")
    check_shape(name, array.shape, array.dtype)
    classes = None if labels is None else real_array(labels, f"{name}: labels")
    names = None if ids is None else real_array(ids, f"{name}: ids")
    return FeatureSet(name, ArrayRows(array), classes, names)


def find_rows(ids: np.ndarray, known: np.ndarray) -> np.ndarray:
    """The row number in ``known`` of each of ``ids``, compared as text; -1 for one that is not there."""
    row = {str(name): i for i, name in enumerate(known)}
    return np.array([row.get(str(name), -1) for name in ids], dtype=np.int64)


def rows_of_ids(ids: np.ndarray, features: FeatureSet, source: str) -> np.ndarray:
    """As ``find_rows`` in the ids of ``features``; refused if one is missing.

    source: the name of the set that the ids come from, for the message.
    """
    assert features.ids is not None
    rows = find_rows(ids, features.ids)
    missing = ids[rows < 0]
    if len(missing):
        raise HoldfastError(f"{features.name}: lacks {len(missing)} ids of {source}: {shorten(missing)}")
    return rows


def check_shape(name: str, shape: tuple[int, ...], dtype: np.dtype) -> None:
    if len(shape) != 2 or dtype.kind not in "fiu":
        raise HoldfastError(f"{name}: features must be a matrix of numbers, one row each, but are {dtype} {shape}")


def shorten(values: Sequence[Any] | np.ndarray, most: int = 5) -> str:
    """The first ``most`` of ``values`` for a message."""
    shown = ", ".join(str(value) for value in values[:most])
    return f"{shown}, ..." if len(values) > most else shown


def _column(values: np.ndarray, count: int, what: str) -> np.ndarray:
    """One number or text per row; bytes become text, whole numbers int64, or text if they are too large for it."""
    check_real(values, what)
    if values.shape != (count,):
        raise HoldfastError(f"{what} have shape {values.shape}, but there are {count} rows of features")
    if values.dtype.kind == "O" and all(isinstance(value, str) for value in values):
        longest = max(len(value) for value in values)
        if 4 * longest * count > _MOST_TEXT:
            raise HoldfastError(f"{what}: one has {longest:,} characters, which is too long for {count:,} rows")
        values = values.astype(str)
    if values.dtype.kind == "S":
        try:
            return np.char.decode(values, "utf-8")
        except UnicodeDecodeError:
            raise HoldfastError(f"{what} are bytes that are not UTF-8; write them as text") from None
    if values.dtype.kind == "U":
        codes = np.ascontiguousarray(values).view(np.dtype(np.uint32).newbyteorder(values.dtype.byteorder))
        if codes.size and bool(((codes > 0x10FFFF) | ((codes >= 0xD800) & (codes < 0xE000))).any()):
            raise HoldfastError(f"{what} are not valid Unicode; write them as text")
        return values
    if values.dtype.kind == "f" and bool((np.isfinite(values) & (values == np.floor(values))).all()):
        return values.astype(np.int64)
    if values.dtype.kind == "u" and bool((values > np.iinfo(np.int64).max).any()):
        return values.astype(str)  # 64-bit hashes do not fit int64
    if values.dtype.kind in "iub":
        return values.astype(np.int64)
    raise HoldfastError(f"{what} are {values.dtype}; give whole numbers or text")
