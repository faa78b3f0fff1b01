"""The engine on PostgreSQL: one schema per gallery, one table per collection, pgvector's HNSW index.

The connection that writes holds an advisory lock of the gallery on the server. A killed process may leave a write
running there; the lock is released when that write has ended. So the next process to open the gallery sees all of the
write or nothing, and a copy of the gallery's folder cannot be written to at the same time. The table ``generation``
tells whether another copy has written since (``Engine.claim``).
"""

import contextlib
import hashlib
import json
import logging
import struct
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from holdfast.core.errors import HoldfastError, UnavailableError, first_line, how_to_install
from holdfast.gallery.engines.engine import EngineHit, index_candidates, plain_name
from holdfast.gallery.filters import Filter, Value

M, EF_CONSTRUCT, EF_SEARCH = 16, 100, 128
"""Edges per node, candidates when building, candidates when searching."""
FEWEST_RESCORED, FEWEST_RESCORED_OF_FILTERED = 20, 64
"""The index compares in half precision. So many of the best, and at least twice as many as hits, are compared again in
float32. By this number the planner chooses between the index and comparing all vectors that match a filter."""
MOST_INDEXED, MOST_STORED = 4000, 16_000
"""Numbers of a vector that an HNSW index in half precision takes, and that a column takes."""
_LARGEST_EF = 1000
_OLDEST_PGVECTOR = (0, 8)
_READ_SETTINGS = {
    # Continue along the graph until enough vectors match the filter; they are sorted afterwards by float32 scores.
    "hnsw.iterative_scan": "relaxed_order",
    # Vectors of more than 2,000 numbers are stored outside their rows; the planner then takes a full scan for cheap.
    "enable_seqscan": "off",
    "plan_cache_mode": "force_custom_plan",  # the best plan depends on the filter
    "jit": "off",
}
_COMPARE_ALL = "SELECT set_config('enable_indexscan', 'off', true), set_config('enable_seqscan', 'on', true)"
_SCHEMA_COMMENT = "made by holdfast"
_GENERATION = "generation"
_LIST_TABLES = """
SELECT c.relname, a.atttypmod, to_regclass(format('%%I.%%I', n.nspname, c.relname || '_hnsw')) IS NOT NULL
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace JOIN pg_attribute a ON a.attrelid = c.oid
WHERE n.nspname = %s AND c.relkind = 'r' AND a.attname = 'vector' ORDER BY c.relname
"""


class PostgresEngine:
    """Vectors in float32, an index on their half precision; what it finds is scored again in float32.

    url: as libpq reads it, without a password.
    namespace: the schema.

    ``build_index`` builds an HNSW index, if the vectors are not too large for one; the server adds later rows to it.
    """

    parallel = True

    def __init__(self, url: str, namespace: str) -> None:
        self._connections = Connections(url, namespace, _READ_SETTINGS)
        self._namespace = plain_name(namespace)
        self._generation: str | None = None
        self._next_generation: str | None = None
        self._dims: dict[str, int] = {}
        self._with_index: set[str] = set()
        self._ef_search: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()  # by connection
        try:
            tables = self._connections.read(lambda reader: reader.execute(_LIST_TABLES, (namespace,)).fetchall())
            for collection, dim, built in tables:
                self._dims[collection] = dim
                if built:
                    self._with_index.add(collection)
        except BaseException:
            self._connections.close()
            raise

    def create(self, collection: str, dim: int) -> None:
        if dim > MOST_STORED:
            raise HoldfastError(f"vectors of {dim} numbers: pgvector takes at most {MOST_STORED:,}")

        def work(connection: Any) -> None:
            with connection.transaction():
                self._prepare_database(connection)
                connection.execute(f"DROP TABLE IF EXISTS {self._table(collection)}")
                # Rows that fit a page stay in it: a scan then needs no second look-up for each vector.
                connection.execute(
                    f"CREATE TABLE {self._table(collection)} (key bigint PRIMARY KEY, vector vector({int(dim)}) "
                    "NOT NULL, fields jsonb NOT NULL) WITH (toast_tuple_target = 8160)"
                )

        self._write(work)
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

        self._write(work)

    def delete(self, collection: str, keys: Sequence[int]) -> None:
        statement = f"DELETE FROM {self._table(collection)} WHERE key = ANY(%s)"
        self._write(lambda connection: connection.execute(statement, (list(keys),)))

    def search(
        self,
        collection: str,
        query: np.ndarray,
        k: int,
        where: Filter | None = None,
        *,
        exact: bool = False,
        share: float = 1.0,
    ) -> list[EngineHit]:
        if not exact and collection in self._with_index:
            fewest = FEWEST_RESCORED if where is None else FEWEST_RESCORED_OF_FILTERED
            rescored = max(2 * k, fewest)
            searched = min(_LARGEST_EF, max(rescored, index_candidates(EF_SEARCH, k, share)))
            found = self._search(collection, query, k, where, rescored=rescored, searched=searched)
            if len(found) == k:
                return found
            # The index returned too few vectors that match the filter: compare all of them.
        return self._search(collection, query, k, where)

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
        return int(self._connections.read(lambda connection: connection.execute(statement).fetchone()[0]))

    def drop(self, collection: str) -> None:
        left = [name for name in self._dims if name != collection]

        def work(connection: Any) -> None:
            with connection.transaction():
                connection.execute(f"DROP TABLE IF EXISTS {self._table(collection)}")
                if not left:
                    connection.execute(f"DROP TABLE IF EXISTS {self._table(_GENERATION)}")
                mine = "SELECT 1 FROM pg_namespace WHERE nspname = %s AND obj_description(oid) = %s"
                if not left and connection.execute(mine, (self._namespace, _SCHEMA_COMMENT)).fetchone():
                    connection.execute(f'DROP SCHEMA "{self._namespace}"')

        self._write(work)
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
                # For filters by equality. The planner takes it where few rows match, which the statistics tell.
                connection.execute(
                    f'CREATE INDEX IF NOT EXISTS "{collection}_fields" ON {self._table(collection)} USING gin '
                    "(fields jsonb_path_ops)"
                )
                connection.execute(f"ANALYZE {self._table(collection)}")

        self._write(work)
        self._with_index.add(collection)
        return True

    def unindexed(self, collection: str) -> int:
        if collection in self._with_index or self._dims[collection] > MOST_INDEXED:
            return 0
        return self.count(collection)

    def claim(self, generation: str) -> str | None:
        self._generation, self._next_generation = self._connections.read(self._stored_generation), generation
        self._connections.check_writer = self._check_generation
        return self._generation

    def close(self) -> None:
        self._connections.close()

    def _write(self, work: Callable[[Any], Any]) -> None:
        if self._next_generation not in (None, self._generation):
            self._connections.write(self._store_generation)
            self._generation = self._next_generation
        self._connections.write(work)

    def _store_generation(self, connection: Any) -> None:
        with connection.transaction():
            self._prepare_database(connection)
            connection.execute(f"CREATE TABLE IF NOT EXISTS {self._table(_GENERATION)} (value text NOT NULL)")
            connection.execute(f"DELETE FROM {self._table(_GENERATION)}")
            connection.execute(f"INSERT INTO {self._table(_GENERATION)} VALUES (%s)", (self._next_generation,))

    def _stored_generation(self, connection: Any) -> str | None:
        table = self._table(_GENERATION)
        if connection.execute("SELECT to_regclass(%s)", (table,)).fetchone()[0] is None:
            return None
        row = connection.execute(f"SELECT value FROM {table}").fetchone()
        return None if row is None else str(row[0])

    def _check_generation(self, connection: Any) -> None:
        """Refuse a new connection if another process has written while there was none: it may have used the same keys.

        The next generation may be stored already, by a write whose answer was lost.
        """
        if self._stored_generation(connection) not in (self._generation, self._next_generation):
            raise UnavailableError(
                f"{self._connections.url}: another copy of the gallery's folder has written while the connection was "
                "lost; close the gallery"
            )

    def _search(
        self,
        collection: str,
        query: np.ndarray,
        k: int,
        where: Filter | None,
        *,
        rescored: int | None = None,
        searched: int = EF_SEARCH,
    ) -> list[EngineHit]:
        """The best ``k`` by the index, or by comparing every vector.

        rescored: how many vectors that the index finds are compared again in float32; None: the index is not used.
        searched: how many the index keeps while it is searched.
        """
        table, dim = self._table(collection), self._dims[collection]
        parameters: dict[str, Any] = {"query": encode_vector(query)}
        near = f"SELECT key, vector FROM {table} WHERE {where_clause(where, parameters)}"
        if rescored is not None:
            order = f"vector::halfvec({dim}) <#> %(query)s::vector({dim})::halfvec({dim})"
            near += f" ORDER BY {order} LIMIT {int(rescored)}"
        statement = (
            f"SELECT key, -(vector <#> %(query)s::vector({dim})) AS score FROM ({near}) AS near "
            f"ORDER BY score DESC, key LIMIT {int(k)}"
        )

        def work(connection: Any) -> list[Any]:
            if rescored is None:
                with connection.transaction():
                    connection.execute(_COMPARE_ALL)
                    return connection.execute(statement, parameters).fetchall()
            # The connection keeps the setting, so most searches need not send it.
            if self._ef_search.get(connection) != searched:
                connection.execute(f"SET hnsw.ef_search = {int(searched)}")
                self._ef_search[connection] = searched
            return connection.execute(statement, parameters).fetchall()

        return [EngineHit(key, score) for key, score in self._connections.read(work)]

    def _rows(self, collection: str, chosen: str, parameters: dict[str, Any]) -> tuple[list[int], np.ndarray] | None:
        statement = f"SELECT key, vector FROM {self._table(collection)} WHERE {chosen}"
        rows = self._connections.read(lambda reader: reader.execute(statement, parameters, binary=True).fetchall())
        return ([key for key, _ in rows], decode_vectors([row for _, row in rows])) if rows else None

    def _prepare_database(self, connection: Any) -> None:
        """Create the extension and the schema if they are missing; a role without that right needs them beforehand."""
        version = "SELECT extversion FROM pg_extension WHERE extname = 'vector'"
        found = connection.execute(version).fetchone()
        if found is None:
            connection.execute("CREATE EXTENSION vector")
            found = connection.execute(version).fetchone()
        if tuple(int(part) for part in found[0].split(".")[:2]) < _OLDEST_PGVECTOR:
            raise HoldfastError(f"{self._connections.url}: pgvector {found[0]}, but a gallery needs 0.8.0 or newer")
        if connection.execute("SELECT to_regnamespace(%s)", (self._namespace,)).fetchone()[0] is None:
            connection.execute(f'CREATE SCHEMA "{self._namespace}"')
            connection.execute(f"COMMENT ON SCHEMA \"{self._namespace}\" IS '{_SCHEMA_COMMENT}'")

    def _table(self, collection: str) -> str:
        return f'"{self._namespace}"."{plain_name(collection)}"'


CONNECT_SECONDS, RECONNECT_SECONDS, LOCK_SECONDS = 10, 20, 20
TRIES = 3
READ_SECONDS, WRITE_SECONDS = 60, 300
MOST_READERS = 16
_CONNECTION_DEFAULTS = {
    "application_name": "holdfast",
    "connect_timeout": CONNECT_SECONDS,
    # A server that disappears without closing the connection is noticed after a minute.
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
}
# Only if the server, the role or the address have not set one.
_SET_TIMEOUT = "SELECT set_config('statement_timeout', %s, false) WHERE current_setting('statement_timeout') = '0'"
_SET_DURABLE = (
    "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'"
)

T = TypeVar("T")
Work = Callable[[Any], T]


class Connections:
    """Runs functions that take a connection. If it is lost, a function runs again on another, ``TRIES`` times in all.

    So a function must have the same effect whether it runs once or several times. Reads share a pool; writes use one
    connection, which holds the gallery's advisory lock on the server.

    read_settings: server settings of the connections that read.
    check_writer: called with every new connection that writes, once it holds the lock; may refuse it.
    """

    def __init__(self, url: str, namespace: str, read_settings: Mapping[str, str]) -> None:
        try:
            import psycopg
            import psycopg_pool
            from psycopg.conninfo import conninfo_to_dict
        except ImportError:
            raise HoldfastError(f"a gallery on PostgreSQL needs psycopg: {how_to_install('postgres')}") from None
        self._psycopg: Any = psycopg
        self._pool_timeout: type[Exception] = psycopg_pool.PoolTimeout
        self.url = url
        try:
            self._parameters = {**_CONNECTION_DEFAULTS, **conninfo_to_dict(url), "autocommit": True}
        except psycopg.Error as error:
            raise HoldfastError(f"{url}: {first_line(error)}") from error
        self._read_settings = read_settings
        digest = hashlib.sha256(f"holdfast gallery {namespace}".encode()).digest()
        self._lock_number = int.from_bytes(digest[:8], "big", signed=True)
        self.check_writer: Callable[[Any], None] = lambda connection: None
        self._writing = threading.RLock()
        self._writer = self._connect(self._prepare_writer)
        # The pool logs every failed attempt; callers get the last reason as an error instead.
        logging.getLogger("psycopg.pool").addHandler(logging.NullHandler())
        self._readers: Any = psycopg_pool.ConnectionPool(
            kwargs=self._parameters,
            configure=self._prepare_reader,
            min_size=0,
            max_size=MOST_READERS,
            timeout=RECONNECT_SECONDS,
            reconnect_timeout=RECONNECT_SECONDS,
            open=True,
        )

    def read(self, work: Work[T]) -> T:
        with self._errors_in_one_line():
            return run_on_pool(self._readers, self._psycopg.Error, work)

    def write(self, work: Work[T]) -> T:
        with self._writing, self._errors_in_one_line():
            for _ in range(TRIES - 1):
                try:
                    return self._run_write(work)
                except self._psycopg.Error:
                    if not self._writer.closed:
                        raise
            return self._run_write(work)

    def close(self) -> None:
        self._writer.close()
        self._readers.close()

    def _run_write(self, work: Work[T]) -> T:
        if self._writer.closed:
            self._writer = self._reconnect_writer()
        try:
            return work(self._writer)
        except self._psycopg.Error:
            raise
        except BaseException:
            self._writer.close()  # interrupted: the state of the session is not known
            raise

    def _reconnect_writer(self) -> Any:
        """A new connection; a server that restarts refuses connections for some seconds."""
        deadline = time.monotonic() + RECONNECT_SECONDS
        while True:
            try:
                return self._connect(self._prepare_writer)
            except HoldfastError:
                if time.monotonic() > deadline:
                    raise
            time.sleep(0.2)

    def _connect(self, prepare: Callable[[Any], None]) -> Any:
        with self._errors_in_one_line(unavailable=True):
            connection = self._psycopg.connect(**self._parameters)
            try:
                prepare(connection)
            except BaseException:
                connection.close()
                raise
            return connection

    def _prepare_reader(self, connection: Any) -> None:
        register_vector_type(connection)
        connection.execute(_SET_TIMEOUT, (f"{READ_SECONDS}s",))
        for name, value in self._read_settings.items():
            connection.execute("SELECT set_config(%s, %s, false)", (name, value))

    def _prepare_writer(self, connection: Any) -> None:
        register_vector_type(connection)
        connection.execute(_SET_TIMEOUT, (f"{WRITE_SECONDS}s",))
        connection.execute(_SET_DURABLE)
        # Not every server, nor every operating system, can notice that a client is gone.
        with contextlib.suppress(self._psycopg.DataError, self._psycopg.ProgrammingError):
            connection.execute("SET client_connection_check_interval = '1s'")
        deadline = time.monotonic() + LOCK_SECONDS
        while not connection.execute("SELECT pg_try_advisory_lock(%s)", (self._lock_number,)).fetchone()[0]:
            if time.monotonic() > deadline:
                raise UnavailableError(f"{self.url}: the gallery's vectors are open elsewhere; close them there first")
            time.sleep(0.05)
        self.check_writer(connection)

    @contextlib.contextmanager
    def _errors_in_one_line(self, *, unavailable: bool = False) -> Iterator[None]:
        """Errors of psycopg as one line after the address; a value that the server refuses is the caller's error."""
        try:
            yield
        except self._pool_timeout:
            self._connect(self._prepare_reader).close()  # raises the reason, if the server cannot be reached
            reason = f"all {MOST_READERS} connections were busy for {RECONNECT_SECONDS} s; try again"
            raise UnavailableError(f"{self.url}: {reason}") from None
        except self._psycopg.Error as error:
            callers = isinstance(error, self._psycopg.DataError) and not unavailable
            kind = HoldfastError if callers else UnavailableError
            raise kind(f"{self.url}: {first_line(error)}") from error


def run_on_pool(pool: Any, error: type[Exception], work: Work[T]) -> T:
    """The result of ``work`` on a connection of a pool. If it is lost, ``work`` runs on others, ``TRIES`` times in all.

    error: psycopg's class of errors.
    """
    for _ in range(TRIES - 1):
        connection = None
        try:
            with pool.connection() as connection:
                return work(connection)
        except error:
            if connection is None or not connection.closed:
                raise
        pool.check()  # the other idle connections were probably lost with this one
    with pool.connection() as connection:
        return work(connection)


_HEADER = b"PGCOPY\n\xff\r\n\x00" + bytes(8)
_END = struct.pack(">h", -1)
_OPERATORS = {"gt": ">", "gte": ">=", "lt": "<", "lte": "<="}


class EncodedVector(bytes):
    """A vector in pgvector's binary format: its size (2 bytes), 2 zero bytes, then float32, big-endian."""


def encode_vector(vector: np.ndarray) -> EncodedVector:
    return EncodedVector(struct.pack(">hh", vector.size, 0) + vector.astype(">f4").tobytes())


def decode_vectors(rows: Sequence[bytes]) -> np.ndarray:
    """N x dim, float32; 0 x 0 without rows."""
    if not rows:
        return np.empty((0, 0), dtype=np.float32)
    return np.stack([np.frombuffer(row, dtype=">f4", offset=4) for row in rows]).astype(np.float32)


def register_vector_type(connection: Any) -> None:
    """Let a psycopg connection send ``EncodedVector`` unchanged; the statement casts it."""
    from psycopg.adapt import Dumper
    from psycopg.pq import Format

    class EncodedVectorDumper(Dumper):
        format = Format.BINARY

        def dump(self, obj: Any) -> bytes:
            return bytes(obj)

    connection.adapters.register_dumper(EncodedVector, EncodedVectorDumper)


def copy_rows(keys: Sequence[int], vectors: np.ndarray, fields: Sequence[Mapping[str, Value]]) -> bytes:
    """Rows of (bigint, vector, jsonb) for COPY in its binary format."""
    rows = [_HEADER]
    for key, vector, row in zip(keys, vectors, fields, strict=True):
        column, document = encode_vector(vector), b"\x01" + json.dumps(dict(row)).encode()
        rows.append(struct.pack(">hiqi", 3, 8, key, len(column)) + column)
        rows.append(struct.pack(">i", len(document)) + document)
    return b"".join([*rows, _END])


def where_clause(where: Filter | None, parameters: dict[str, Any]) -> str:
    """The condition after WHERE; its values are added to ``parameters``.

    jsonb compares by type, and 1 equals 1.0. It also orders values of different types, so a bound additionally demands
    a number. Values are not cast, because a cast of text would fail. Equality is written as containment, which an
    index on the fields can answer.
    """
    parts = ["true"]
    for number, one in enumerate(where or ()):
        field, values = f"field{number}", f"value{number}"
        column = f"(fields -> %({field})s::text)"
        if one.among:
            equal = {f"{values}_{i}": json.dumps({one.field: value}) for i, value in enumerate(one.among)}
            parameters.update(equal)
            parts.append("(" + " OR ".join(f"fields @> %({name})s::text::jsonb" for name in equal) + ")")
            continue
        parameters[field] = one.field
        parts.append(f"jsonb_typeof({column}) = 'number'")
        for name, bound in one.bounds:
            parameters[f"{name}{number}"] = json.dumps(bound)
            parts.append(f"{column} {_OPERATORS[name]} %({name}{number})s::text::jsonb")
    return " AND ".join(parts)
