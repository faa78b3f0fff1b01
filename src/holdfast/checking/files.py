"""Read features from npy, npz, parquet, or a model's folder in a feature store."""

import math
import tokenize
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import numpy as np

from holdfast.checking.feature_set import ArrayRows, FeatureSet, MappedRows, Rows, check_shape
from holdfast.errors import HoldfastError, unknown_name
from holdfast.storage import read_array

_BAD_ARRAY = (ValueError, EOFError, tokenize.TokenError)  # what numpy raises on an npy that is none


def read_features(path: Path | str, role: str) -> FeatureSet:
    """The features in ``path``; ``role`` ("query" or "gallery") says which half of a feature store's folder is meant.

    npz: arrays ``features``, ``labels`` and, if there are, ``ids``. npy: features alone, with ``NAME.labels.npy`` and
    ``NAME.ids.npy`` beside it. parquet: columns of those names. A folder: query.npy or gallery.npy with the labels one
    folder up, as the feature store writes them. Labels and ids may be missing. Nothing is unpickled.
    """
    path = Path(path)
    if not path.exists():
        raise HoldfastError(f"{path}: no such file")
    if path.is_dir():
        return _read_stored(path, role)
    readers: dict[str, Callable[[Path], FeatureSet]] = {".npy": _read_npy, ".npz": _read_npz, ".parquet": _read_parquet}
    if path.suffix.lower() not in readers:
        raise unknown_name(f"kind of feature file ({path})", path.suffix, readers)
    return readers[path.suffix.lower()](path)


def _read_npy(path: Path) -> FeatureSet:
    beside = {name: path.with_name(f"{path.stem}.{name}.npy") for name in ("labels", "ids")}
    columns = {name: read_array(file) for name, file in beside.items() if file.exists()}
    return FeatureSet(str(path), _npy_rows(path), **columns)


def _read_stored(folder: Path, role: str) -> FeatureSet:
    file, labels = folder / f"{role}.npy", folder.parent / f"{role}_labels.npy"
    if not file.exists():
        raise HoldfastError(
            f"{folder}: not a model's folder in a feature store (no {role}.npy); wanted RUN/features/01"
        )
    return FeatureSet(str(file), _npy_rows(file), read_array(labels) if labels.exists() else None)


def _read_npz(path: Path) -> FeatureSet:
    try:
        with zipfile.ZipFile(path) as archive:
            held = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
            if "features" not in held:
                raise HoldfastError(f"{path}: no array 'features' in it; it has {', '.join(sorted(held)) or 'nothing'}")
            columns = {}
            for name in ("labels", "ids"):
                if name in held:
                    with archive.open(held[name]) as member:
                        columns[name] = np.lib.format.read_array(member, allow_pickle=False)
            rows: Rows
            if held["features"].compress_type == zipfile.ZIP_STORED:
                rows = _stored_member(path, held["features"])
            else:
                with archive.open(held["features"]) as member:
                    array = np.lib.format.read_array(member, allow_pickle=False)
                check_shape(str(path), array.shape, array.dtype)
                rows = ArrayRows(array)
    except (zipfile.BadZipFile, zlib.error, RuntimeError, OSError, *_BAD_ARRAY) as error:
        raise HoldfastError(f"{path}: not readable as npz ({error})") from error
    return FeatureSet(str(path), rows, **columns)


def _stored_member(path: Path, info: zipfile.ZipInfo) -> Rows:
    """An array that lies uncompressed in the archive is mapped in its place."""
    with path.open("rb") as file:
        file.seek(info.header_offset + 26)  # the lengths of name and extra field in the member's own header
        name, extra = np.frombuffer(file.read(4), dtype="<u2")
        file.seek(info.header_offset + 30 + int(name) + int(extra))
        return _mapped(path, file)


def _npy_rows(path: Path) -> Rows:
    try:
        with path.open("rb") as file:
            return _mapped(path, file)
    except _BAD_ARRAY as error:
        raise HoldfastError(f"{path}: not readable as npy, perhaps cut short ({error})") from error


def _mapped(path: Path, file: BinaryIO) -> Rows:
    """The array whose npy header starts where ``file`` stands."""
    version = np.lib.format.read_magic(file)
    header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, fortran, dtype = header(file)
    check_shape(str(path), shape, dtype)
    needed, there = file.tell() + math.prod(shape) * dtype.itemsize, path.stat().st_size
    if there < needed:
        raise HoldfastError(f"{path}: cut short: {there} bytes, but its header asks for {needed}")
    if shape[0] == 0 or shape[1] == 0:
        return ArrayRows(np.empty(shape, dtype))
    return MappedRows(path, dtype, (shape[0], shape[1]), file.tell(), "F" if fortran else "C")


def _read_parquet(path: Path) -> FeatureSet:
    from holdfast.checking.parquet import read_parquet

    return read_parquet(path)
