"""Labelled vectors, such as embeddings of text, sound or products, from npz or parquet files."""

from pathlib import Path
from typing import Any

import numpy as np

from holdfast.core.errors import HoldfastError, unknown_name
from holdfast.core.locations import parquet_errors, pyarrow_for
from holdfast.core.untrusted_files import check_regular, open_npz
from holdfast.train.data.images import ImageSet, canonical
from holdfast.train.data.root import resolve_path

ALL = "all"
SPLIT = "split"


def vectors(root: Path, split: str, *, path: str, features: str = "features", labels: str = "labels") -> ImageSet:
    """Vectors of an npz or parquet file, float32 N x 1 x 1 x D.

    split: rows with this value in the array or column ``split`` are read. A file without it has one split, "all".
    path: the file, absolute or relative to the data root.
    features: name of the array or column of vectors.
    labels: name of the array or column of labels.
    """
    file = resolve_path(root, path)
    rows, classes, splits = read_labelled(file, features, labels)
    kept = rows_of_split(splits, split, len(rows), file)
    # Class names of all splits, so that the splits share them; numeric labels sort as numbers.
    names, numbers = np.unique(classes, return_inverse=True)
    return canonical(rows[kept][:, None, None, :], numbers[kept], [str(name) for name in names], source=str(file))


def read_labelled(file: Path, features: str, labels: str) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """All rows of a file in its order: float32 N x D, N classes, and the N splits (None if the file has none)."""
    if not file.is_file():
        raise HoldfastError(f"{file}: no such file; looked for an npz or parquet with {features} and {labels}")
    if file.suffix.lower() not in _READERS:
        raise unknown_name(f"kind of vectors ({file})", file.suffix, _READERS)
    columns = _READERS[file.suffix.lower()](file, features, labels)
    rows, classes = _rows(columns[features], file, features), _classes(columns[labels], file, labels)
    if len(classes) != len(rows):
        raise HoldfastError(f"{file}: {len(rows)} rows of {features} but {len(classes)} {labels}")
    return rows, classes, columns.get(SPLIT)


def _from_npz(file: Path, features: str, labels: str) -> dict[str, np.ndarray]:
    with open_npz(file) as pack:
        _refuse_missing(file, pack.names, features, labels)
        return {name: pack.array(name) for name in (features, labels, SPLIT) if name in pack.names}


def _from_parquet(file: Path, features: str, labels: str) -> dict[str, np.ndarray]:
    pyarrow = pyarrow_for(file)
    check_regular(file)
    with parquet_errors(file):
        opened = pyarrow.parquet.ParquetFile(file, page_checksum_verification=True)
        held = list(opened.schema_arrow.names)
        _refuse_missing(file, held, features, labels)
        table = opened.read(columns=[name for name in (features, labels, SPLIT) if name in held])
    columns = {name: np.asarray(table.column(name).to_numpy()) for name in table.column_names if name != features}
    return {features: _lists(table.column(features), file, features), **columns}


def _lists(column: Any, file: Path, name: str) -> np.ndarray:
    """A column of lists as one array N x D."""
    if column.null_count:
        raise HoldfastError(f"{file}: {column.null_count} rows without {name}; leave them out of the file")
    lists = column.combine_chunks()
    if not hasattr(lists, "flatten") or not hasattr(lists.type, "value_type"):
        raise HoldfastError(f"{file}: {name} must hold lists of numbers, found {lists.type}")
    values = np.asarray(lists.flatten().to_numpy(zero_copy_only=False))
    width = len(values) // max(1, len(lists))
    if not hasattr(lists.type, "list_size") and set(lists.value_lengths().to_pylist()) - {width}:
        raise HoldfastError(f"{file}: {name} must hold lists of one length, found several")
    return values.reshape(len(lists), width)


def _refuse_missing(file: Path, held: list[str], features: str, labels: str) -> None:
    for name in (features, labels):
        if name not in held:
            raise HoldfastError(f"{file}: no {name!r} in it; it has {', '.join(held) or 'nothing'}")


def _rows(values: np.ndarray, file: Path, name: str) -> np.ndarray:
    if values.ndim != 2 or values.dtype.kind not in "fiu" or 0 in values.shape:
        raise HoldfastError(f"{file}: {name} must be numbers, N x D, found {values.dtype} of shape {values.shape}")
    rows = values.astype(np.float32)
    bad = np.flatnonzero(~np.isfinite(rows).all(axis=1))
    if len(bad):
        raise HoldfastError(f"{file}: {len(bad)} rows of {name} are not finite, the first is row {bad[0]}")
    return rows


def _classes(values: np.ndarray, file: Path, name: str) -> np.ndarray:
    if values.dtype.kind == "O" and all(isinstance(value, str) for value in values):
        values = values.astype(str)
    if values.ndim != 1 or values.dtype.kind not in "iuU":
        raise HoldfastError(f"{file}: {name} must be one whole number or string a row, found {values.dtype}")
    empty = np.flatnonzero(values == "") if values.dtype.kind == "U" else np.arange(0)
    if len(empty):
        raise HoldfastError(f"{file}: {len(empty)} rows have an empty text as {name}, the first is row {empty[0]}")
    return values


def rows_of_split(values: np.ndarray | None, split: str, count: int, file: Path) -> np.ndarray:
    """The indices of the rows of ``split``."""
    if values is None:
        if split != ALL:
            raise HoldfastError(f"{file}: has no {SPLIT!r}, so its only split is 'all'; {split!r} is not in it")
        return np.arange(count)
    splits = values.astype(str)
    known = np.unique(splits).tolist()
    if len(splits) != count:
        raise HoldfastError(f"{file}: {count} rows but {SPLIT!r} has {len(splits)}")
    if split not in known:
        raise unknown_name(f"split of {file}", split, known)
    return np.flatnonzero(splits == split)


_READERS = {".npz": _from_npz, ".parquet": _from_parquet}
VECTOR_SUFFIXES = frozenset(_READERS)
