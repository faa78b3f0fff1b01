"""Features in parquet files, as vector databases export them. Needs pyarrow."""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from holdfast.checking.feature_set import ArrayRows, FeatureSet, MappedRows
from holdfast.errors import HoldfastError, how_to_install

_BATCH = 8192


def read_parquet(path: Path) -> FeatureSet:
    """Columns ``features`` (lists of equal length) and, if there are, ``labels`` and ``ids``.

    A column of lists cannot be mapped: it is copied, batch by batch, to a temporary file without a name.
    """
    file, _ = open_parquet(path, {"features"})
    kind = file.schema_arrow.field("features").type
    if not _holds_lists(kind):
        raise HoldfastError(f"{path}: 'features' must hold lists of numbers, not {kind}")
    columns = {name: column(file, name) for name in ("labels", "ids") if name in file.schema_arrow.names}
    count = file.metadata.num_rows
    if count == 0:
        raise HoldfastError(f"{path}: holds no rows")
    copy = tempfile.TemporaryFile()  # noqa: SIM115 (lives as long as the rows that are mapped from it)
    dim = None
    for batch in file.iter_batches(_BATCH, columns=["features"]):
        lists = batch.column(0)
        if lists.null_count:
            raise HoldfastError(f"{path}: {lists.null_count} rows without features; leave them out of the file")
        values = np.asarray(lists.flatten().to_numpy(zero_copy_only=False))
        dim = len(values) // len(lists) if dim is None else dim
        lengths = {len(values) // max(1, len(lists))} if _fixed(lists) else set(lists.value_lengths().to_pylist())
        if lengths != {dim} or values.dtype.kind not in "fiu":
            raise HoldfastError(f"{path}: 'features' must hold lists of numbers, all of one length, {dim} as the first")
        copy.write(values.astype(np.float32).tobytes())
    copy.flush()
    assert dim is not None
    if dim == 0:
        return FeatureSet(str(path), ArrayRows(np.empty((count, 0))))
    return FeatureSet(str(path), MappedRows(copy, np.dtype(np.float32), (count, dim), 0, "C"), **columns)


def open_parquet(path: Path, wanted: set[str]) -> tuple[Any, list[str]]:
    """The open file and the names of its columns, ``wanted`` among them."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise HoldfastError(f"{path}: parquet needs pyarrow; {how_to_install('parquet')}, or give npz") from None
    try:
        file = pyarrow.parquet.ParquetFile(path)
    except (pyarrow.ArrowException, OSError) as error:
        raise HoldfastError(f"{path}: not readable as parquet ({str(error).splitlines()[0]})") from error
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
