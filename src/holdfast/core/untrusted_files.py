"""Opens and reads untrusted files within bounds. Every reader of such a file uses it.

A file must be a regular file: a pipe or an endless device would be read forever. Text has a largest size, JSON and TOML
a largest depth, numbers have bounds, and an array in an npz or npy file is read only if the file has its bytes. An
error is one line of ``HoldfastError``.
"""

import errno
import io
import json
import math
import os
import re
import stat
import tokenize
import tomllib
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TextIO

import numpy as np

from holdfast.core.errors import HoldfastError, first_line
from holdfast.core.real_arrays import check_real
from holdfast.core.wording import printable

MOST_JSON = 256 * 2**20
"""Bytes of a JSON file, such as the list of a large buffer's samples."""
MOST_TOML = 2**18
"""Bytes of a TOML file. The longest recipe of Holdfast has 3,000; a hostile one of this size takes a second to read."""
LONGEST_LINE = 2**23
"""Characters of a line of a table; 65,536 numbers of full precision have 1.5 million."""
DEEPEST = 64
"""Levels of lists and objects in each other."""
SKIP_CRC = "HOLDFAST_SKIP_CRC"
"""Environment variable: 1 maps the arrays of uncompressed npz files without reading them to compare their CRC."""

_UNPACKED, _RATIO = 256 * 2**20, 20  # a larger array must not be more than so many times its compressed size
_BLOCK = 2**24
_LARGE, _MOST_PIECES = 2**30, 1000  # from this size on files are looked at for holes, in so many pieces
# A key such as a.b.c of more than DEEPEST parts: the time that tomllib takes grows with the square of their number.
_LONG_KEY = re.compile(rf"""(?<![\w-])(?:(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+\.[ \t]*+){{{DEEPEST},}}""", re.ASCII)


def open_regular(path: Path) -> BufferedReader:
    """Open a regular file, or a link to one, for reading. Pipes, devices, sockets and folders are refused."""
    try:
        # O_NONBLOCK: opening a pipe would wait for its writer.
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    except FileNotFoundError:
        raise HoldfastError(f"{printable(path)}: no such file") from None
    except (OSError, ValueError) as error:
        raise HoldfastError(f"{printable(path)}: cannot be opened ({first_line(error)})") from error
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise HoldfastError(f"{printable(path)}: not a regular file, but a folder, a pipe or a device")
    if _almost_empty(handle):
        os.close(handle)
        raise HoldfastError(f"{printable(path)}: has nearly no bytes of the size that it claims (a sparse file)")
    return os.fdopen(handle, "rb")


def _almost_empty(handle: int) -> bool:
    """Whether a large file consists of holes but for a thousandth: a tiny file on disk would take hours to read."""
    size = os.fstat(handle).st_size
    if size < _LARGE or not hasattr(os, "SEEK_DATA"):
        return False
    data = place = 0
    try:
        for _ in range(_MOST_PIECES):
            begin = os.lseek(handle, place, os.SEEK_DATA)
            place = os.lseek(handle, begin, os.SEEK_HOLE)
            data += place - begin
            if place >= size or data > size // 1000:
                return data <= size // 1000
        return False
    except OSError as error:  # ENXIO: no data from here on; others: a file system that does not know
        return error.errno == errno.ENXIO
    finally:
        os.lseek(handle, 0, os.SEEK_SET)


def check_regular(path: Path) -> None:
    """Refuse what ``open_regular`` refuses, before another library opens the file."""
    open_regular(path).close()


def open_table(path: Path) -> TextIO:
    """Open a regular file as UTF-8 text for ``csv.reader``; the byte-order mark that spreadsheets write is skipped."""
    return io.TextIOWrapper(open_regular(path), encoding="utf-8-sig", newline="")


def bounded_lines(file: TextIO, path: Path) -> Iterator[str]:
    """The lines of a text file; refused if one has more than ``LONGEST_LINE`` characters."""
    while line := file.readline(LONGEST_LINE + 1):
        if len(line) > LONGEST_LINE:
            raise HoldfastError(f"{printable(path)}: a line of more than {LONGEST_LINE:,} characters")
        yield line


def read_text(path: Path, most: int) -> str:
    """The text of a UTF-8 file of at most ``most`` bytes."""
    with open_regular(path) as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise HoldfastError(f"{printable(path)}: larger than {most:,} bytes, which no such file needs")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise HoldfastError(f"{printable(path)}: not UTF-8 (byte {error.start})") from None


def read_json(path: Path, most: int = MOST_JSON) -> Any:
    """The value in a JSON file of at most ``most`` bytes."""
    return parse_json(read_text(path, most), printable(path))


def parse_json(text: str | bytes, source: str) -> Any:
    """The value in JSON text; ``source`` names it in errors."""
    try:
        value = json.loads(text)
    except RecursionError:
        raise _too_deep(source) from None
    except ValueError as error:
        raise HoldfastError(f"{source}: not readable as JSON ({first_line(error)})") from error
    check_depth(value, source)
    return value


def read_toml(path: Path) -> dict[str, Any]:
    """The tables in a TOML file."""
    text = read_text(path, MOST_TOML)
    if _LONG_KEY.search(text):
        raise _too_deep(printable(path))
    try:
        tables = tomllib.loads(text)
    except RecursionError:
        raise _too_deep(printable(path)) from None
    except ValueError as error:  # also of a number with thousands of digits
        raise HoldfastError(f"{printable(path)}: not valid TOML: {first_line(error)}") from None
    check_depth(tables, printable(path))
    return tables


def check_depth(value: Any, source: str) -> None:
    """Refuse lists and objects in more than ``DEEPEST`` levels: functions that call themselves would fail on them."""
    level = [value]
    for _ in range(DEEPEST):
        level = [
            item
            for one in level
            if isinstance(one, dict | list)
            for item in (one.values() if isinstance(one, dict) else one)
            if isinstance(item, dict | list)
        ]
        if not level:
            return
    raise _too_deep(source)


def whole_number(value: Any, name: str, least: int, most: int) -> int:
    """``value`` if it is a whole number in ``least`` .. ``most``; true and false are not numbers."""
    if type(value) is not int or not least <= value <= most:
        shown = type(value).__name__  # of a number that has too many digits to be written, too
        if isinstance(value, bool | float | None) or (isinstance(value, int) and value.bit_length() < 128):
            shown = repr(value)
        raise HoldfastError(f"{name} must be a whole number from {least} to {most}, found {shown}")
    return value


class ArrayHeader(NamedTuple):
    """What the header of an npy array says, and its own size in bytes."""

    shape: tuple[int, ...]
    dtype: np.dtype
    fortran: bool
    size: int

    @property
    def data_size(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


BAD_ARRAY = (
    ValueError,
    EOFError,
    OSError,
    RuntimeError,
    MemoryError,
    SyntaxError,
    TypeError,
    OverflowError,
    tokenize.TokenError,
    zipfile.BadZipFile,
    zlib.error,
)
"""What numpy and zipfile raise for files that are not npy or npz, or are damaged."""


def array_header(file: BinaryIO, available: int, source: str) -> ArrayHeader:
    """The header of the npy array at the position of ``file``, which is then at the array's first byte.

    Refused if header and array need more than ``available`` bytes.
    """
    start = file.tell()
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, fortran, dtype = read(file)
    found = ArrayHeader(shape, dtype, fortran, file.tell() - start)
    check_real(found, source)
    needed = found.size + math.prod(shape) * max(1, dtype.itemsize)
    if any(side < 0 for side in shape):
        raise HoldfastError(f"{source}: its header says a negative size")
    if needed > available and not dtype.hasobject:  # objects are refused by all callers
        raise HoldfastError(f"{source}: cut short: {available} bytes, but its header needs {needed}")
    return found


def read_npy(path: Path, *, mapped: bool = False) -> np.ndarray:
    """The array of an npy file; ``mapped`` memory-maps it instead."""
    try:
        with open_regular(path) as file:
            header = array_header(file, os.fstat(file.fileno()).st_size, printable(path))
            if not mapped or header.dtype.hasobject or not header.data_size:
                file.seek(0)
                return np.lib.format.read_array(file, allow_pickle=False)
        order: Any = "F" if header.fortran else "C"
        return np.memmap(path, header.dtype, "r", header.size, header.shape, order)
    except BAD_ARRAY as error:
        reason = f"not readable as npy, perhaps truncated ({first_line(error)})"
        raise HoldfastError(f"{printable(path)}: {reason}") from error


class NpzFile:
    """The arrays of an open npz file; see ``open_npz``."""

    def __init__(self, path: Path, file: BinaryIO, archive: zipfile.ZipFile) -> None:
        self.path, self._file, self._archive = path, file, archive
        self._size = os.fstat(file.fileno()).st_size
        self._members = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}

    @property
    def names(self) -> list[str]:
        return list(self._members)

    def array(self, name: str) -> np.ndarray:
        """Read one array and compare its CRC."""
        info = self._member(name)
        if info.file_size > max(_UNPACKED, _RATIO * info.compress_size):
            times = info.file_size // max(1, info.compress_size)
            raise HoldfastError(f"{self._source(name)}: is {times:,} times its compressed size; save it uncompressed")
        with self._archive.open(info) as member:
            array_header(member, info.file_size, self._source(name))  # type: ignore[arg-type]
        with self._archive.open(info) as member:
            found = np.lib.format.read_array(member, allow_pickle=False)
            if member.read(1):  # the CRC is compared when the last byte is read
                raise HoldfastError(f"{self._source(name)}: has more bytes than its header says")
        return found

    def mappable(self, name: str) -> tuple[ArrayHeader, int] | None:
        """Header of an array that is stored uncompressed, and where its numbers begin in the file; else None.

        Its bytes are read to compare their CRC, unless the environment variable ``HOLDFAST_SKIP_CRC`` is 1.
        """
        info = self._member(name)
        if info.compress_type != zipfile.ZIP_STORED or info.flag_bits & 1:
            return None
        with open_regular(self.path) as file:
            file.seek(info.header_offset + 26)  # the lengths of name and extra field in the member's own header
            name_size, extra_size = np.frombuffer(file.read(4), dtype="<u2")
            start = info.header_offset + 30 + int(name_size) + int(extra_size)
            file.seek(start)
            header = array_header(file, min(info.file_size, self._size - start), self._source(name))
        if os.environ.get(SKIP_CRC, "") not in ("", "0"):
            return header, start + header.size
        with self._archive.open(info) as member:
            while member.read(_BLOCK):
                pass
        return header, start + header.size

    def _member(self, name: str) -> zipfile.ZipInfo:
        info = self._members[name]
        if info.compress_size > self._size or info.header_offset > self._size:
            raise HoldfastError(f"{self._source(name)}: larger than the file; the file is damaged")
        return info

    def _source(self, name: str) -> str:
        return f"{printable(self.path)}: {printable(name)}"


@contextmanager
def open_npz(path: Path) -> Iterator[NpzFile]:
    """Open an npz file. An error while it is open that says that the file is damaged becomes one line."""
    try:
        with open_regular(path) as file:
            if file.read(len(np.lib.format.MAGIC_PREFIX)) == np.lib.format.MAGIC_PREFIX:
                raise HoldfastError(f"{printable(path)}: holds a single array; write it with numpy.savez")
            with zipfile.ZipFile(file) as archive:
                yield NpzFile(path, file, archive)
    except BAD_ARRAY as error:
        raise HoldfastError(f"{printable(path)}: not readable as npz ({first_line(error)})") from error


def _too_deep(source: str) -> HoldfastError:
    return HoldfastError(f"{source}: lists and tables in more than {DEEPEST} levels, which no such file needs")
