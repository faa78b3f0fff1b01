"""Files by path or by address: local files, and object stores (s3://, gs://, ...) through ``pyarrow.fs`` and fsspec."""

import functools
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from holdfast.core.errors import HoldfastError, first_line, how_to_install, unknown_name
from holdfast.core.storage import TEMPORARY, replacing
from holdfast.core.untrusted_files import check_regular, open_regular

Location = str | Path
"""A path, or an address such as ``s3://bucket/photos.parquet``."""

_ADDRESS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_ARROW_SCHEMES = ("s3", "gs", "gcs", "hdfs", "abfs", "abfss")
SCHEMES = (*_ARROW_SCHEMES, "az", "file", "memory")
"""Kinds of addresses. Others, such as http, are refused: a table of addresses may come from somebody else."""
_WHOLE_OBJECTS = ("s3", "gcs", "abfs")  # what pyarrow calls stores in which an object appears when it is complete


def is_address(location: Location) -> bool:
    """Whether this is an address and not a local path; ``file://`` addresses are local paths."""
    return isinstance(location, str) and bool(_ADDRESS.match(location)) and not location.startswith("file://")


def local_path(location: Location) -> Path:
    """The path of a location that is not an address."""
    if isinstance(location, str) and location.startswith("file://"):
        return Path(location.removeprefix("file://"))
    return Path(location)


def absolute(location: Location) -> str:
    """The location as text that means the same in another folder and another process."""
    return str(location) if is_address(location) else str(local_path(location).absolute())


def join(folder: Location, name: str) -> str:
    """The location of ``name`` in a folder; ``name`` itself if it is an address or an absolute path."""
    if _ADDRESS.match(name) or name.startswith("/"):
        return name
    return f"{str(folder).rstrip('/')}/{name}" if is_address(folder) else str(local_path(folder) / name)


def parent(location: Location) -> str:
    """The folder of a file."""
    return str(location).rstrip("/").rpartition("/")[0] if is_address(location) else str(local_path(location).parent)


def suffix(location: Location) -> str:
    """The suffix of the file's name in lower case, such as ``.parquet``; empty without one."""
    return Path(str(location).rstrip("/").rpartition("/")[2]).suffix.lower()


def read_bytes(location: Location, most: int) -> bytes:
    """The whole file; refused if it has more than ``most`` bytes."""
    with store_errors(location):
        if not is_address(location):
            with open_regular(local_path(location)) as file:
                data = file.read(most + 1)
        else:
            system, path = _store(str(location))
            with system.open_input_stream(path) as stream:
                data = stream.read(most + 1)
    if len(data) > most:
        raise HoldfastError(f"{location}: more than {most:,} bytes, which is too much for such a file")
    return data


def write_bytes(location: Location, data: bytes) -> None:
    """Write a file. A reader sees the old file, the whole new one, or none."""
    with store_errors(location):
        if not is_address(location):
            with replacing(local_path(location)) as temporary:
                temporary.write_bytes(data)
            return
        system, path = _store(str(location))
        if system.type_name in _WHOLE_OBJECTS:
            _write(system, path, data)
            return
        folder, _, name = path.rpartition("/")
        temporary_path = f"{folder}/{TEMPORARY}{secrets.token_hex(8)}-{name}"
        system.create_dir(folder, recursive=True)
        _write(system, temporary_path, data)
        system.move(temporary_path, path)


def _write(system: Any, path: str, data: bytes) -> None:
    with system.open_output_stream(path) as stream:
        stream.write(data)


def open_input(location: Location) -> Any:
    """A file that pyarrow reads parts of; for ``pyarrow.parquet.ParquetFile``."""
    with store_errors(location):
        if not is_address(location):
            import pyarrow

            check_regular(local_path(location))
            return pyarrow.OSFile(str(local_path(location)))
        system, path = _store(str(location))
        return system.open_input_file(path)


def file_size(location: Location) -> int | None:
    """Bytes of a file; None if there is no such file."""
    if not is_address(location):
        path = local_path(location)
        return path.stat().st_size if path.is_file() else None
    with store_errors(location):
        system, path_there = _store(str(location))
        found = system.get_file_info(path_there)
        return int(found.size) if found.is_file else None


def list_files(folder: Location, *, recursive: bool = False) -> list[str]:
    """Names of the files in a folder, sorted; below it too if ``recursive``. Empty if there is no such folder.

    Names are relative to the folder, with ``/`` between folders. Files of killed writers are left out.
    """
    if not is_address(folder):
        top = local_path(folder)
        files = (top.rglob("*") if recursive else top.glob("*")) if top.is_dir() else iter(())
        names = [file.relative_to(top).as_posix() for file in files if file.is_file()]
    else:
        with store_errors(folder):
            from pyarrow.fs import FileSelector

            system, path = _store(str(folder))
            start = path.rstrip("/")
            found = system.get_file_info(FileSelector(start, recursive=recursive, allow_not_found=True))
            names = [one.path.removeprefix(start).lstrip("/") for one in found if one.is_file]
    return sorted(name for name in names if not name.rpartition("/")[2].startswith(TEMPORARY))


@contextmanager
def store_errors(location: Location) -> Iterator[None]:
    """Report what a file system or an object store refuses in one line."""
    try:
        yield
    except OSError as error:  # also pyarrow's errors of object stores
        if not is_address(location):
            raise
        raise HoldfastError(f"{location}: {first_line(error)}") from error


def _store(address: str) -> tuple[Any, str]:
    """The file system of an address, and the path in it."""
    match = _ADDRESS.match(address)
    assert match is not None
    scheme = match[1].lower()
    if scheme not in SCHEMES:
        raise unknown_name(f"kind of address ({address})", scheme, SCHEMES)
    head, _, rest = address[match.end() :].partition("/")
    if scheme in _ARROW_SCHEMES:
        # One connection for all files of a bucket. What follows a question mark are settings of the connection.
        path, _, settings = rest.partition("?")
        return _arrow_store(f"{scheme}://{head}", settings), f"{head}/{path}".rstrip("/")
    system = _fsspec_store(scheme)
    return system, f"/{head}/{rest}" if scheme == "memory" else f"{head}/{rest}"


@functools.lru_cache(maxsize=16)
def _arrow_store(start: str, settings: str) -> Any:
    fs = _pyarrow_fs(start)
    import pyarrow

    try:
        found, _ = fs.FileSystem.from_uri(f"{start}/?{settings}" if settings else f"{start}/")
    except (pyarrow.ArrowException, OSError) as error:
        raise HoldfastError(f"{start}: {first_line(error)}") from error
    return found


@functools.lru_cache(maxsize=16)
def _fsspec_store(scheme: str) -> Any:
    fs = _pyarrow_fs(f"{scheme}://")
    try:
        import fsspec

        return fs.PyFileSystem(fs.FSSpecHandler(fsspec.filesystem(scheme)))
    except (ImportError, ValueError) as error:
        raise HoldfastError(f"{scheme}://: {first_line(error)}") from error


def pyarrow_for(path: Location) -> Any:
    """pyarrow with its parquet module; refused, with what to install, if it is missing."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise HoldfastError(f"{path}: parquet needs pyarrow; {how_to_install('parquet')}, or give npz") from None
    return pyarrow


@contextmanager
def parquet_errors(location: Location, advice: str = "") -> Iterator[None]:
    """Report a damaged parquet file that is found while it is read in one line. advice: added as it is."""
    pyarrow = pyarrow_for(location)
    try:
        yield
    except (pyarrow.ArrowException, OSError, ValueError, MemoryError) as error:
        raise HoldfastError(f"{location}: not readable as parquet ({first_line(error)}){advice}") from error


def _pyarrow_fs(what: str) -> Any:
    try:
        import pyarrow.fs
    except ImportError:
        raise HoldfastError(f"{what}: object stores need pyarrow; {how_to_install('parquet')}") from None
    return pyarrow.fs
