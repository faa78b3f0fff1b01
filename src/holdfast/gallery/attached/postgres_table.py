"""An existing pgvector table, read in place. Statements run in read-only transactions; names are quoted."""

import json
import logging
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np

from holdfast.core.errors import HoldfastError, UnavailableError, first_line, how_to_install, unknown_name
from holdfast.gallery.attached.source import Address, Neighbour, Sample, float32_rows
from holdfast.gallery.engines.postgres_engine import decode_vectors, run_on_pool
from holdfast.gallery.filters import LABEL, Condition, Filter, parse_filter

MOST_CONNECTIONS = 8
"""Searches of one attached table that the server runs at once; further ones wait."""
WAIT_SECONDS = 20
"""How long a search waits for a free connection, or for a server that restarts."""
_LARGEST_EF = 1000  # the largest ``hnsw.ef_search`` that pgvector takes
_VECTOR_TYPES = ("vector", "halfvec")
_LIST_COLUMNS = """
SELECT a.attname, format_type(a.atttypid, a.atttypmod), t.typname, t.typcategory
FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
WHERE a.attrelid = to_regclass(%s) AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""
_COUNT_INDEXES = """
SELECT count(*) FROM pg_index i JOIN pg_opclass o ON o.oid = ANY (i.indclass)
WHERE i.indrelid = to_regclass(%s) AND o.opcname = %s
"""
_BY_DISTANCE = "{vector} <=> %(query)s::{kind}"
_BY_DISTANCE_AND_ID = _BY_DISTANCE + ', {id}::text COLLATE "C"'
_WHOLE = ("int2", "int4", "int8")
_OPERATORS = {"gt": ">", "gte": ">=", "lt": "<", "lte": "<="}
_NOTHING = "false"

Result = TypeVar("Result")


class _Column(NamedTuple):
    """A column of the table: its name, how the server writes its type, the type's plain name and category."""

    name: str
    kind: str
    type: str
    category: str

    @property
    def compared_as(self) -> str | None:
        """How a filter compares its values: ``text``, ``number``, ``bool``, ``jsonb``; None if it cannot."""
        if self.type == "jsonb":
            return "jsonb"
        if self.type in (*_WHOLE, "float4", "float8", "numeric"):
            return "number"
        return "text" if self.type == "uuid" else {"S": "text", "E": "text", "B": "bool"}.get(self.category)


class PostgresSource:
    """Rows of one table with a vector. pgvector computes the cosines, so a cosine index is used.

    Every session is set to read-only on the server, whatever rights the user has. Up to ``MOST_CONNECTIONS`` threads
    search at once, each with a connection of its own; a lost connection is opened again.
    """

    def __init__(self, address: Address) -> None:
        try:
            import psycopg
            import psycopg_pool
        except ImportError:
            raise HoldfastError(f"a PostgreSQL table needs psycopg: {how_to_install('postgres')}") from None
        self._psycopg: Any = psycopg
        self._pool_timeout: type[Exception] = psycopg_pool.PoolTimeout
        self._address = address
        self.name = f"{address.shown} {address.table}"
        self._connect().close()  # raises the reason if the server cannot be reached; the pool would only wait
        # The pool logs every failed attempt; callers get the last reason as an error instead.
        logging.getLogger("psycopg.pool").addHandler(logging.NullHandler())
        self._pool: Any = psycopg_pool.ConnectionPool(
            address.url,
            kwargs={"autocommit": True, "connect_timeout": 10},
            configure=_only_read,
            min_size=0,
            max_size=MOST_CONNECTIONS,
            timeout=WAIT_SECONDS,
            reconnect_timeout=WAIT_SECONDS,
            open=True,
        )
        sql = psycopg.sql
        self._table = sql.Identifier(*address.table.split(".", 1))
        try:
            self._columns, kind, self.dim = self._checked_columns()
            found = self._fetch_all(_COUNT_INDEXES, (self._table.as_string(None), f"{kind}_cosine_ops"))
        except BaseException:
            self._pool.close()
            raise
        self._indexed = bool(found[0][0])
        self.index = "a cosine index" if self._indexed else "no cosine index: every vector is compared"
        names: dict[str, Any] = {"table": self._table, "kind": sql.SQL(kind)}
        names |= {"id": sql.Identifier(address.id), "vector": sql.Identifier(address.vector)}
        names["label"] = sql.SQL("NULL::text")
        if address.label is not None:
            names["label"] = sql.SQL("{}::text").format(sql.Identifier(address.label))
        self._names = names

    @property
    def fields(self) -> list[str]:
        """The columns that a filter can compare; of a jsonb column, its members are named ``column.member``."""
        known = {name for name, column in self._columns.items() if column.compared_as is not None}
        return sorted(known | ({LABEL} if self._address.label else set()))

    def parse_filter(self, given: Mapping[str, Any] | None) -> Filter | None:
        known = [name for name in self.fields if self._column(name).compared_as != "jsonb"]
        for field in given if isinstance(given, Mapping) else ():
            column, dot, _ = str(field).partition(".")
            if dot and column in self._columns and self._columns[column].compared_as == "jsonb":
                known.append(field)
        return parse_filter(given, known)

    def search(self, query: np.ndarray, k: int, where: Filter | None = None, *, exact: bool = False) -> list[Neighbour]:
        text = "[" + ",".join(repr(float(value)) for value in query) + "]"
        parameters: dict[str, Any] = {"query": text, "k": k}
        sql = self._psycopg.sql
        conditions = [self._condition(one, number, parameters) for number, one in enumerate(where or ())]

        def statement(*, indexed: bool) -> Any:
            # The inner query can use an index: ordered by the distance alone, with a limit. Without an index the
            # choice among equal distances is by id too, so that pages of hits fit together; as Python orders text.
            return self._sql(
                """SELECT id, 1 - distance, label FROM (
                SELECT {id}::text AS id, {label} AS label, {vector} <=> %(query)s::{kind} AS distance FROM {table}
                WHERE {vector} IS NOT NULL {conditions} ORDER BY {order} LIMIT %(k)s
                ) AS found ORDER BY distance, id COLLATE "C\"""",
                conditions=sql.SQL("").join(sql.SQL(" AND ") + one for one in conditions),
                order=sql.SQL(_BY_DISTANCE if indexed else _BY_DISTANCE_AND_ID).format(**self._names),
            )

        def work(connection: Any, *, indexed: bool) -> list[Any]:
            with connection.transaction():
                connection.execute("SET TRANSACTION READ ONLY")
                if indexed:
                    # An index returns no more hits than candidates, and 40 of them by default.
                    connection.execute(f"SET LOCAL hnsw.ef_search = {min(max(2 * k, 100), _LARGEST_EF)}")
                else:
                    connection.execute("SET LOCAL enable_indexscan = off")
                found: list[Any] = connection.execute(statement(indexed=indexed), parameters).fetchall()
            return found

        rows = self._run(lambda connection: work(connection, indexed=self._indexed and not exact))
        if len(rows) < k and self._indexed and not exact:
            # The candidates of the index were too few, or too few of them match the filter: compare all that match.
            rows = self._run(lambda connection: work(connection, indexed=False))
        # pgvector's cosine with a vector of zeros is NaN, which comes last and cannot be ranked.
        return [Neighbour(name, float(cosine), label) for name, cosine, label in rows if not math.isnan(cosine)]

    def _column(self, field: str) -> _Column:
        """The column of a filter's field; ``label`` is the address's column of labels, if it has one."""
        name = self._address.label if field == LABEL and self._address.label else field
        return self._columns[name.partition(".")[0] if name not in self._columns else name]

    def _condition(self, one: Condition, number: int, parameters: dict[str, Any]) -> Any:
        """A condition as SQL; its values are added to ``parameters``.

        Values are cast to the column's type, so that an index of the column can be used. A value that the column's type
        cannot hold matches nothing.
        """
        sql, column = self._psycopg.sql, self._column(one.field)
        name, kind = sql.Identifier(column.name), column.compared_as
        if kind == "jsonb":
            return self._jsonb_condition(one, number, parameters)
        values: list[Any] = []
        if one.among:
            type_, values = _values_for(column, one)
            if not values:
                return sql.SQL(_NOTHING)
            parameters[f"among{number}"] = values
            left = sql.SQL("{}::text").format(name) if kind == "text" else name
            return sql.SQL("{} = ANY(%(" + f"among{number}" + ")s::{}[])").format(left, sql.SQL(type_))
        if kind != "number":
            return sql.SQL(_NOTHING)
        parts = []
        for bound, value in one.bounds:
            operator, type_, given = _bound_for(column, bound, value)
            parameters[f"{bound}{number}"] = given
            shape = "{} " + operator + " %(" + f"{bound}{number}" + ")s::{}"
            parts.append(sql.SQL(shape).format(name, sql.SQL(type_)))
        return sql.SQL(" AND ").join(parts)

    def _jsonb_condition(self, one: Condition, number: int, parameters: dict[str, Any]) -> Any:
        """As in ``holdfast.gallery.engines.postgres_engine``: jsonb compares by type, and 1 equals 1.0."""
        sql, (column, _, member) = self._psycopg.sql, one.field.partition(".")
        parameters[f"member{number}"] = member
        found = sql.SQL("({} -> %(" + f"member{number}" + ")s::text)").format(sql.Identifier(column))
        if one.among:
            parameters[f"among{number}"] = [json.dumps(value) for value in one.among]
            return sql.SQL("{} = ANY(%(" + f"among{number}" + ")s::text[]::jsonb[])").format(found)
        parts = [sql.SQL("jsonb_typeof({}) = 'number'").format(found)]
        for bound, value in one.bounds:
            parameters[f"{bound}{number}"] = json.dumps(value)
            shape = "{} " + _OPERATORS[bound] + " %(" + f"{bound}{number}" + ")s::text::jsonb"
            parts.append(sql.SQL(shape).format(found))
        return sql.SQL(" AND ").join(parts)

    def fetch(self, ids: list[str]) -> dict[str, np.ndarray]:
        statement = """SELECT {id}::text, {vector}::vector FROM {table}
            WHERE {id}::text = ANY(%s) AND {vector} IS NOT NULL"""
        rows = self._fetch_all(self._sql(statement), (list(ids),), binary=True)
        vectors = decode_vectors([raw for _, raw in rows])
        return {name: vector for (name, _), vector in zip(rows, vectors, strict=True)}

    def labels(self, ids: list[str]) -> dict[str, str | None]:
        statement = "SELECT {id}::text, {label} FROM {table} WHERE {id}::text = ANY(%s) AND {vector} IS NOT NULL"
        return dict(self._fetch_all(self._sql(statement), (list(ids),)))

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

    def count(self, *, labelled: bool = False) -> int:
        only = " WHERE {label} IS NOT NULL" if labelled else ""
        return int(self._fetch_all(self._sql("SELECT count({vector}) FROM {table}" + only))[0][0])

    def close(self) -> None:
        self._pool.close()

    def _checked_columns(self) -> tuple[dict[str, _Column], str, int]:
        """The columns by name, the type of the vector column, and the size of its vectors."""
        where = self._address
        rows = self._fetch_all(_LIST_COLUMNS, (self._table.as_string(None),))
        columns = {row[0]: _Column(*row) for row in rows}
        if not columns:
            raise HoldfastError(f"{where.shown}: no table {where.table}")
        for column in (where.id, where.vector, *([] if where.label is None else [where.label])):
            if column not in columns:
                raise unknown_name(f"column of {where.table}", column, columns)
        _, _, size = columns[where.vector].kind.partition("(")
        kind = columns[where.vector].type
        if kind not in _VECTOR_TYPES:
            raise HoldfastError(f"{where.table}.{where.vector}: is {columns[where.vector].kind}, not a vector")
        if size:
            return columns, kind, int(re.sub(r"\D", "", size))
        statement = self._psycopg.sql.SQL("SELECT vector_dims({0}::vector) FROM {1} WHERE {0} IS NOT NULL LIMIT 1")
        first = self._fetch_all(statement.format(self._psycopg.sql.Identifier(where.vector), self._table))
        if not first:
            raise HoldfastError(f"{self.name}: holds no vectors")
        return columns, kind, int(first[0][0])

    def _sql(self, statement: str, **names: Any) -> Any:
        return self._psycopg.sql.SQL(statement).format(**self._names, **names)

    def _fetch_all(self, statement: Any, values: Sequence[Any] = (), *, binary: bool = False) -> list[tuple[Any, ...]]:
        def work(connection: Any) -> list[tuple[Any, ...]]:
            with connection.cursor(binary=binary) as cursor:
                found: list[tuple[Any, ...]] = cursor.execute(statement, values).fetchall()
            return found

        return self._run(work)

    def _connect(self) -> Any:
        try:
            return self._psycopg.connect(self._address.url, autocommit=True, connect_timeout=10)
        except self._psycopg.Error as error:
            raise UnavailableError(f"{self._address.shown}: cannot be opened ({first_line(error)})") from None

    def _run(self, work: Callable[[Any], Result]) -> Result:
        """The result of ``work``; errors of psycopg as one line after the store's name."""
        try:
            return run_on_pool(self._pool, self._psycopg.Error, work)
        except self._pool_timeout:
            self._connect().close()  # raises the reason, if the server cannot be reached
            busy = f"all {MOST_CONNECTIONS} connections were busy for {WAIT_SECONDS} s; try again"
            raise UnavailableError(f"{self.name}: {busy}") from None
        except self._psycopg.Error as error:
            kind = HoldfastError if isinstance(error, self._psycopg.DataError) else UnavailableError
            raise kind(f"{self.name}: {first_line(error)}") from None


def _only_read(connection: Any) -> None:
    connection.read_only = True
    connection.execute("SET default_transaction_read_only = on")


def _values_for(column: _Column, one: Condition) -> tuple[str, list[Any]]:
    """The type to which a condition's values are cast for a column, and those values that the column can equal."""
    if column.compared_as == "text":
        return "text", [value for value in one.among if isinstance(value, str)]
    if column.compared_as == "bool":
        return "boolean", [value for value in one.among if isinstance(value, bool)]
    numbers = [value for value in one.among if not isinstance(value, bool | str)]
    if column.type in _WHOLE:
        return "bigint", [int(value) for value in numbers if float(value).is_integer() and abs(value) < 2**63]
    return _number_type(column), numbers


def _bound_for(column: _Column, bound: str, value: float) -> tuple[str, str, Any]:
    """Operator, type and value of a bound on a column of numbers; a bound on whole numbers becomes whole."""
    if column.type not in _WHOLE:
        return _OPERATORS[bound], _number_type(column), value
    whole = math.floor(value) if bound in ("gt", "lte") else math.ceil(value)
    return _OPERATORS[bound], "bigint", max(-(2**63), min(whole, 2**63 - 1))


def _number_type(column: _Column) -> str:
    return {"float4": "real", "numeric": "numeric"}.get(column.type, "double precision")
