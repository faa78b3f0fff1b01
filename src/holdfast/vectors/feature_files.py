"""Read features from npy, npz, parquet, JSON lines, CSV and folders; write npz and parquet (which needs pyarrow)."""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from holdfast.core.errors import HoldfastError, unknown_name
from holdfast.core.locations import parquet_errors, pyarrow_for
from holdfast.core.storage import check_file_writable, read_array, replacing
from holdfast.core.untrusted_files import BAD_ARRAY, ArrayHeader, array_header, check_regular, open_npz, open_regular
from holdfast.vectors.feature_set import (
    MODEL_NAME,
    WRITTEN_TYPES,
    ArrayRows,
    ExpandedRows,
    FeatureSet,
    MappedRows,
    Rows,
    check_shape,
)
from holdfast.vectors.feature_shards import FeatureShards, is_shard_folder
from holdfast.vectors.vector_tables import (
    BY_RULE,
    Columns,
    CopiedRows,
    holds_lists,
    is_datasets_folder,
    read_csv,
    read_datasets_folder,
    read_json_lines,
)

_BATCH = 8192  # rows of a parquet file read at a time
_MOST_COPIED, _MOST_RATIO = 2**30, 100


def read_features(path: Path | str, role: str, columns: Columns = BY_RULE) -> FeatureSet:
    """Features from a file or a folder, with their labels and ids. Nothing is unpickled.

    path: one of these; labels and ids may be missing.
        npz: arrays of vectors, labels and ids, and perhaps a text ``model``, the model's name.
        npy: features, with ``NAME.labels.npy`` and ``NAME.ids.npy`` in the same folder.
        parquet: columns of vectors (lists of equal length), labels and ids; the file's metadata may have a ``model``.
        jsonl: an object per line, with vectors as lists.
        csv: with a header, and vectors as ``[0.1, 0.2]`` in one column.
        folder: shards of features as ``holdfast embed`` writes them (``feature_shards``); a folder that ``datasets``
            saved; or query.npy or gallery.npy, with the labels one folder up, as the feature store writes them.
    role: "query" or "gallery"; which file of the folder to read.
    columns: names of arrays or columns, if they are not the usual ones.
    """
    path = Path(path)
    if not path.exists():
        raise HoldfastError(f"{path}: no such file")
    if path.is_dir():
        if not is_shard_folder(path) and is_datasets_folder(path):
            return read_datasets_folder(path, columns)
        columns.refuse(str(path), "such a folder")
        return _read_shards(path) if is_shard_folder(path) else _read_stored(path, role)
    if path.suffix.lower() not in _READERS:
        raise unknown_name(f"kind of feature file ({path})", path.suffix, _READERS)
    return _READERS[path.suffix.lower()](path, columns)


def check_writable(path: Path, dtype: str = "float32") -> None:
    """Refuse a file that ``write_features`` could not write, before anything is computed."""
    if path.suffix.lower() not in _WRITERS:
        raise unknown_name(f"kind of feature file to write ({path})", path.suffix, _WRITERS)
    if dtype not in WRITTEN_TYPES:
        raise unknown_name("type of features", dtype, WRITTEN_TYPES)
    check_file_writable(path)
    if path.suffix.lower() == ".parquet":
        pyarrow_for(path)


def write_features(path: Path | str, features: FeatureSet, *, dtype: str = "float32") -> None:
    """Write features with their ids, labels and model to an npz or parquet file that ``read_features`` reads.

    path: the file; it appears whole or not at all, and replaces an existing one.
    dtype: "float32" or "float16".

    >>> import numpy as np
    >>> from holdfast.vectors import feature_set, write_features
    >>> write_features("vectors.npz", feature_set("mine", np.eye(2), labels=["cat", "dog"], ids=["a", "b"]))
    >>> np.load("vectors.npz")["ids"].tolist()
    ['a', 'b']
    """
    path = Path(path)
    check_writable(path, dtype)
    array = features.rows.block(0, len(features)).astype(dtype, copy=False)
    with replacing(path) as temporary:
        _WRITERS[path.suffix.lower()](temporary, array, features)


def _write_npz(path: Path, array: np.ndarray, features: FeatureSet) -> None:
    optional = {"labels": features.labels, "ids": features.ids, MODEL_NAME: features.model}
    arrays: dict[str, Any] = {name: np.asarray(value) for name, value in optional.items() if value is not None}
    with path.open("wb") as file:  # uncompressed, so that the features can be mapped
        np.savez(file, features=array, **arrays)


def _write_parquet(path: Path, array: np.ndarray, features: FeatureSet) -> None:
    pyarrow = pyarrow_for(path)
    lists = pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(array.reshape(-1)), array.shape[1])
    optional = {"labels": features.labels, "ids": features.ids}
    columns = {name: pyarrow.array(value) for name, value in optional.items() if value is not None}
    table = pyarrow.table({"features": lists, **columns})
    if features.model is not None:
        table = table.replace_schema_metadata({MODEL_NAME: features.model})
    pyarrow.parquet.write_table(table, path, write_page_checksum=True)


def _read_npy(path: Path, columns: Columns) -> FeatureSet:
    columns.refuse(str(path), "an npy file")
    beside = {name: path.with_name(f"{path.stem}.{name}.npy") for name in ("labels", "ids")}
    arrays = {name: read_array(file) for name, file in beside.items() if file.exists()}
    return FeatureSet(str(path), _npy_rows(path), arrays.get("labels"), arrays.get("ids"))


def _read_stored(folder: Path, role: str) -> FeatureSet:
    """The features of one model of a run. Compact ones are expanded, so that those of two models can be compared."""
    file, labels = folder / f"{role}.npy", folder.parent / f"{role}_labels.npy"
    if not file.exists():
        raise HoldfastError(
            f"{folder}: not a folder of vectors (no manifest.json of holdfast embed, no {role}.npy of a run); give a "
            ".npz, .npy or .parquet file, a folder of shards, or RUN/features/01"
        )
    rows, basis = _npy_rows(file), folder / "basis.npy"
    if basis.exists():
        rows = ExpandedRows(rows, read_array(basis))
    return FeatureSet(str(file), rows, read_array(labels) if labels.exists() else None)


def _read_shards(folder: Path) -> FeatureSet:
    """All shards as one set; vectors are copied to an unnamed temporary file, because they need not fit into memory."""
    shards = FeatureShards(folder)
    copy = tempfile.TemporaryFile()  # noqa: SIM115 (must stay open as long as the rows mapped from it)
    ids: list[str] = []
    labels: list[str] = []
    for shard in shards:
        copy.write(np.ascontiguousarray(shard.vectors, dtype=np.float32).tobytes())
        ids += shard.ids
        labels += shard.labels or ()
    copy.flush()
    if not ids:
        raise HoldfastError(f"{folder}: holds no vectors")
    rows = MappedRows(copy, np.dtype(np.float32), (len(ids), shards.manifest.dim), 0, "C")
    classes = np.array(labels) if shards.manifest.labels else None
    return FeatureSet(str(folder), rows, classes, np.array(ids), shards.manifest.model)


def _read_npz(path: Path, columns: Columns) -> FeatureSet:
    with open_npz(path) as pack:
        others = (MODEL_NAME, "ids", "id", "_id", "labels", "label")
        chosen = columns.choose(str(path), pack.names, [name for name in pack.names if name not in others])
        assert chosen.vector is not None
        ids, labels = (None if name is None else pack.array(name) for name in (chosen.id, chosen.label))
        named = pack.array(MODEL_NAME) if MODEL_NAME in pack.names else None
        model = str(named) if named is not None and named.ndim == 0 and named.dtype.kind == "U" else None
        stored = pack.mappable(chosen.vector)
        if stored is None:
            array = pack.array(chosen.vector)
            check_shape(str(path), array.shape, array.dtype)
            rows: Rows = ArrayRows(array)
        else:
            rows = _mapped(path, *stored)
    return FeatureSet(str(path), rows, labels, ids, model)


def _npy_rows(path: Path) -> Rows:
    try:
        with open_regular(path) as file:
            header = array_header(file, os.fstat(file.fileno()).st_size, str(path))
    except BAD_ARRAY as error:
        raise HoldfastError(f"{path}: not readable as npy, perhaps cut short ({error})") from error
    return _mapped(path, header, header.size)


def _mapped(path: Path, header: ArrayHeader, start: int) -> Rows:
    """Map an array whose numbers begin at byte ``start`` of the file."""
    check_shape(str(path), header.shape, header.dtype)
    rows, dim = header.shape
    if not rows or not dim:
        return ArrayRows(np.empty((rows, dim), header.dtype))
    return MappedRows(path, header.dtype, (rows, dim), start, "F" if header.fortran else "C")


def _read_parquet(path: Path, columns: Columns) -> FeatureSet:
    """A column of lists cannot be mapped, so it is copied, batch by batch."""
    with parquet_errors(path):
        return _copied_parquet(path, columns)


def _copied_parquet(path: Path, columns: Columns) -> FeatureSet:
    file, names = open_parquet(path, set())
    possible = [field.name for field in file.schema_arrow if holds_lists(field.type)]
    chosen = columns.choose(str(path), names, possible)
    if chosen.vector is None or chosen.vector not in possible:
        kind = file.schema_arrow.field(chosen.vector).type
        raise HoldfastError(f"{path}: '{chosen.vector}' must hold lists of numbers, not {kind}")
    ids, labels = (None if name is None else column(file, name) for name in (chosen.id, chosen.label))
    # A small parquet file can describe any number of equal rows.
    copied = CopiedRows(str(path), chosen.vector, max(_MOST_COPIED, _MOST_RATIO * path.stat().st_size))
    for batch in file.iter_batches(_BATCH, columns=[chosen.vector]):
        copied.add_lists(batch.column(0))
    model = (file.schema_arrow.metadata or {}).get(MODEL_NAME.encode())
    return FeatureSet(str(path), copied.rows(), labels, ids, None if model is None else model.decode(errors="replace"))


def open_parquet(path: Path, wanted: set[str]) -> tuple[Any, list[str]]:
    """The open file and the names of its columns, ``wanted`` among them."""
    pyarrow = pyarrow_for(path)
    check_regular(path)
    with parquet_errors(path):
        file = pyarrow.parquet.ParquetFile(path, page_checksum_verification=True)
    names = list(file.schema_arrow.names)
    if not wanted <= set(names):
        missing = ", ".join(sorted(wanted - set(names)))
        raise HoldfastError(f"{path}: no column {missing}; it has {', '.join(names) or 'none'}")
    return file, names


def column(file: Any, name: str) -> np.ndarray:
    return np.asarray(file.read(columns=[name]).column(0).to_numpy())


_READERS: dict[str, Callable[[Path, Columns], FeatureSet]] = {
    ".npy": _read_npy,
    ".npz": _read_npz,
    ".parquet": _read_parquet,
    ".jsonl": read_json_lines,
    ".csv": read_csv,
}
_WRITERS: dict[str, Callable[[Path, np.ndarray, FeatureSet], None]] = {".npz": _write_npz, ".parquet": _write_parquet}
FEATURE_SUFFIXES = frozenset({".npy", ".npz", ".parquet"})
"""Of files that ``embed`` and ``gallery`` take for vectors; a CSV file is a table of images there."""
