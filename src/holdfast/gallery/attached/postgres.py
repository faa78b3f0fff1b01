"""An existing pgvector table, read in place. Statements run in read-only transactions; names are quoted."""

import re
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from holdfast.errors import HoldfastError, UnavailableError, how_to_install, unknown_name
from holdfast.gallery.attached.source import Address, Neighbour, Sample, float32_rows
from holdfast.gallery.engines.postgres import decode_vectors
from holdfast.gallery.engines.protocol import first_line

_VECTOR_TYPES = ("vector", "halfvec")
_LIST_COLUMNS = """
SELECT a.attname, format_type(a.atttypid, a.atttypmod) FROM pg_attribute a
WHERE a.attrelid = to_regclass(%s) AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""
_COUNT_INDEXES = """
SELECT count(*) FROM pg_index i JOIN pg_opclass o ON o.oid = ANY (i.indclass)
WHERE i.indrelid = to_regclass(%s) AND o.opcname = %s
"""


class PostgresSource:
    """Rows of one table with a vector. pgvector computes the cosines, so a cosine index is used.

    The session is set to read-only on the server, whatever rights the user has.
    """

    def __init__(self, address: Address) -> None:
        try:
            import psycopg
        except ImportError:
            raise HoldfastError(f"a PostgreSQL table needs psycopg: {how_to_install('postgres')}") from None
        self._psycopg: Any = psycopg
        self._lock = threading.RLock()  # a connection runs one statement at a time
        self._address = address
        self.name = f"{address.shown} {address.table}"
        sql = psycopg.sql
        self._table = sql.Identifier(*address.table.split(".", 1))
        self._connection = self._connect()
        try:
            kind, self.dim = self._checked_columns()
            table = self._table.as_string(self._connection)
            found = self._fetch_all(_COUNT_INDEXES, (table, f"{kind}_cosine_ops"))
            self.index = "a cosine index" if found[0][0] else "no cosine index: every vector is compared"
        except BaseException:
            self._connection.close()
            raise
        names: dict[str, Any] = {"table": self._table, "kind": sql.SQL(kind)}
        names |= {"id": sql.Identifier(address.id), "vector": sql.Identifier(address.vector)}
        names["label"] = sql.SQL("NULL::text")
        if address.label is not None:
            names["label"] = sql.SQL("{}::text").format(sql.Identifier(address.label))
        self._names = names

    def search(self, query: np.ndarray, k: int, *, exact: bool = False) -> list[Neighbour]:
        text = "[" + ",".join(repr(float(value)) for value in query) + "]"
        # The inner query can use an index: ordered by the distance alone, with a limit.
        statement = """SELECT id, 1 - distance, label FROM (
            SELECT {id}::text AS id, {label} AS label, {vector} <=> %s::{kind} AS distance FROM {table}
            WHERE {vector} IS NOT NULL ORDER BY {vector} <=> %s::{kind} LIMIT %s) AS found ORDER BY distance, id"""

        def work(connection: Any) -> list[Any]:
            with connection.transaction():
                connection.execute("SET TRANSACTION READ ONLY")
                if exact:
                    connection.execute("SET LOCAL enable_indexscan = off")
                found: list[Any] = connection.execute(self._sql(statement), (text, text, k)).fetchall()
            return found

        rows = self._run(work)
        return [Neighbour(name, float(cosine), label) for name, cosine, label in rows]

    def fetch(self, ids: list[str]) -> dict[str, np.ndarray]:
        statement = """SELECT {id}::text, {vector}::vector FROM {table}
            WHERE {id}::text = ANY(%s) AND {vector} IS NOT NULL"""
        rows = self._fetch_all(self._sql(statement), (list(ids),), binary=True)
        vectors = decode_vectors([raw for _, raw in rows])
        return {name: vector for (name, _), vector in zip(rows, vectors, strict=True)}

    def sample(self, count: int | None, seed: int = 0) -> Sample:
        # By a hash of the id: independent of the order on disk, without a copy of the table.
        statement = """SELECT {id}::text, {vector}::vector, {label} FROM {table} WHERE {vector} IS NOT NULL
            ORDER BY md5({id}::text || %s), {id}::text LIMIT %s"""
        rows = self._fetch_all(self._sql(statement), (f"/{seed}", count), binary=True)
        vectors = float32_rows(decode_vectors([raw for _, raw, _ in rows]), self.name)
        labels = None
        if self._address.label is not None:
            without = sum(label is None for _, _, label in rows)
            if without:
                raise HoldfastError(f"{self.name}: {without} of {len(rows)} sampled rows have no {self._address.label}")
            labels = np.array([label for _, _, label in rows])
        return Sample(np.array([name for name, _, _ in rows]), vectors, labels)

    def count(self) -> int:
        return int(self._fetch_all(self._sql("SELECT count({vector}) FROM {table}"))[0][0])

    def close(self) -> None:
        self._connection.close()

    def _checked_columns(self) -> tuple[str, int]:
        """Type of the vector column, and the size of its vectors."""
        where, table = self._address, self._table.as_string(self._connection)
        kinds = dict(self._fetch_all(_LIST_COLUMNS, (table,)))
        if not kinds:
            raise HoldfastError(f"{where.shown}: no table {where.table}")
        for column in (where.id, where.vector, *([] if where.label is None else [where.label])):
            if column not in kinds:
                raise unknown_name(f"column of {where.table}", column, kinds)
        kind, _, size = kinds[where.vector].partition("(")
        kind = kind.rpartition(".")[2].strip('"')
        if kind not in _VECTOR_TYPES:
            raise HoldfastError(f"{where.table}.{where.vector}: is {kinds[where.vector]}, not a vector")
        if size:
            return kind, int(re.sub(r"\D", "", size))
        statement = self._psycopg.sql.SQL("SELECT vector_dims({0}::vector) FROM {1} WHERE {0} IS NOT NULL LIMIT 1")
        first = self._fetch_all(statement.format(self._psycopg.sql.Identifier(where.vector), self._table))
        if not first:
            raise HoldfastError(f"{self.name}: holds no vectors")
        return kind, int(first[0][0])

    def _sql(self, statement: str) -> Any:
        return self._psycopg.sql.SQL(statement).format(**self._names)

    def _fetch_all(self, statement: Any, values: Sequence[Any] = (), *, binary: bool = False) -> list[tuple[Any, ...]]:
        def work(connection: Any) -> list[tuple[Any, ...]]:
            with connection.cursor(binary=binary) as cursor:
                found: list[tuple[Any, ...]] = cursor.execute(statement, values).fetchall()
            return found

        return self._run(work)

    def _connect(self) -> Any:
        try:
            connection = self._psycopg.connect(self._address.url, autocommit=True, connect_timeout=10)
            connection.read_only = True
            connection.execute("SET default_transaction_read_only = on")
        except self._psycopg.Error as error:
            raise UnavailableError(f"{self._address.shown}: cannot be opened ({first_line(error)})") from None
        return connection

    def _run(self, work: Callable[[Any], list[Any]]) -> list[Any]:
        """The result of ``work``; if the connection is lost, ``work`` runs once more on a new one."""
        with self._lock:
            for again in (True, False):
                if self._connection.closed:
                    self._connection = self._connect()
                try:
                    return work(self._connection)
                except self._psycopg.Error as error:
                    if again and self._connection.closed:
                        continue
                    kind = HoldfastError if isinstance(error, self._psycopg.DataError) else UnavailableError
                    raise kind(f"{self.name}: {first_line(error)}") from None
        raise AssertionError("the second try returns or raises")
