"""Items of vectors in a file, read some at a time: npz, npy or parquet, as ``holdfast check`` reads them."""

import math
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from holdfast.checking.files import read_features
from holdfast.checking.parquet import open_parquet
from holdfast.errors import HoldfastError
from holdfast.gallery.filters import LABEL, LARGEST_WHOLE, Value, checked_name
from holdfast.gallery.items import MOST_FIELDS, Item

VECTOR_SUFFIXES = frozenset((".npz", ".npy", ".parquet"))
PATHS = "paths"
_READ = ("features", "labels", "ids")
_ROWS = 4096


class VectorFile:
    """Vectors with ids and, where the file has them, labels, paths of images and metadata.

    ``fields`` are the further arrays or columns, one text, number or truth value a row: metadata; ``ignored`` those
    that cannot be, each with the reason. A missing value (null, NaN) leaves the field out of that item.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        found = read_features(path, "gallery")
        if found.ids is None:
            where = f"{path.stem}.ids.npy beside it" if path.suffix.lower() == ".npy" else "ids in it"
            raise HoldfastError(f"{path}: has no ids; write {where}, a different text or number for each vector")
        self._rows, self._labels, self._ids = found.rows, found.labels, found.ids
        self.width = found.dim
        self.has_labels = found.labels is not None
        kinds = _parquet_kinds(path) if path.suffix.lower() == ".parquet" else _npz_kinds(path, len(found))
        self.ignored = {name: reason for name, reason in kinds.items() if reason}
        fields = [name for name, reason in kinds.items() if not reason and name != PATHS]
        self.fields = fields[:MOST_FIELDS]
        self.ignored |= dict.fromkeys(fields[MOST_FIELDS:], f"an item has at most {MOST_FIELDS} fields")
        self._columns = [name for name in kinds if name in self.fields or (name == PATHS and not kinds[name])]

    def __len__(self) -> int:
        return len(self._ids)

    def ids(self) -> Iterator[str]:
        return (str(one) for one in self._ids)

    def items(self, *, embed: bool) -> Iterator[Item]:
        """Every row as an item, its vector as input of the version (``embed``) or as a feature. Paths in the file are
        relative to its folder."""
        start = 0
        for columns, count in self._blocks():
            vectors = self._rows.block(start, start + count).astype(np.float32, copy=False)
            for row in range(count):
                values = {name: value for name, column in columns.items() if (value := _there(column[row])) is not None}
                path = values.pop(PATHS, None)
                yield Item(
                    str(self._ids[start + row]),
                    image=vectors[row] if embed else None,
                    vector=None if embed else vectors[row],
                    metadata=values,
                    label=None if self._labels is None else str(self._labels[start + row]),
                    path=None if path is None else self.path.parent / str(path),
                )
            start += count

    def _blocks(self) -> Iterator[tuple[dict[str, list[Value | None]], int]]:
        """The further columns of some rows at a time, in the file's order, and how many rows these are."""
        if self.path.suffix.lower() == ".parquet" and self._columns:
            file, _ = open_parquet(self.path, set(self._columns))
            for batch in file.iter_batches(_ROWS, columns=self._columns):
                yield {name: batch.column(name).to_pylist() for name in self._columns}, len(batch)
            return
        arrays = _npz_arrays(self.path, self._columns) if self._columns else {}
        for start in range(0, len(self), _ROWS):
            stop = min(len(self), start + _ROWS)
            yield {name: array[start:stop].tolist() for name, array in arrays.items()}, stop - start


def _npz_kinds(path: Path, count: int) -> dict[str, str]:
    """What else an npz holds; by name why it cannot be metadata, empty where it can. An npy holds nothing else."""
    if path.suffix.lower() != ".npz":
        return {}
    with zipfile.ZipFile(path) as archive:
        names = [name.removesuffix(".npy") for name in archive.namelist()]
    found = {}
    for name in (name for name in names if name not in _READ):
        found[name] = _bad_name(name)
        if not found[name]:
            try:
                found[name] = _bad_array(_npz_arrays(path, [name])[name], count)
            except HoldfastError:
                found[name] = "not readable as a plain array"
    return found


def _bad_array(array: np.ndarray, count: int) -> str:
    longer_than_double = array.dtype.kind == "f" and array.dtype.itemsize > 8
    if array.shape != (count,) or array.dtype.kind not in "iufbU" or longer_than_double:
        return f"{array.dtype} of shape {array.shape}, not one text or number a row"
    return _too_large(int(array.min()), int(array.max())) if array.dtype.kind in "iu" else ""


def _npz_arrays(path: Path, names: list[str]) -> dict[str, np.ndarray]:
    try:
        with np.load(path, allow_pickle=False) as pack:
            return {name: pack[name] for name in names}
    except (ValueError, OSError, EOFError, zlib.error, zipfile.BadZipFile) as error:
        raise HoldfastError(f"{path}: {', '.join(names)}: not readable as plain arrays ({error})") from error


def _parquet_kinds(path: Path) -> dict[str, str]:
    """As ``_npz_kinds``, of the columns of a parquet file."""
    file, names = open_parquet(path, set())
    return {name: _bad_name(name) or _bad_column(file, name) for name in names if name not in _READ}


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


def _there(value: Value | None) -> Value | None:
    return None if isinstance(value, float) and math.isnan(value) else value
