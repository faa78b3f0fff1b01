"""New vectors of items that searches needed, kept on disk: traffic is a backfill."""

import hashlib
import os
import sqlite3
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.core.errors import HoldfastError
from holdfast.vectors.feature_files import write_features
from holdfast.vectors.feature_set import feature_set

Key = tuple[Any, str]
"""An item's id (text or a whole number) and the hash of its content ("" if the content is not known)."""
_SCHEMA = """
CREATE TABLE IF NOT EXISTS about (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS vectors (id PRIMARY KEY, content TEXT NOT NULL, vector BLOB NOT NULL, used INTEGER NOT NULL);
CREATE INDEX IF NOT EXISTS by_use ON vectors (used);
"""
_VARIABLES = 500
_WAIT = 10.0  # seconds that a write waits for another process
_MAPPED = 1 << 40  # bytes of the file that are read through memory, at most what SQLite allows: half the time of a read
_FORMAT = "1"
_NUMBERS = np.dtype("<f4")


def content_hash(content: Any) -> str:
    """The hash that a cache keeps beside an item's vector: of text, of bytes, or of what ``repr`` says; "" for None."""
    if content is None:
        return ""
    raw = content if isinstance(content, bytes) else (content if isinstance(content, str) else repr(content)).encode()
    return hashlib.sha256(raw).hexdigest()[:32]


class NewVectors:
    """A cache of new vectors in one SQLite file, shared by threads and processes; a kill loses the last write at most.

    path: the file; made if it is missing.
    model: what the new model is called. A cache of another model is refused.
    most: vectors that are kept, and a hundredth more. Beyond them the ones that no search used for longest go.

    One vector per item: an item whose content changed gets a new one, and its old one is never returned.

    >>> import numpy as np
    >>> cache = NewVectors("new-vectors.sqlite", model="new")
    >>> cache.put({("a", content_hash("some text")): np.ones(3, np.float32)})
    >>> [name for name, _ in cache.get([("a", content_hash("some text")), ("a", content_hash("edited")), ("b", "")])]
    ['a']
    >>> len(cache)
    1
    """

    def __init__(self, path: Path | str, *, model: str = "", most: int = 1_000_000) -> None:
        if most < 1:
            raise HoldfastError(f"{path}: most must be at least 1, got {most}")
        self.path, self.model, self.most = Path(path), model, most
        self._local = threading.local()
        self._lock = threading.Lock()
        self._used: set[Any] = set()  # since the last write
        self._unchecked = most  # vectors written since they were counted; those of other runs are counted at once
        try:
            with self._connection() as connection:
                connection.executescript(_SCHEMA)
                for name, value in (("format", _FORMAT), ("model", model)):
                    connection.execute("INSERT OR IGNORE INTO about VALUES (?, ?)", (name, value))
                    (written,) = connection.execute("SELECT value FROM about WHERE name = ?", (name,)).fetchone()
                    if written != value:
                        raise HoldfastError(
                            f"{self.path}: holds vectors with the {name} {written!r}, not {value!r}; use another file"
                        )
        except sqlite3.Error as error:
            raise HoldfastError(f"{self.path}: cannot be opened as a cache of vectors ({error}); remove it") from None

    def _connection(self) -> sqlite3.Connection:
        """This thread's connection; a process that was forked opens its own."""
        if getattr(self._local, "process", None) != os.getpid():
            connection = sqlite3.connect(self.path, timeout=_WAIT)
            # Of a new file: vectors of 2 KB would waste half of 4 KB pages.
            connection.execute("PRAGMA page_size = 16384")
            connection.execute(f"PRAGMA mmap_size = {_MAPPED}")
            _write_ahead(connection)
            connection.execute("PRAGMA synchronous = NORMAL")
            self._local.connection, self._local.process = connection, os.getpid()
        connection = self._local.connection
        assert isinstance(connection, sqlite3.Connection)
        return connection

    def get(self, keys: Sequence[Key]) -> dict[Key, NDArray[np.float32]]:
        """The vectors that are kept for these ids and contents; those of another content are left out."""
        wanted = {(_plain(name), content): (name, content) for name, content in keys}
        names = list({name for name, _ in wanted})
        vectors = {}
        for start in range(0, len(names), _VARIABLES):
            part = names[start : start + _VARIABLES]
            query = f"SELECT id, content, vector FROM vectors WHERE id IN ({','.join('?' * len(part))})"
            for name, content, vector in self._connection().execute(query, part).fetchall():
                key = wanted.get((name, content))
                if key is not None:
                    vectors[key] = np.frombuffer(vector, _NUMBERS)
        with self._lock:
            self._used.update(_plain(name) for name, _ in vectors)
        return vectors

    def put(self, vectors: Mapping[Key, NDArray[Any]]) -> None:
        """Keep these vectors. All of them are kept, or none if the process is killed meanwhile."""
        with self._lock:
            used, self._used = self._used, set()
        rows = [
            (_plain(name), content, np.ascontiguousarray(vector, _NUMBERS).tobytes())
            for (name, content), vector in vectors.items()
        ]
        with self._connection() as connection:
            connection.execute("BEGIN IMMEDIATE")
            (last,) = connection.execute("SELECT coalesce(max(used), 0) FROM vectors").fetchone()
            connection.executemany(f"UPDATE vectors SET used = {last + 1} WHERE id = ?", [(name,) for name in used])
            connection.executemany(f"INSERT OR REPLACE INTO vectors VALUES (?, ?, ?, {last + 1})", rows)
            # Counting reads the whole table, so it is done for every hundredth of the bound.
            self._unchecked += len(rows)
            if self._unchecked > self.most // 100:
                self._unchecked = 0
                (count,) = connection.execute("SELECT count(*) FROM vectors").fetchone()
                oldest = "SELECT id FROM vectors ORDER BY used, rowid LIMIT ?"
                if count > self.most:
                    connection.execute(f"DELETE FROM vectors WHERE id IN ({oldest})", (count - self.most,))

    def __len__(self) -> int:
        (count,) = self._connection().execute("SELECT count(*) FROM vectors").fetchone()
        return int(count)

    def export(self, path: Path | str) -> int:
        """Write all vectors with their ids to a file that ``holdfast`` reads (.npz or .parquet); returns their number.

        They need not be embedded again when the index is re-embedded.
        """
        rows = self._connection().execute("SELECT id, vector FROM vectors ORDER BY rowid").fetchall()
        if not rows:
            raise HoldfastError(f"{self.path}: holds no vectors yet; there is nothing to export")
        names = [name for name, _ in rows]
        ids = np.array(names) if all(isinstance(name, int) for name in names) else np.array([str(n) for n in names])
        vectors = np.stack([np.frombuffer(vector, _NUMBERS) for _, vector in rows])
        write_features(path, feature_set(str(self.path), vectors, None, ids))
        return len(rows)

    def close(self) -> None:
        """Close this thread's connection; another call opens it again."""
        if getattr(self._local, "process", None) == os.getpid():
            self._local.connection.close()
        self._local.process = None


def _write_ahead(connection: sqlite3.Connection) -> None:
    """Set the journal's mode; SQLite itself does not wait here for a process that makes the same file."""
    end = time.monotonic() + _WAIT
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > end:
                raise
        time.sleep(0.01)


def _plain(name: Any) -> Any:
    """An id as SQLite keeps it: whole numbers and text as they are, others, such as UUIDs, as text."""
    if type(name) is int or type(name) is str:
        return name
    return int(name) if isinstance(name, int | np.integer) else str(name)
