"""Makes a valid file hostile: the mutations of ``hostile_files.py``. Each is drawn from a ``random.Random``."""

import contextlib
import io
import json
import os
import pickle
import re
import shutil
import socket
import sqlite3
import struct
import tomllib
import warnings
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from holdfast.train.toml_text import to_toml

HUGE = (2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**62, 2**63 - 1, 2**64 - 1, 10**12, 10**30)
VALUES: tuple[Callable[[Random], Any], ...] = (
    lambda draw: draw.choice((True, False, None, "", 0, -1, 0.5, 1e308, float("nan"), float("-inf"))),
    lambda draw: draw.choice(HUGE),
    lambda draw: draw.choice((-1, 1)) * draw.randrange(1, 100_000),
    lambda draw: draw.choice(([], {}, [[]], [None], {"": 0}, [1, "a"], {"a": {"b": []}})),
    lambda draw: draw.choice(("\0", "\ud800", "a\nb", "../../x", "/dev/zero", "é" * 50, "a" * 100_000, "module:Class")),
    lambda draw: nested(draw.choice((3, 60, 100, 900))),
    lambda draw: [draw.randrange(-9, 9)] * draw.choice((1, 7, 10_000)),
)


def nested(depth: int) -> Any:
    value: Any = 1
    for level in range(depth):
        value = [value] if level % 2 else {"a": value}
    return value


# Mutations of bytes


def flip_bits(content: bytes, draw: Random) -> bytes:
    changed = bytearray(content)
    for _ in range(draw.choice((1, 1, 3, 20))):
        changed[place(content, draw)] ^= 1 << draw.randrange(8)
    return bytes(changed)


def cut(content: bytes, draw: Random) -> bytes:
    return content[: draw.choice((0, 1, place(content, draw), len(content) - 1))]


def insert(content: bytes, draw: Random) -> bytes:
    at = place(content, draw)
    return content[:at] + draw.choice((draw.randbytes(draw.randrange(1, 100)), bytes(8), b"\xff" * 8)) + content[at:]


def delete(content: bytes, draw: Random) -> bytes:
    at = place(content, draw)
    return content[:at] + content[at + draw.randrange(1, 64) :]


def overwrite(content: bytes, draw: Random) -> bytes:
    at, size = place(content, draw), draw.choice((1, 4, 16, 1000))
    return content[:at] + draw.choice((bytes(size), b"\xff" * size, draw.randbytes(size))) + content[at + size :]


def swap_blocks(content: bytes, draw: Random) -> bytes:
    size = draw.choice((1, 4, 8, 32))
    one, other = sorted((place(content, draw), place(content, draw)))
    if other < one + size:
        return content[::-1]
    middle, end = content[one + size : other], content[other + size :]
    return content[:one] + content[other : other + size] + middle + content[one : one + size] + end


def huge_number(content: bytes, draw: Random) -> bytes:
    """A number of 2, 4 or 8 bytes, in either order, becomes huge."""
    form = draw.choice(("<H", ">H", "<I", ">I", "<Q", ">Q"))
    packed = struct.pack(form, min(draw.choice(HUGE), 2 ** (8 * struct.calcsize(form)) - 1))
    at = place(content, draw)
    return content[:at] + packed + content[at + len(packed) :]


def huge_text(content: bytes, draw: Random) -> bytes:
    """A number in the text of the file, such as a header, becomes huge or something else."""
    found = list(re.finditer(rb"[0-9]+", content[:20_000]))
    if not found:
        return huge_number(content, draw)
    one = draw.choice(found)
    text = draw.choice([str(value).encode() for value in HUGE] + [b"-1", b"0", b"1e999", b"9" * 5000, b"''", b"True"])
    if draw.random() < 0.5:  # as long as before, so that the places of everything else stay
        text = b"9" * len(one[0])
    return content[: one.start()] + text + content[one.end() :]


def deep_text(content: bytes, draw: Random) -> bytes:
    left, right = draw.choice(((b"[", b"]"), (b"(", b")"), (b'{"a":', b"}")))
    depth, at = draw.choice((65, 3000, 100_000)), place(content, draw)
    return content[:at] + left * depth + right * depth + content[at:]


def something_else(content: bytes, draw: Random) -> bytes:
    zipped = io.BytesIO()
    with zipfile.ZipFile(zipped, "w") as archive:
        archive.writestr("a.npy", content[:1000])
    heads = [
        b"\x93NUMPY\x01\x00",
        b"PK\x03\x04",
        b"PAR1",
        b"\x80\x04",
        b"\x89PNG\r\n\x1a\n",
        b"SQLite format 3\0",
        b"\xff\xd8",
    ]
    return draw.choice(
        [b"", b"{}", b"[]", b"null", draw.randbytes(300), zipped.getvalue(), draw.choice(heads) + content]
    )


def place(content: bytes, draw: Random) -> int:
    """A place in the file; half of the time near its beginning or end, where headers and tables are."""
    size = max(1, len(content))
    if draw.random() < 0.5:
        near = min(size, 256)
        return draw.choice((draw.randrange(near), size - 1 - draw.randrange(near)))
    return draw.randrange(size)


BYTES = (
    flip_bits,
    cut,
    insert,
    delete,
    overwrite,
    swap_blocks,
    huge_number,
    huge_text,
    deep_text,
    something_else,
)


# Mutations of what a file says. The file itself stays well formed.


def other_value(tree: Any, draw: Random) -> Any:
    """JSON or TOML as read, with a value replaced, deleted, renamed or swapped with another."""
    places: list[tuple[Any, Any]] = []
    level = [tree]
    while level:
        one = level.pop()
        keys = list(one) if isinstance(one, dict) else range(len(one)) if isinstance(one, list) else []
        places += [(one, key) for key in keys]
        level += [one[key] for key in keys]
    if not places:
        return draw.choice(VALUES)(draw)
    for _ in range(draw.choice((1, 1, 2))):
        table, key = draw.choice(places)
        kind = draw.randrange(8)
        with contextlib.suppress(KeyError, IndexError):  # of what another change has deleted
            if kind == 0:
                del table[key]
            elif kind == 1:
                other, name = draw.choice(places)
                table[key], other[name] = other[name], table[key]
            elif kind == 2 and isinstance(table, dict):
                table[draw.choice(("x", "", "a.b", key + " "))] = table.pop(key)
            else:
                table[key] = draw.choice(VALUES)(draw)
    return tree


def in_json(content: bytes, draw: Random) -> bytes:
    return json.dumps(other_value(json.loads(content), draw)).encode()


def in_toml(content: bytes, draw: Random) -> bytes:
    return to_toml(other_value(tomllib.loads(content.decode()), draw)).encode()


def in_safetensors(content: bytes, draw: Random) -> bytes:
    (size,) = struct.unpack("<Q", content[:8])
    header = in_json(content[8 : 8 + size], draw)
    return struct.pack("<Q", len(header)) + header + content[8 + size :]


def in_npz(content: bytes, draw: Random) -> bytes:
    """An archive with right checksums in which one array is hostile, missing, twice there or has another name."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = [(name, archive.read(name)) for name in archive.namelist()]
    at = draw.randrange(len(members))
    name, member = members[at]
    kind = draw.randrange(8)
    if kind == 0:
        members.pop(at)
    elif kind == 1:
        members.append((name, in_npy(member, draw)))
    elif kind == 2:
        members[at] = draw.choice(("", "../x.npy", "x\n.npy", "a" * 60_000)), member
    else:
        members[at] = name, draw.choice((in_npy, in_npy, *BYTES))(member, draw)
    made = io.BytesIO()
    with (
        warnings.catch_warnings(action="ignore"),
        zipfile.ZipFile(made, "w") as archive,
    ):  # of a name that is twice there
        for name, member in members:
            archive.writestr(zipfile.ZipInfo(name), member, draw.choice((0, 8)))
    return made.getvalue()


def in_npy(content: bytes, draw: Random) -> bytes:
    """An npy array whose header says another shape or type."""
    (size,) = struct.unpack("<H", content[8:10])
    kind = draw.choice(
        ("'<f8'", "'|O'", "'<U9'", "'|S0'", "'<M8[s]'", "'<c8'", "'<f2'", "'|b1'", "'|V4'", "[('a', '<f4')]")
    )
    sides = [
        str(draw.choice((*HUGE, -1, 0, 1, 3, "''", "()", "True", "1.5"))) for _ in range(draw.choice((0, 1, 2, 40)))
    ]
    header = content[10 : 10 + size].decode("latin1")
    if draw.random() < 0.5:
        header = re.sub(r"'descr': '[^']*'", f"'descr': {kind}", header)
    else:
        header = re.sub(r"'shape': \([^)]*\)", f"'shape': ({', '.join(sides)},)" if sides else "'shape': ()", header)
    if draw.random() < 0.3:
        header = header.replace("False", "True")
    return content[:8] + struct.pack("<H", len(header)) + header.encode() + content[10 + size :]


def in_parquet(content: bytes, draw: Random) -> bytes:
    """A table with columns of other types, other names or missing."""
    import pyarrow as pa
    from pyarrow import parquet

    table = parquet.read_table(io.BytesIO(content))
    rows = len(table)
    columns = {name: table[name] for name in table.column_names}
    name = draw.choice(list(columns))
    vectors = columns["features" if "features" in columns else table.column_names[0]].to_pylist()
    odd: list[Any] = [
        pa.nulls(rows),
        pa.array([None] + [1.0] * (rows - 1)),
        pa.array([[]] * rows, pa.list_(pa.float32())),
        pa.array([[[1.0]]] * rows),
        pa.array([{"a": 1}] * rows),
        pa.array([b"\xff\xfe"] * rows),
        pa.array(["a" * draw.choice((0, 1, 5000))] * rows),
        pa.array([float("nan")] * rows),
        pa.array([2**63 - 1] * rows),
        pa.array([[1.0] * (1 + n % 3) for n in range(rows)]),
        pa.array([*vectors[:-1], None]),
        pa.array([True] * rows),
    ]
    if draw.random() < 0.15:
        columns.pop(name)
    else:
        columns[name] = draw.choice(odd)
    made = io.BytesIO()
    parquet.write_table(pa.table(columns).slice(0, draw.choice((0, 1, rows, rows))), made)
    return made.getvalue()


def in_pickle(content: bytes, draw: Random) -> bytes:
    """A pickle of other values under the keys of the data set."""
    batch = pickle.loads(content, encoding="bytes")  # made by this script
    key = draw.choice(list(batch))
    array = batch.get(b"data")
    odd = [draw.choice(VALUES)(draw), object(), os.getcwd, array, {b"a": array}, [array] * 3, b"x" * 10_000]
    if array is not None:
        odd += [array.astype("f8"), array[:, :-1], array[:0], array.astype("O"), array.astype("M8[s]"), array.T]
    batch[key] = draw.choice(odd)
    return pickle.dumps(batch, protocol=draw.choice((2, 3, 4, 5)))


def in_png(content: bytes, draw: Random) -> bytes:
    """A PNG of another size, depth or kind, with right checksums."""
    width, height, *rest = struct.unpack(">IIBBBBB", content[16:29])
    sides = (0, 1, 5000, 30_000, 65_535, 2**20, 2**31 - 1, 2**32 - 1)
    kind = draw.randrange(3)
    if kind != 1:
        width = draw.choice(sides)
    if kind != 0:
        height = draw.choice(sides)
    if draw.random() < 0.3:
        rest[draw.randrange(5)] = draw.randrange(256)
    head = b"IHDR" + struct.pack(">IIBBBBB", width, height, *rest)
    return content[:12] + head + struct.pack(">I", zlib.crc32(head)) + content[33:]


MEANINGS: dict[str, Callable[[bytes, Random], bytes]] = {
    ".json": in_json,
    ".toml": in_toml,
    ".safetensors": in_safetensors,
    ".npz": in_npz,
    ".npy": in_npy,
    ".parquet": in_parquet,
    ".pickle": in_pickle,
    ".png": in_png,
}


def in_database(path: Path, draw: Random) -> str:
    """Change a value, a table or its columns in an SQLite file; what was done."""
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        table = draw.choice([name for name in tables if not name.startswith("sqlite_")])
        columns = [row[1] for row in connection.execute(f'PRAGMA table_info("{table}")')]
        column, kind = draw.choice(columns), draw.randrange(10)
        with contextlib.suppress(sqlite3.Error, UnicodeError, OverflowError):  # a constraint: the file stays as it is
            if kind == 0:
                connection.execute(f'DROP TABLE "{table}"')
            elif kind == 1:
                connection.execute(f'ALTER TABLE "{table}" RENAME COLUMN "{column}" TO x')
            elif kind == 2:
                connection.execute(f'DELETE FROM "{table}"')
            else:
                rows = connection.execute(f'SELECT rowid, "{column}" FROM "{table}"').fetchall()
                row, before = draw.choice(rows) if rows else (0, None)
                try:
                    after = json.dumps(other_value(json.loads(before), draw))
                except (ValueError, TypeError):
                    after = draw.choice((b"\xff\0", "{", "[]", "", "x", -1, 2**62, 0, 1.5, None))
                connection.execute(f'UPDATE "{table}" SET "{column}" = ? WHERE rowid = ?', (after, row))
    return f"database: {table}.{column}, kind {kind}"


# Mutations of the file as such


def make_pipe(path: Path) -> None:
    os.mkfifo(path)


def make_socket(path: Path) -> None:
    before = os.getcwd()
    os.chdir(path.parent)  # a socket's path must be short
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(before)


ODD_FILES: dict[str, Callable[[Path], None]] = {
    "pipe": make_pipe,
    "socket": make_socket,
    "folder": lambda path: path.mkdir(),
    "missing": lambda path: None,
    "link to an endless device": lambda path: path.symlink_to("/dev/zero"),
    "link to itself": lambda path: path.symlink_to(path.name),
    "link to nothing": lambda path: path.symlink_to("nothing-here"),
    "link to its folder": lambda path: path.symlink_to(path.parent),
    "endless hole": lambda path: os.truncate(os.open(path, os.O_CREAT | os.O_WRONLY), 2**40),
}


def mutate(path: Path, draw: Random) -> str:
    """Make one file hostile in place; the name of the mutation."""
    kind = draw.random()
    if kind < 0.12:
        name = draw.choice(list(ODD_FILES))
        path.unlink()
        ODD_FILES[name](path)
        return name
    if path.suffix == ".sqlite" and kind < 0.6:
        return in_database(path, draw)
    content = path.read_bytes()
    # The batches of CIFAR have no suffix.
    meaning = MEANINGS.get(".pickle" if "batch" in path.name or path.name.endswith("meta") else path.suffix)
    if meaning and kind < 0.6 and content:
        with contextlib.suppress(Exception):  # values that the format cannot say, such as a table that is in itself
            path.write_bytes(meaning(content, draw))
            return meaning.__name__
    change = draw.choice(BYTES)
    path.write_bytes(change(content or b"\0", draw))
    return change.__name__


def copy(source: Path, target: Path) -> Path:
    """A copy of a file or folder; the holes of sparse files stay holes."""
    if source.is_file():
        target.parent.mkdir(parents=True, exist_ok=True)
        return Path(shutil.copy(source, target))
    return Path(shutil.copytree(source, target, copy_function=_copy_sparse))


def _copy_sparse(source: str, target: str) -> None:
    with open(source, "rb") as old, open(target, "wb") as new:
        while block := old.read(2**16):
            if block.count(0) == len(block):
                new.seek(len(block), os.SEEK_CUR)
            else:
                new.write(block)
        new.truncate(os.path.getsize(source))
