"""The catalogue: which items exist and which version holds each, in one SQLite file.

Vectors are stored in the engine, and two stores cannot be written in one step. So every stored vector has a key that
is never reused, and a vector counts only while the catalogue says that an item owns its key:

1. The keys are recorded as unsettled. 2. The engine stores the vectors. 3. One transaction gives the keys to their
items and records the items' earlier keys as unsettled; from here on the write is acknowledged. 4. The engine deletes
the unsettled keys, and their records are removed. After a kill at any point the unsettled keys belong to no item, and
are deleted when the gallery is opened again.
"""

import contextlib
import json
import sqlite3
import threading
import time
from array import array
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from holdfast.core.errors import HoldfastError, UnavailableError, first_line
from holdfast.gallery.filters import LABEL, types_of
from holdfast.gallery.gallery_items import StoredItem

FORMAT = 3
"""Of the catalogue, as SQLite's ``user_version``: 3 since Holdfast 0.3, 0 before."""
_TABLES = f"""
PRAGMA user_version = {FORMAT};
CREATE TABLE settings (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE versions (number INTEGER PRIMARY KEY, record TEXT NOT NULL);
CREATE TABLE items (
    key INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, version INTEGER NOT NULL REFERENCES versions (number),
    label TEXT, metadata TEXT NOT NULL, path TEXT
);
CREATE INDEX items_by_version ON items (version);
CREATE TABLE fields (name TEXT PRIMARY KEY);
CREATE TABLE unsettled (key INTEGER PRIMARY KEY, version INTEGER NOT NULL);
CREATE TABLE receipts (key TEXT PRIMARY KEY, made REAL NOT NULL, request TEXT NOT NULL, answer TEXT NOT NULL);
CREATE INDEX receipts_by_age ON receipts (made);
CREATE TABLE field_types (name TEXT, type TEXT, PRIMARY KEY (name, type)) WITHOUT ROWID;
"""
_TABLE_NAMES = ("settings", "versions", "items", "fields", "unsettled", "receipts", "field_types")
_TYPES: dict[str, type] = {"text": str, "number": float, "true or false": bool}
_TYPE_NAMES = {kind: name for name, kind in _TYPES.items()}
RECEIPT_SECONDS = 86_400.0
"""How long a receipt is kept, of the time that the gallery is open. The clock of the machine may be set meanwhile."""
_COLUMNS = "key, id, version, label, metadata, path"
_MOST_SQL_VALUES = 500
_BLOCK_ROWS = 500


class ItemsWithPath(NamedTuple):
    """Items that have the path of an image, in columns: objects per item would make garbage collection take long."""

    keys: "array[int]"
    ids: list[str]
    labels: list[str | None]


@dataclass(frozen=True)
class Receipt:
    """Proof that a write was done, stored in the same transaction as the write.

    key: names the write; chosen by its client.
    request: what was asked for, such as a hash.
    answer: JSON.
    """

    key: str
    request: str
    answer: dict[str, Any]


class Catalogue:
    """Safe for many threads: they share one connection and a lock. Every change is on disk when its call returns.

    Queries that read many rows have a connection of their own, so that nobody waits for them.
    """

    def __init__(self, path: Path, *, new: bool = False) -> None:
        if not new and not path.exists():
            raise HoldfastError(f"{path}: no such file; every gallery has one, restore it from a backup")
        self._path = path
        self._lock = _ExplainingLock(path)
        self._key_changes = 0
        self._counts: _Counts | None = None
        try:
            self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute("PRAGMA synchronous = FULL")
            self._connection.execute("PRAGMA foreign_keys = ON")
            if new:
                self._connection.executescript(_TABLES)
            else:
                _refuse_other_formats(self._connection, path)
            (newest,) = self._connection.execute("SELECT max(made) FROM receipts").fetchone()
            self._receipt_clock = float(newest or 0) - time.monotonic()  # it goes on where the newest receipt was made
            types = self._connection.execute("SELECT name, type FROM field_types")
            self._field_types = {(LABEL, str)} | {(name, _TYPES[kind]) for name, kind in types}
            self._fields = {name for (name,) in self._connection.execute("SELECT name FROM fields")}
        except sqlite3.OperationalError as error:  # the file may be intact: SQLite writes next to it even to read
            raise UnavailableError(f"{path}: cannot be opened ({error}); is the disk full or read-only?") from error
        except (sqlite3.DatabaseError, ValueError, TypeError, KeyError) as error:
            raise HoldfastError(f"{path}: not readable as a gallery's catalogue ({error})") from error

    @contextmanager
    def _change(self) -> Iterator[sqlite3.Connection]:
        """One transaction: committed to disk at the end of the block, rolled back if the block raises."""
        with self._lock:
            try:
                self._connection.execute("BEGIN IMMEDIATE")
                yield self._connection
                self._connection.execute("COMMIT")
            except BaseException as error:
                self._counts = None  # read again: the error does not always say whether the change was written
                if self._connection.in_transaction:  # some errors, such as a full disk, have ended it already
                    self._connection.execute("ROLLBACK")
                if isinstance(error, sqlite3.OperationalError):
                    raise UnavailableError(f"{self._path}: cannot be written ({error})") from error
                raise

    def locked(self) -> AbstractContextManager[object]:
        """A context in which no other thread reads or changes the catalogue."""
        return self._lock

    def read(self, query: str, values: Sequence[Any] = ()) -> list[Any]:
        """The rows of a query. It may read all items: other threads do not wait for it."""
        with self._reading() as connection:
            return connection.execute(query, values).fetchall()

    def stream(self, query: str, values: Sequence[Any] = ()) -> Iterator[Any]:
        """As ``read``, block by block: for queries that may return all items, which would take gigabytes in a list."""
        with self._reading() as connection:
            selected = connection.execute(query, values)
            while rows := selected.fetchmany(_BLOCK_ROWS):
                yield from rows

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        """A connection for queries that read many rows. It sees what was committed before its first query."""
        with self._lock:
            _ = self._connection.total_changes  # refuses a gallery that is closed
        address = f"{self._path.absolute().as_uri()}?mode=ro"
        with _ExplainingLock(self._path), contextlib.closing(sqlite3.connect(address, uri=True)) as connection:
            yield connection

    def setting(self, name: str, default: Any = None) -> Any:
        with self._lock:
            row = self._connection.execute("SELECT value FROM settings WHERE name = ?", (name,)).fetchone()
        return default if row is None else json.loads(row[0])

    def put_version(self, number: int, record: dict[str, Any], settings: dict[str, Any]) -> None:
        """Add a version, or change its record, and change settings in the same transaction."""
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
        """Remove a version without items, and change settings in one transaction. SQLite refuses one with items."""
        with self._change() as change:
            change.execute("DELETE FROM unsettled WHERE version = ?", (number,))
            change.execute("DELETE FROM versions WHERE number = ?", (number,))
            _put_settings(change, settings)

    def versions(self) -> dict[int, dict[str, Any]]:
        with self._lock:
            rows = self._connection.execute("SELECT number, record FROM versions ORDER BY number").fetchall()
        return {number: json.loads(record) for number, record in rows}

    def reserve(self, count: int, version: int) -> range:
        """New keys for vectors that are about to be stored, recorded as unsettled."""
        with self._change() as change:
            row = change.execute("SELECT value FROM settings WHERE name = 'next_key'").fetchone()
            first = 1 if row is None else int(row[0])
            keys = range(first, first + count)
            _put_settings(change, {"next_key": keys.stop})
            change.executemany("INSERT INTO unsettled VALUES (?, ?)", [(key, version) for key in keys])
        return keys

    def assign_keys(self, items: Sequence[StoredItem], receipts: Sequence[Receipt] = ()) -> int:
        """Give the keys to their items; how many items existed before and lost their earlier key."""
        with self._lock:
            with self._change() as change:
                _put_receipts(change, receipts, self._receipt_clock + time.monotonic())
                released = [
                    row for chunk in _chunks([item.id for item in items]) for row in _release_keys(change, chunk)
                ]
                change.executemany("DELETE FROM unsettled WHERE key = ?", [(item.key,) for item in items])
                change.executemany(
                    f"INSERT INTO items ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?)",
                    [(i.key, i.id, i.version, i.label, json.dumps(dict(i.metadata)), i.path) for i in items],
                )
                fields = {name for item in items for name in item.fields()} - self._fields
                change.executemany("INSERT OR IGNORE INTO fields VALUES (?)", [(name,) for name in fields])
                types = {one for item in items for one in types_of(item.fields())} - self._field_types
                rows = [(name, _TYPE_NAMES[kind]) for name, kind in types]
                change.executemany("INSERT OR IGNORE INTO field_types VALUES (?, ?)", rows)
                # Under the lock of look-ups: two readings of the counter show every change in between.
                self._key_changes += bool(released)
            self._fields |= fields
            self._field_types |= types
            if self._counts is not None:
                self._counts.change(released, -1)
                self._counts.change(items, 1)
        return len(released)

    def remove(self, ids: Sequence[str], receipt: Callable[[list[str]], Receipt] | None = None) -> list[str]:
        """Remove items; the ids that existed. ``receipt`` is called with them, and its result is stored."""
        with self._lock:
            with self._change() as change:
                released = _release_keys(change, list(dict.fromkeys(ids)))
                gone = [one.id for one in released]
                now = self._receipt_clock + time.monotonic()
                _put_receipts(change, () if receipt is None else (receipt(gone),), now)
                self._key_changes += bool(gone)
            if self._counts is not None:
                self._counts.change(released, -1)
        return gone

    def change_version(self, items: Sequence[StoredItem], keys: Sequence[int], version: int) -> int:
        """Give items new keys in another version; how many. Items replaced since they were read stay unchanged.

        Their new keys stay unsettled, because the vectors belong to their earlier content.
        """
        moved: list[int] = []  # the versions they had
        with self._lock:
            with self._change() as change:
                for item, key in zip(items, keys, strict=True):
                    values = (key, version, item.key)
                    if change.execute("UPDATE items SET key = ?, version = ? WHERE key = ?", values).rowcount:
                        change.execute(
                            "UPDATE unsettled SET key = ?, version = ? WHERE key = ?", (item.key, item.version, key)
                        )
                        moved.append(item.version)
                self._key_changes += bool(moved)
            if self._counts is not None:
                self._counts.by_version.subtract(moved)
                self._counts.by_version[version] += len(moved)
        return len(moved)

    def receipt(self, key: str) -> Receipt | None:
        """The receipt with this key; None if there is none, or if it is too old."""
        oldest = self._receipt_clock + time.monotonic() - RECEIPT_SECONDS
        query = "SELECT request, answer FROM receipts WHERE key = ? AND made >= ?"
        with self._lock:
            row = self._connection.execute(query, (key, oldest)).fetchone()
        return None if row is None else Receipt(key, row[0], json.loads(row[1]))

    def unsettled(self) -> dict[int, list[int]]:
        """Keys that belong to no item, by version."""
        found: dict[int, list[int]] = {}
        with self._lock:
            for key, version in self._connection.execute("SELECT key, version FROM unsettled"):
                found.setdefault(version, []).append(key)
        return found

    def settle(self, keys: Iterable[int]) -> None:
        """Remove the records of keys that the engine has deleted."""
        with self._change() as change:
            change.executemany("DELETE FROM unsettled WHERE key = ?", [(key,) for key in keys])

    def by_key(self, keys: Sequence[int]) -> tuple[dict[int, StoredItem], int]:
        """The items that own these keys, by key, and the value of ``changes``."""
        with self._lock:
            return {item.key: item for item in self._select("key", keys)}, self._key_changes

    def items(self, keys: Sequence[int]) -> dict[int, StoredItem]:
        """The items that own these keys, by key. Read in blocks: other threads wait for one."""
        found: dict[int, StoredItem] = {}
        for start in range(0, len(keys), _BLOCK_ROWS):
            found |= self.by_key(keys[start : start + _BLOCK_ROWS])[0]
        return found

    def by_id(self, ids: Sequence[str]) -> dict[str, StoredItem]:
        with self._lock:
            return {item.id: item for item in self._select("id", ids)}

    def items_with_path(self, version: int) -> ItemsWithPath:
        """The items of a version that have the path of an image, by key."""
        query = "SELECT key, id, label FROM items WHERE version = ? AND path IS NOT NULL ORDER BY key"
        found = ItemsWithPath(array("q"), [], [])
        with self._reading() as connection:
            selected = connection.execute(query, (version,))
            while rows := selected.fetchmany(_BLOCK_ROWS):
                keys, ids, labels = zip(*rows, strict=True)
                found.keys.extend(keys)
                found.ids.extend(ids)
                found.labels.extend(labels)
        return found

    def keys_with_path(self, listed: ItemsWithPath, paths: Collection[str]) -> set[int]:
        """The keys of those items in ``listed`` that have one of these paths."""
        if not paths or not listed.keys:
            return set()
        query = "SELECT key FROM items WHERE key BETWEEN ? AND ? AND path IN (SELECT value FROM json_each(?))"
        rows = self.read(query, (listed.keys[0], listed.keys[-1], json.dumps(sorted(paths))))
        return {key for (key,) in rows} & set(listed.keys)

    def counts(self) -> dict[int, int]:
        """Number of items by version; versions without items are left out."""
        return self.totals()[0]

    def totals(self) -> tuple[dict[int, int], dict[str, int]]:
        """Number of items by version, and how many have a label and the path of an image.

        Read from the whole file once, and counted from then on.
        """
        with self._lock:
            if self._counts is None:
                rows = self.read("SELECT version, count(*) FROM items GROUP BY version")
                ((labelled, with_path),) = self.read("SELECT count(label), count(path) FROM items")
                self._counts = _Counts(Counter(dict(rows)), labelled, with_path)
            found = self._counts
            by_version = {number: count for number, count in sorted(found.by_version.items()) if count}
            return by_version, {"labelled": found.labelled, "with_path": found.with_path}

    @property
    def fields(self) -> set[str]:
        """The names of all metadata fields that an item ever had, and ``label``: they can be filtered by."""
        return set(self._fields)

    @property
    def field_types(self) -> dict[str, set[type]]:
        """The types of all values that items ever had, by field: str, bool, and float for all numbers."""
        found: dict[str, set[type]] = {}
        for name, kind in self._field_types.copy():
            found.setdefault(name, set()).add(kind)
        return found

    @property
    def changes(self) -> int:
        """How often keys have been taken from items since the catalogue was opened."""
        return self._key_changes

    def close(self) -> None:
        with self._lock:
            self._connection.close()

    def _select(self, column: str, values: Sequence[Any]) -> Iterator[StoredItem]:
        for chunk in _chunks(values):
            marks = ", ".join("?" * len(chunk))
            for row in self._connection.execute(f"SELECT {_COLUMNS} FROM items WHERE {column} IN ({marks})", chunk):
                yield _stored(row)


class _ExplainingLock:
    """A lock that one thread may take several times. Errors of the database while it is held become one line."""

    def __init__(self, path: Path) -> None:
        self._path, self._lock = path, threading.RLock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._lock.release()
        if isinstance(error, sqlite3.ProgrammingError) and "closed" in str(error):
            raise HoldfastError(f"{self._path.parent}: the gallery is closed") from error
        # The general code is that of a missing table or column; the others are a full disk, a lock, or failed reading.
        if isinstance(error, sqlite3.OperationalError) and error.sqlite_errorcode != sqlite3.SQLITE_ERROR:
            raise UnavailableError(f"{self._path}: {error}; try again") from error
        if isinstance(error, sqlite3.DatabaseError | UnicodeDecodeError):
            with explain_damage(self._path):
                raise error


def _refuse_other_formats(connection: sqlite3.Connection, path: Path) -> None:
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    (stored,) = connection.execute("PRAGMA user_version").fetchone()
    if stored != FORMAT and "items" in tables:
        when = "of Holdfast 0.2 or earlier" if stored < FORMAT else "of a later Holdfast"
        raise HoldfastError(
            f"{path}: gallery format {stored}, {when}, and this one reads format {FORMAT}; create the gallery again"
        )
    missing = [name for name in _TABLE_NAMES if name not in tables]
    if missing:
        raise HoldfastError(f"{path}: has no table {', '.join(missing)}; restore the file from a backup")


@contextmanager
def explain_damage(path: Path) -> Iterator[None]:
    """Report settings and records that cannot be read in one line. For what is done when a gallery is opened.

    path: of the file that they are in.
    """
    try:
        yield
    except (sqlite3.DatabaseError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise HoldfastError(f"{path}: damaged ({first_line(error)}); restore it from a backup") from error


def _put_settings(change: sqlite3.Connection, settings: dict[str, Any]) -> None:
    rows = [(name, json.dumps(value)) for name, value in settings.items()]
    change.executemany("INSERT OR REPLACE INTO settings VALUES (?, ?)", rows)


def _put_receipts(change: sqlite3.Connection, receipts: Sequence[Receipt], now: float) -> None:
    if receipts:
        change.execute("DELETE FROM receipts WHERE made < ?", (now - RECEIPT_SECONDS,))
        change.executemany(
            "INSERT OR REPLACE INTO receipts VALUES (?, ?, ?, ?)",
            [(one.key, now, one.request, json.dumps(one.answer)) for one in receipts],
        )


class _Released(NamedTuple):
    key: int
    version: int
    id: str
    label: str | None
    path: str | None


@dataclass
class _Counts:
    """Numbers of items: by version, with a label, and with the path of an image."""

    by_version: Counter[int]
    labelled: int
    with_path: int

    def change(self, items: Sequence[StoredItem | _Released], sign: int) -> None:
        """Add (1) or take away (-1) these items."""
        for item in items:
            self.by_version[item.version] += sign
            self.labelled += sign * (item.label is not None)
            self.with_path += sign * (item.path is not None)


def _release_keys(change: sqlite3.Connection, ids: Sequence[str]) -> list[_Released]:
    """Delete these ids and record their keys as unsettled; those that existed."""
    columns = ", ".join(_Released._fields)
    released: list[_Released] = []
    for chunk in _chunks(ids):
        marks = ", ".join("?" * len(chunk))
        rows = change.execute(f"DELETE FROM items WHERE id IN ({marks}) RETURNING {columns}", list(chunk)).fetchall()
        released += [_Released(*row) for row in rows]
    change.executemany("INSERT INTO unsettled VALUES (?, ?)", [(one.key, one.version) for one in released])
    return released


def _stored(row: Sequence[Any]) -> StoredItem:
    key, name, version, label, metadata, path = row
    try:
        fields = json.loads(metadata)
    except ValueError:
        raise HoldfastError(f"item {name!r}: its metadata is damaged; restore the catalogue from a backup") from None
    return StoredItem(key, name, version, label, fields, path)


def _chunks(values: Sequence[Any]) -> Iterator[Sequence[Any]]:
    return (values[start : start + _MOST_SQL_VALUES] for start in range(0, len(values), _MOST_SQL_VALUES))
