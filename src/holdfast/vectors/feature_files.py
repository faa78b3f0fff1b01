"""Read features from npy, npz and parquet files (the last needs pyarrow) or a feature store; write npz and parquet."""

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
from holdfast.core.wording import printable
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
from holdfast.vectors.search import float32

_BATCH = 8192  # rows of a parquet file read at a time
_MOST_COPIED, _MOST_RATIO = 2**30, 100  # a small parquet file can describe any number of equal rows


def read_features(path: Path | str, role: str) -> FeatureSet:
    """Features from a file or a folder of a feature store, with their labels and ids. Nothing is unpickled.

    path: one of these; labels and ids may be missing.
        npz: arrays ``features``, ``labels`` and ``ids``, and perhaps a text ``model``, the model's name.
        npy: features, with ``NAME.labels.npy`` and ``NAME.ids.npy`` in the same folder.
        parquet: columns ``features`` (lists of equal length), ``labels`` and ``ids``; the file's metadata may have a
            ``model``.
        folder: shards of features as ``holdfast embed`` writes them (``feature_shards``); or query.npy or gallery.npy,
            with the labels one folder up, as the feature store writes them.
    role: "query" or "gallery"; which file of the folder to read.
    """
    path = Path(path)
    if not path.exists():
        raise HoldfastError(f"{path}: no such file")
    if path.is_dir():
        return _read_shards(path) if is_shard_folder(path) else _read_stored(path, role)
    if path.suffix.lower() not in _READERS:
        raise unknown_name(f"kind of feature file ({path})", path.suffix, _READERS)
    return _READERS[path.suffix.lower()](path)


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


def _read_npy(path: Path) -> FeatureSet:
    beside = {name: path.with_name(f"{path.stem}.{name}.npy") for name in ("labels", "ids")}
    columns = {name: read_array(file) for name, file in beside.items() if file.exists()}
    return FeatureSet(str(path), _npy_rows(path), columns.get("labels"), columns.get("ids"))


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


def _read_npz(path: Path) -> FeatureSet:
    with open_npz(path) as pack:
        if "features" not in pack.names:
            raise HoldfastError(
                f"{path}: no array 'features' in it; it has {printable(', '.join(sorted(pack.names))) or 'nothing'}"
            )
        columns = {name: pack.array(name) for name in ("labels", "ids", MODEL_NAME) if name in pack.names}
        named = columns.pop(MODEL_NAME, None)
        model = str(named) if named is not None and named.ndim == 0 and named.dtype.kind == "U" else None
        stored = pack.mappable("features")
        if stored is None:
            array = pack.array("features")
            check_shape(str(path), array.shape, array.dtype)
            rows: Rows = ArrayRows(array)
        else:
            rows = _mapped(path, *stored)
    return FeatureSet(str(path), rows, columns.get("labels"), columns.get("ids"), model)


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


def _read_parquet(path: Path) -> FeatureSet:
    """A column of lists cannot be mapped, so it is copied, batch by batch, to an unnamed temporary file."""
    with parquet_errors(path):
        return _copied_parquet(path)


def _copied_parquet(path: Path) -> FeatureSet:
    file, _ = open_parquet(path, {"features"})
    kind = file.schema_arrow.field("features").type
    if not _holds_lists(kind):
        raise HoldfastError(f"{path}: 'features' must hold lists of numbers, not {kind}")
    columns = {name: column(file, name) for name in ("labels", "ids") if name in file.schema_arrow.names}
    count = file.metadata.num_rows
    if count == 0:
        raise HoldfastError(f"{path}: holds no rows")
    copy = tempfile.TemporaryFile()  # noqa: SIM115 (must stay open as long as the rows mapped from it)
    dim, most = None, max(_MOST_COPIED, _MOST_RATIO * path.stat().st_size)
    for batch in file.iter_batches(_BATCH, columns=["features"]):
        lists = batch.column(0)
        if lists.null_count:
            raise HoldfastError(f"{path}: {lists.null_count} rows without features; leave them out of the file")
        values = np.asarray(lists.flatten().to_numpy(zero_copy_only=False))
        dim = len(values) // len(lists) if dim is None else dim
        lengths = {len(values) // max(1, len(lists))} if _fixed(lists) else set(lists.value_lengths().to_pylist())
        if lengths != {dim} or values.dtype.kind not in "fiu":
            raise HoldfastError(f"{path}: 'features' must hold lists of numbers, all of one length, {dim} as the first")
        copy.write(float32(np.array(values).reshape(len(lists), dim)).tobytes())
        if copy.tell() > most:
            raise HoldfastError(f"{path}: its features are more than {_MOST_RATIO} times its size; write them as npz")
    copy.flush()
    assert dim is not None
    model = (file.schema_arrow.metadata or {}).get(MODEL_NAME.encode())
    if dim == 0:
        return FeatureSet(str(path), ArrayRows(np.empty((count, 0))))
    return FeatureSet(
        str(path),
        MappedRows(copy, np.dtype(np.float32), (count, dim), 0, "C"),
        columns.get("labels"),
        columns.get("ids"),
        None if model is None else model.decode(errors="replace"),
    )


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


def _holds_lists(kind: Any) -> bool:
    import pyarrow

    return bool(
        pyarrow.types.is_list(kind) or pyarrow.types.is_large_list(kind) or pyarrow.types.is_fixed_size_list(kind)
    )


def _fixed(lists: Any) -> bool:
    return hasattr(lists.type, "list_size")


_READERS: dict[str, Callable[[Path], FeatureSet]] = {".npy": _read_npy, ".npz": _read_npz, ".parquet": _read_parquet}
_WRITERS: dict[str, Callable[[Path, np.ndarray, FeatureSet], None]] = {".npz": _write_npz, ".parquet": _write_parquet}
FEATURE_SUFFIXES = frozenset(_READERS)
