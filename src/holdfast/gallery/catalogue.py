"""Which items there are and which version holds each: the one place that decides, in one SQLite file.

Vectors live in the engine, and two stores cannot be written in one step. So every stored vector has a key of its own
that is never used again, and a key counts only while the catalogue says that an item owns it:

1. keys are noted as unsettled, 2. the engine stores the vectors, 3. one transaction gives the keys to their items and
notes the keys these had before as unsettled: from here on the write is acknowledged, 4. the engine deletes what is
unsettled, and the notes go. Killed anywhere, what is unsettled belongs to nobody and is deleted when the gallery is
opened again.

How often each item was a hit: counted in memory, written to the catalogue now and then.
"""

import contextlib
import json
import sqlite3
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from holdfast.errors import HoldfastError, UnavailableError
from holdfast.gallery.items import Hit, Stored

_TABLES = """
CREATE TABLE settings (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE versions (number INTEGER PRIMARY KEY, record TEXT NOT NULL);
CREATE TABLE items (
    key INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, version INTEGER NOT NULL REFERENCES versions (number),
    label TEXT, metadata TEXT NOT NULL, path TEXT
);
CREATE INDEX items_by_version ON items (version);
CREATE TABLE fields (name TEXT PRIMARY KEY);
CREATE TABLE unsettled (key INTEGER PRIMARY KEY, version INTEGER NOT NULL);
"""
# Galleries made before hits were counted have no such table.
_HITS = "CREATE TABLE IF NOT EXISTS hits (id TEXT PRIMARY KEY, count INTEGER NOT NULL) WITHOUT ROWID"
_COLUMNS = "key, id, version, label, metadata, path"
_AT_ONCE = 500


class Catalogue:
    """Safe for many threads: one connection, one at a time. Every change is on disk when its call returns."""

    def __init__(self, path: Path, *, new: bool = False) -> None:
        if not new and not path.exists():
            raise HoldfastError(f"{path}: no such file; it belongs to every gallery")
        self._path = path
        self._lock = threading.RLock()
        self._handed_over = 0
        try:
            self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute("PRAGMA synchronous = FULL")
            self._connection.execute("PRAGMA foreign_keys = ON")
            if new:
                self._connection.executescript(_TABLES)
            self._connection.execute(_HITS)
            self._fields = {name for (name,) in self._connection.execute("SELECT name FROM fields")}
        except sqlite3.OperationalError as error:  # the file may be whole: SQLite writes beside it even to read
            raise UnavailableError(f"{path}: cannot be opened ({error}); is the disk full or read-only?") from error
        except sqlite3.DatabaseError as error:
            raise HoldfastError(f"{path}: not readable as a gallery's catalogue ({error})") from error

    @contextmanager
    def _change(self) -> Iterator[sqlite3.Connection]:
        """One transaction: on disk when the block is left, undone where it raises."""
        with self._lock:
            try:
                self._connection.execute("BEGIN IMMEDIATE")
                yield self._connection
                self._connection.execute("COMMIT")
            except BaseException as error:
                if self._connection.in_transaction:  # some errors, a full disk among them, have undone it already
                    self._connection.execute("ROLLBACK")
                if isinstance(error, sqlite3.OperationalError):
                    raise UnavailableError(f"{self._path}: cannot be written ({error})") from error
                raise

    def still(self) -> AbstractContextManager[object]:
        """While this is held no other thread changes or reads anything here."""
        return self._lock

    def read(self, query: str, values: Sequence[Any] = ()) -> list[Any]:
        with self._lock:
            return self._connection.execute(query, values).fetchall()

    def setting(self, name: str, default: Any = None) -> Any:
        with self._lock:
            row = self._connection.execute("SELECT value FROM settings WHERE name = ?", (name,)).fetchone()
        return default if row is None else json.loads(row[0])

    def put_version(self, number: int, record: dict[str, Any], settings: dict[str, Any]) -> None:
        """Add a version, or change its record, and settings with it."""
        with self._change() as change:
            values = (number, json.dumps(record))
            change.execute(
                "INSERT INTO versions VALUES (?, ?) ON CONFLICT DO UPDATE SET record = excluded.record", values
            )
            _put_settings(change, settings)

    def put_settings(self, settings: dict[str, Any]) -> None:
        with self._change() as change:
            _put_settings(change, settings)

    def remove_version(self, number: int, settings: dict[str, Any]) -> None:
        """Take out a version that holds no items (SQLite refuses it where it does), and change settings with it."""
        with self._change() as change:
            change.execute("DELETE FROM unsettled WHERE version = ?", (number,))
            change.execute("DELETE FROM versions WHERE number = ?", (number,))
            _put_settings(change, settings)

    def versions(self) -> dict[int, dict[str, Any]]:
        with self._lock:
            rows = self._connection.execute("SELECT number, record FROM versions ORDER BY number").fetchall()
        return {number: json.loads(record) for number, record in rows}

    def reserve(self, count: int, version: int) -> range:
        """New keys for vectors that are about to be stored, noted as unsettled."""
        with self._change() as change:
            row = change.execute("SELECT value FROM settings WHERE name = 'next_key'").fetchone()
            first = 1 if row is None else int(row[0])
            keys = range(first, first + count)
            change.execute("INSERT OR REPLACE INTO settings VALUES ('next_key', ?)", (str(keys.stop),))
            change.executemany("INSERT INTO unsettled VALUES (?, ?)", [(key, version) for key in keys])
        return keys

    def hand_over(self, items: Sequence[Stored]) -> int:
        """Give the keys to their items; how many were there before, and gave up the key they had."""
        with self._change() as change:
            retired = [key for part in _parts([item.id for item in items]) for key, _ in _retire(change, part)]
            change.executemany("DELETE FROM unsettled WHERE key = ?", [(item.key,) for item in items])
            change.executemany(
                f"INSERT INTO items ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?)",
                [(i.key, i.id, i.version, i.label, json.dumps(dict(i.metadata)), i.path) for i in items],
            )
            fields = {name for item in items for name in item.fields()} - self._fields
            change.executemany("INSERT OR IGNORE INTO fields VALUES (?)", [(name,) for name in fields])
            # Under the lock that look-ups take: who reads the counter before and after sees every change in between.
            self._handed_over += bool(retired)
        self._fields |= fields
        return len(retired)

    def remove(self, ids: Sequence[str]) -> list[str]:
        """Take items out of the gallery; the ids that were there."""
        with self._change() as change:
            gone = [name for part in _parts(list(dict.fromkeys(ids))) for _, name in _retire(change, part)]
            change.executemany("DELETE FROM hits WHERE id = ?", [(name,) for name in gone])
            self._handed_over += bool(gone)
        return gone

    def move(self, items: Sequence[Stored], keys: Sequence[int], version: int) -> int:
        """Give items new keys in another version; how many. One that gave up its key since it was read stays as it is.

        Its new key stays unsettled then: the vector made of what it was belongs to nobody.
        """
        moved = 0
        with self._change() as change:
            for item, key in zip(items, keys, strict=True):
                values = (key, version, item.key)
                if change.execute("UPDATE items SET key = ?, version = ? WHERE key = ?", values).rowcount:
                    change.execute(
                        "UPDATE unsettled SET key = ?, version = ? WHERE key = ?", (item.key, item.version, key)
                    )
                    moved += 1
            self._handed_over += bool(moved)
        return moved

    def add_hits(self, counts: Mapping[str, int]) -> None:
        """Add to how often items were hits; those that are gone are passed over. The one change that is not flushed."""
        with self._lock:
            # In a write-ahead log this spares the flush: the last counts may be lost with the power, nothing else.
            self._connection.execute("PRAGMA synchronous = NORMAL")
            try:
                with self._change() as change:
                    change.executemany(
                        "INSERT INTO hits SELECT ?1, ?2 WHERE EXISTS (SELECT 1 FROM items WHERE id = ?1) "
                        "ON CONFLICT DO UPDATE SET count = count + excluded.count",
                        list(counts.items()),
                    )
            finally:
                self._connection.execute("PRAGMA synchronous = FULL")

    def unsettled(self) -> dict[int, list[int]]:
        """Keys that belong to nobody, by version."""
        found: dict[int, list[int]] = {}
        with self._lock:
            for key, version in self._connection.execute("SELECT key, version FROM unsettled"):
                found.setdefault(version, []).append(key)
        return found

    def settle(self, keys: Iterable[int]) -> None:
        """The engine holds these keys no longer."""
        with self._change() as change:
            change.executemany("DELETE FROM unsettled WHERE key = ?", [(key,) for key in keys])

    def by_key(self, keys: Sequence[int]) -> tuple[dict[int, Stored], int]:
        """The items that own these keys, and how often keys have been taken from items so far."""
        with self._lock:
            return {item.key: item for item in self._select("key", keys)}, self._handed_over

    def by_id(self, ids: Sequence[str]) -> dict[str, Stored]:
        with self._lock:
            return {item.id: item for item in self._select("id", ids)}

    def labelled_images(self, version: int) -> list[Stored]:
        """Items of a version that have a label and the path of an image, by key."""
        query = (
            f"SELECT {_COLUMNS} FROM items WHERE version = ? AND label IS NOT NULL AND path IS NOT NULL ORDER BY key"
        )
        with self._lock:
            return [_stored(row) for row in self._connection.execute(query, (version,))]

    def counts(self) -> dict[int, int]:
        """Items by version; versions without any are left out."""
        with self._lock:
            return dict(self._connection.execute("SELECT version, count(*) FROM items GROUP BY version").fetchall())

    def described(self) -> dict[str, int]:
        """How many items have a label, and how many the path of an image."""
        with self._lock:
            row = self._connection.execute("SELECT count(label), count(path) FROM items").fetchone()
        return {"labelled": row[0], "with_path": row[1]}

    @property
    def fields(self) -> set[str]:
        """The names that any item ever had: what can be filtered by."""
        return set(self._fields)

    @property
    def changes(self) -> int:
        return self._handed_over

    def close(self) -> None:
        with self._lock:
            self._connection.close()

    def _select(self, column: str, values: Sequence[Any]) -> Iterator[Stored]:
        for part in _parts(values):
            marks = ", ".join("?" * len(part))
            for row in self._connection.execute(f"SELECT {_COLUMNS} FROM items WHERE {column} IN ({marks})", part):
                yield _stored(row)


def _put_settings(change: sqlite3.Connection, settings: dict[str, Any]) -> None:
    rows = [(name, json.dumps(value)) for name, value in settings.items()]
    change.executemany("INSERT OR REPLACE INTO settings VALUES (?, ?)", rows)


def _retire(change: sqlite3.Connection, ids: Sequence[str]) -> list[tuple[int, str]]:
    """Take these ids out of the items and note their keys as unsettled; (key, id) of those that were there."""
    marks = ", ".join("?" * len(ids))
    rows = change.execute(f"DELETE FROM items WHERE id IN ({marks}) RETURNING key, version, id", list(ids)).fetchall()
    change.executemany("INSERT INTO unsettled VALUES (?, ?)", [(key, version) for key, version, _ in rows])
    return [(key, name) for key, _, name in rows]


def _stored(row: Sequence[Any]) -> Stored:
    key, name, version, label, metadata, path = row
    return Stored(key, name, version, label, json.loads(metadata), path)


def _parts(values: Sequence[Any]) -> Iterator[Sequence[Any]]:
    return (values[start : start + _AT_ONCE] for start in range(0, len(values), _AT_ONCE))


FLUSH_AT = 1000
"""Items with counts that are not written yet; writing them takes some 2 ms of one search's time."""


class HitCounts:
    """Any thread may count. A process that is killed, or a disk that is full, loses the counts of up to ``FLUSH_AT``
    items, and nothing else."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()

    def count(self, hits: Iterable[Hit]) -> None:
        with self._lock:
            self._counts.update(hit.id for hit in hits)
            full = len(self._counts) >= FLUSH_AT
        if full:
            self.flush()

    def flush(self) -> None:
        with self._lock:
            counts, self._counts = self._counts, Counter()
        if counts:
            with contextlib.suppress(UnavailableError):  # a full disk: a search was answered all the same
                self._catalogue.add_hits(counts)
