"""The engine on PostgreSQL: a schema for each gallery, a table for each collection, pgvector's HNSW index.

Connections to a PostgreSQL server that outlive its restarts: one that writes, some that read.

The one that writes holds a lock of the gallery's on the server. A process that was killed may leave a write under way
there; the lock goes when that has ended, so that whoever opens the gallery next sees all of it or nothing, and a copy
of the gallery's folder cannot be written to at the same time.

How vectors, fields and filters look to PostgreSQL and pgvector.
"""

import contextlib
import hashlib
import json
import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from holdfast.errors import HoldfastError, UnavailableError, how_to_install
from holdfast.gallery.engines.protocol import Found, plain_name
from holdfast.gallery.filters import Filter, Value

M, EF_CONSTRUCT, EF_SEARCH = 16, 100, 128
"""Edges per node, candidates when building, candidates when searching."""
MOST_INDEXED, MOST_STORED = 4000, 16_000
"""Numbers of a vector that an HNSW index in half precision takes, and that a column takes."""
_LARGEST_EF = 1000
_OLDEST_PGVECTOR = (0, 8)
_READING = {
    "hnsw.ef_search": str(EF_SEARCH),
    # Go on walking the graph until enough vectors fit the filter; who comes first is settled afterwards, in float32.
    "hnsw.iterative_scan": "relaxed_order",
    # Vectors beyond 2,000 numbers lie apart from their rows, which makes reading all of them look cheap to the planner.
    "enable_seqscan": "off",
    "plan_cache_mode": "force_custom_plan",  # a plan made for any filter would be one for none
    "jit": "off",
}
_COMPARE_ALL = "SELECT set_config('enable_indexscan', 'off', true), set_config('enable_seqscan', 'on', true)"
_MADE_BY = "made by holdfast"
_TABLES = """
SELECT c.relname, a.atttypmod, to_regclass(format('%%I.%%I', n.nspname, c.relname || '_hnsw')) IS NOT NULL
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace JOIN pg_attribute a ON a.attrelid = c.oid
WHERE n.nspname = %s AND c.relkind = 'r' AND a.attname = 'vector' ORDER BY c.relname
"""


class PostgresEngine:
    """Vectors in float32, an index on their half precision; what it finds is scored again in float32.

    url: as libpq reads it, without a password. namespace: the schema. indexed: build an HNSW index when asked to. The
    index takes in what is written after it was built.
    """

    def __init__(self, url: str, namespace: str, *, indexed: bool) -> None:
        self._sessions = Sessions(url, namespace, _READING if indexed else {"jit": "off"})
        self._namespace, self._indexed = plain_name(namespace), indexed
        self._dims: dict[str, int] = {}
        self._with_index: set[str] = set()
        try:
            for collection, dim, built in self._sessions.read(lambda c: c.execute(_TABLES, (namespace,)).fetchall()):
                self._dims[collection] = dim
                if built:
                    self._with_index.add(collection)
        except BaseException:
            self._sessions.close()
            raise

    def create(self, collection: str, dim: int) -> None:
        most = MOST_INDEXED if self._indexed else MOST_STORED
        if dim > most:
            instead = "; in exact mode it takes 16,000" if self._indexed and dim <= MOST_STORED else ""
            raise HoldfastError(f"vectors of {dim} numbers: pgvector takes {most:,} here{instead}")

        def work(connection: Any) -> None:
            with connection.transaction():
                self._prepare_database(connection)
                connection.execute(f"DROP TABLE IF EXISTS {self._table(collection)}")
                # The largest rows that fit a page stay in it: a scan need not look each vector up elsewhere.
                connection.execute(
                    f"CREATE TABLE {self._table(collection)} (key bigint PRIMARY KEY, vector vector({int(dim)}) "
                    "NOT NULL, fields jsonb NOT NULL) WITH (toast_tuple_target = 8160)"
                )

        self._sessions.write(work)
        self._with_index.discard(collection)
        self._dims[collection] = dim

    def collections(self) -> list[str]:
        return sorted(self._dims)

    def upsert(
        self, collection: str, keys: Sequence[int], vectors: np.ndarray, fields: Sequence[Mapping[str, Value]]
    ) -> None:
        table, rows = self._table(collection), copy_rows(keys, vectors, fields)

        def work(connection: Any) -> None:
            with connection.transaction(), connection.cursor() as cursor:
                cursor.execute(f"DELETE FROM {table} WHERE key = ANY(%s)", (list(keys),))
                with cursor.copy(f"COPY {table} (key, vector, fields) FROM STDIN (FORMAT BINARY)") as copy:
                    copy.write(rows)

        self._sessions.write(work)

    def delete(self, collection: str, keys: Sequence[int]) -> None:
        statement = f"DELETE FROM {self._table(collection)} WHERE key = ANY(%s)"
        self._sessions.write(lambda connection: connection.execute(statement, (list(keys),)))

    def search(
        self, collection: str, query: np.ndarray, k: int, where: Filter | None = None, *, exact: bool = False
    ) -> list[Found]:
        if not exact and collection in self._with_index:
            found = self._search(collection, query, k, where, candidates=max(2 * k, EF_SEARCH // 2))
            if len(found) == k:
                return found
            # The walk along the graph ended before enough vectors fitted the filter.
        return self._search(collection, query, k, where, candidates=None)

    def fetch(self, collection: str, keys: Sequence[int]) -> dict[int, np.ndarray]:
        found = self._rows(collection, "key = ANY(%(keys)s)", {"keys": list(keys)})
        return dict(zip(*found, strict=True)) if found else {}

    def scan(self, collection: str, *, block: int = 1000, after: int = -1) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        chosen = f"key > %(after)s ORDER BY key LIMIT {int(block)}"
        while found := self._rows(collection, chosen, {"after": after}):
            yield np.array(found[0], dtype=np.int64), found[1]
            after = found[0][-1]

    def count(self, collection: str) -> int:
        statement = f"SELECT count(*) FROM {self._table(collection)}"
        return int(self._sessions.read(lambda connection: connection.execute(statement).fetchone()[0]))

    def drop(self, collection: str) -> None:
        left = [name for name in self._dims if name != collection]

        def work(connection: Any) -> None:
            with connection.transaction():
                connection.execute(f"DROP TABLE IF EXISTS {self._table(collection)}")
                mine = "SELECT 1 FROM pg_namespace WHERE nspname = %s AND obj_description(oid) = %s"
                if not left and connection.execute(mine, (self._namespace, _MADE_BY)).fetchone():
                    connection.execute(f'DROP SCHEMA "{self._namespace}"')

        self._sessions.write(work)
        del self._dims[collection]
        self._with_index.discard(collection)

    def build_index(self, collection: str) -> bool:
        count = self.unindexed(collection)
        if count == 0:
            return False
        dim = self._dims[collection]
        # Beyond this memory the graph is built on disk, many times slower; edges are some 10 bytes each.
        megabytes = min(4096, max(64, count * (2 * dim + 20 * M + 200) * 5 // 4 >> 20))

        def work(connection: Any) -> None:
            with connection.transaction():
                connection.execute("SET LOCAL statement_timeout = 0")
                connection.execute(f"SET LOCAL maintenance_work_mem = '{megabytes}MB'")
                connection.execute(
                    f'CREATE INDEX IF NOT EXISTS "{collection}_hnsw" ON {self._table(collection)} USING hnsw '
                    f"((vector::halfvec({dim})) halfvec_ip_ops) WITH (m = {M}, ef_construction = {EF_CONSTRUCT})"
                )

        self._sessions.write(work)
        self._with_index.add(collection)
        return True

    def unindexed(self, collection: str) -> int:
        return self.count(collection) if self._indexed and collection not in self._with_index else 0

    def close(self) -> None:
        self._sessions.close()

    def _search(
        self, collection: str, query: np.ndarray, k: int, where: Filter | None, *, candidates: int | None
    ) -> list[Found]:
        table, dim = self._table(collection), self._dims[collection]
        parameters: dict[str, Any] = {"query": packed(query)}
        near = f"SELECT key, vector FROM {table} WHERE {condition(where, parameters)}"
        if candidates is not None:
            order = f"vector::halfvec({dim}) <#> %(query)s::vector({dim})::halfvec({dim})"
            near += f" ORDER BY {order} LIMIT {int(candidates)}"
        statement = (
            f"SELECT key, -(vector <#> %(query)s::vector({dim})) AS score FROM ({near}) AS near "
            f"ORDER BY score DESC, key LIMIT {int(k)}"
        )

        def work(connection: Any) -> list[Any]:
            # Most searches need no setting of their own, and so no transaction around it.
            plain = candidates is not None and candidates <= EF_SEARCH
            with contextlib.nullcontext() if plain else connection.transaction():
                if candidates is None:
                    connection.execute(_COMPARE_ALL)
                elif candidates > EF_SEARCH:
                    connection.execute(f"SET LOCAL hnsw.ef_search = {min(candidates, _LARGEST_EF)}")
                return connection.execute(statement, parameters).fetchall()

        return [Found(key, score) for key, score in self._sessions.read(work)]

    def _rows(self, collection: str, chosen: str, parameters: dict[str, Any]) -> tuple[list[int], np.ndarray] | None:
        statement = f"SELECT key, vector FROM {self._table(collection)} WHERE {chosen}"
        rows = self._sessions.read(lambda connection: connection.execute(statement, parameters, binary=True).fetchall())
        return ([key for key, _ in rows], unpacked([row for _, row in rows])) if rows else None

    def _prepare_database(self, connection: Any) -> None:
        """Extension and schema, where they are missing: a role that may not make them can be given them."""
        version = "SELECT extversion FROM pg_extension WHERE extname = 'vector'"
        found = connection.execute(version).fetchone()
        if found is None:
            connection.execute("CREATE EXTENSION vector")
            found = connection.execute(version).fetchone()
        if tuple(int(part) for part in found[0].split(".")[:2]) < _OLDEST_PGVECTOR:
            raise HoldfastError(f"{self._sessions.url}: pgvector {found[0]}, but a gallery needs 0.8.0 or newer")
        if connection.execute("SELECT to_regnamespace(%s)", (self._namespace,)).fetchone()[0] is None:
            connection.execute(f'CREATE SCHEMA "{self._namespace}"')
            connection.execute(f"COMMENT ON SCHEMA \"{self._namespace}\" IS '{_MADE_BY}'")

    def _table(self, collection: str) -> str:
        return f'"{self._namespace}"."{plain_name(collection)}"'


CONNECT_SECONDS, RECONNECT_SECONDS, LOCK_SECONDS = 10, 20, 20
READ_SECONDS, WRITE_SECONDS = 60, 300
MOST_READERS = 16
_DEFAULTS = {
    "application_name": "holdfast",
    "connect_timeout": CONNECT_SECONDS,
    # A server that is gone without a word is noticed after a minute.
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
}
# Only where the server, the role or the address have not set one.
_TIMEOUT = "SELECT set_config('statement_timeout', %s, false) WHERE current_setting('statement_timeout') = '0'"
_DURABLE = "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'"

T = TypeVar("T")
Work = Callable[[Any], T]


class Sessions:
    """Runs pieces of work, each with a connection; one whose connection is lost is done once more on a new one.

    So work must be such that doing it twice is doing it once. settings: for the connections that read.
    """

    def __init__(self, url: str, namespace: str, settings: dict[str, str]) -> None:
        try:
            import psycopg
            from psycopg.conninfo import conninfo_to_dict
        except ImportError:
            raise HoldfastError(f"a gallery on PostgreSQL needs psycopg: {how_to_install('postgres')}") from None
        self._psycopg: Any = psycopg
        try:
            self._parameters = {**_DEFAULTS, **conninfo_to_dict(url)}
        except psycopg.Error as error:
            raise HoldfastError(f"{url}: {_first_line(error)}") from error
        self.url = url
        self._settings = settings
        digest = hashlib.sha256(f"holdfast gallery {namespace}".encode()).digest()
        self._lock_number = int.from_bytes(digest[:8], "big", signed=True)
        self._readers = threading.BoundedSemaphore(MOST_READERS)
        self._idle: list[Any] = []
        self._writing = threading.RLock()
        self._writer = self._writer_connection()

    def read(self, work: Work[T]) -> T:
        with self._readers:
            while self._idle:
                try:
                    connection = self._idle.pop()
                except IndexError:  # another thread was faster
                    break
                if not connection.closed:
                    return self._done(work, connection, self._reader_connection, self._idle.append)
            fresh = self._patiently(self._reader_connection)
            return self._done(work, fresh, self._reader_connection, self._idle.append)

    def write(self, work: Work[T]) -> T:
        with self._writing:
            if self._writer.closed:
                self._keep_writer(self._patiently(self._writer_connection))
            return self._done(work, self._writer, self._writer_connection, self._keep_writer)

    def close(self) -> None:
        for connection in [self._writer, *self._idle]:
            connection.close()
        self._idle.clear()

    def _done(self, work: Work[T], connection: Any, connect: Callable[[], Any], keep: Callable[[Any], None]) -> T:
        try:
            try:
                found = work(connection)
            except self._psycopg.Error:
                if not connection.closed:
                    raise
                self._forget_idle()  # they ended with the server that this one was lost to
                connection = self._patiently(connect)
                found = work(connection)
        except self._psycopg.Error as error:
            if not connection.closed:
                keep(connection)
            # A value that the server cannot take is the caller's; all else is the server's or the way to it.
            kind = HoldfastError if isinstance(error, self._psycopg.DataError) else UnavailableError
            raise kind(f"{self.url}: {_first_line(error)}") from error
        except BaseException:
            connection.close()  # stopped half-way: nobody knows what it would answer next
            raise
        keep(connection)
        return found

    def _patiently(self, connect: Callable[[], Any]) -> Any:
        """A server that restarts refuses connections for a while."""
        deadline = time.monotonic() + RECONNECT_SECONDS
        while True:
            try:
                return connect()
            except HoldfastError:
                if time.monotonic() > deadline:
                    raise
            time.sleep(0.2)

    def _reader_connection(self) -> Any:
        def prepare(connection: Any) -> None:
            for name, value in self._settings.items():
                connection.execute("SELECT set_config(%s, %s, false)", (name, value))

        return self._connected(READ_SECONDS, prepare)

    def _writer_connection(self) -> Any:
        def prepare(connection: Any) -> None:
            connection.execute(_DURABLE)
            # Not every server, nor every server's system, can tell that a client is gone.
            with contextlib.suppress(self._psycopg.DataError, self._psycopg.ProgrammingError):
                connection.execute("SET client_connection_check_interval = '1s'")
            deadline = time.monotonic() + LOCK_SECONDS
            while not connection.execute("SELECT pg_try_advisory_lock(%s)", (self._lock_number,)).fetchone()[0]:
                if time.monotonic() > deadline:
                    raise UnavailableError(
                        f"{self.url}: the gallery's vectors are open elsewhere; close them there first"
                    )
                time.sleep(0.05)

        return self._connected(WRITE_SECONDS, prepare)

    def _connected(self, seconds: int, prepare: Callable[[Any], None]) -> Any:
        connection = None
        try:
            connection = self._psycopg.connect(**self._parameters, autocommit=True)
            speak_vectors(connection)
            connection.execute(_TIMEOUT, (f"{seconds}s",))
            prepare(connection)
        except BaseException as error:
            if connection is not None:
                connection.close()
            if isinstance(error, self._psycopg.Error):
                raise UnavailableError(f"{self.url}: {_first_line(error)}") from error
            raise
        return connection

    def _keep_writer(self, connection: Any) -> None:
        self._writer = connection

    def _forget_idle(self) -> None:
        while self._idle:
            try:
                self._idle.pop().close()
            except IndexError:
                return


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


_HEADER = b"PGCOPY\n\xff\r\n\x00" + bytes(8)
_END = struct.pack(">h", -1)
_SIGNS = {"gt": ">", "gte": ">=", "lt": "<", "lte": "<="}


class Packed(bytes):
    """A vector as pgvector sends and takes it: how many numbers (2 bytes), 2 zero bytes, then float32, big-endian."""


def packed(vector: np.ndarray) -> Packed:
    return Packed(struct.pack(">hh", vector.size, 0) + vector.astype(">f4").tobytes())


def unpacked(rows: Sequence[bytes]) -> np.ndarray:
    """N x dim, float32."""
    return np.stack([np.frombuffer(row, dtype=">f4", offset=4) for row in rows]).astype(np.float32)


def speak_vectors(connection: Any) -> None:
    """Let a psycopg connection send ``Packed`` as it is; what it stands for follows from the statement."""
    from psycopg.adapt import Dumper
    from psycopg.pq import Format

    class PackedDumper(Dumper):
        format = Format.BINARY

        def dump(self, obj: Any) -> bytes:
            return bytes(obj)

    connection.adapters.register_dumper(Packed, PackedDumper)


def copy_rows(keys: Sequence[int], vectors: np.ndarray, fields: Sequence[Mapping[str, Value]]) -> bytes:
    """Rows of (bigint, vector, jsonb) for COPY in its binary format."""
    rows = [_HEADER]
    for key, vector, row in zip(keys, vectors, fields, strict=True):
        column, document = packed(vector), b"\x01" + json.dumps(dict(row)).encode()
        rows.append(struct.pack(">hiqi", 3, 8, key, len(column)) + column)
        rows.append(struct.pack(">i", len(document)) + document)
    return b"".join([*rows, _END])


def condition(where: Filter | None, parameters: dict[str, Any]) -> str:
    """What follows WHERE; the values go to ``parameters``.

    jsonb compares by type, and 1 equals 1.0 there. Its order puts types one after the other, so a bound asks for a
    number as well; no value is cast, which would fail on a text whatever stands beside it.
    """
    parts = ["true"]
    for number, one in enumerate(where or ()):
        field, values = f"field{number}", f"values{number}"
        parameters[field] = one.field
        column = f"(fields -> %({field})s::text)"
        if one.among:
            parameters[values] = [json.dumps(value) for value in one.among]
            parts.append(f"{column} = ANY(%({values})s::text[]::jsonb[])")
            continue
        parts.append(f"jsonb_typeof({column}) = 'number'")
        for name, bound in one.bounds:
            parameters[f"{name}{number}"] = json.dumps(bound)
            parts.append(f"{column} {_SIGNS[name]} %({name}{number})s::text::jsonb")
    return " AND ".join(parts)
