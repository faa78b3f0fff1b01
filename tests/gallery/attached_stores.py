"""A pgvector table and a Qdrant collection with fields to filter by, and a stand-in for a Qdrant server."""

import json
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np

from holdfast.gallery import Address

DIM = 6
SHOPS = ("north", "south", "east's")


def stored_rows(count: int = 90) -> list[dict[str, Any]]:
    """Items with a vector and fields; every fifth has no price, every seventh no shop."""
    draw = np.random.default_rng(3)
    rows = []
    for number, vector in enumerate(draw.normal(size=(count, DIM)).astype(np.float32)):
        fields: dict[str, Any] = {"stock": number, "new": number % 4 == 0, "kind": f"k{number % 3}"}
        if number % 5:
            fields["price"] = number / 2
        if number % 7:
            fields["shop"] = SHOPS[number % 3]
        rows.append({"id": f"item-{number:03d}", "vector": vector, "fields": fields})
    return rows


@contextmanager
def table_with_fields(server: str, rows: list[dict[str, Any]], *, index: bool = False) -> Iterator[Address]:
    """A table whose columns are the fields, with all of them again in a jsonb column ``more``."""
    import psycopg
    from psycopg.types.json import Jsonb

    schema = f"filtered_{uuid.uuid4().hex[:12]}"
    table = f'"{schema}".items'
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
        connection.execute(f'CREATE SCHEMA "{schema}"')  # type: ignore[arg-type]
        columns = "id text PRIMARY KEY, v vector(6), stock int, new boolean, kind varchar(9), price numeric, shop text"
        connection.execute(f"CREATE TABLE {table} ({columns}, made date, more jsonb)")  # type: ignore[arg-type]
        with connection.cursor() as cursor:
            names = ("stock", "new", "kind", "price", "shop")
            cursor.executemany(
                f"INSERT INTO {table} VALUES (%s, %s, %s, %s, %s, %s, %s, now(), %s)",  # type: ignore[arg-type]
                [
                    (row["id"], str(row["vector"].tolist()), *(row["fields"].get(name) for name in names),
                     Jsonb(row["fields"]))
                    for row in rows
                ],
            )  # fmt: skip
        if index:
            connection.execute(f"CREATE INDEX ON {table} USING hnsw (v vector_cosine_ops)")  # type: ignore[arg-type]
        try:
            yield Address(server, f"{schema}.items", "id", "v", "kind")
        finally:
            connection.execute(f'DROP SCHEMA "{schema}" CASCADE')  # type: ignore[arg-type]


def collection_with_fields(folder: Path, rows: list[dict[str, Any]]) -> Address:
    """A collection of Qdrant's local mode whose payload are the fields."""
    from qdrant_client import QdrantClient, models

    client = QdrantClient(path=str(folder))
    client.create_collection("items", models.VectorParams(size=DIM, distance=models.Distance.COSINE))
    points = [
        models.PointStruct(id=number, vector=row["vector"].tolist(), payload={"name": row["id"], **row["fields"]})
        for number, row in enumerate(rows)
    ]
    client.upsert("items", points)
    client.close()
    return Address(f"qdrant:{folder}", "items", "name", "", "kind")


class QdrantStandIn:
    """An HTTP server that answers as a Qdrant server was documented to, and records what it is asked.

    answer: the result for a request, by method, path and body; None is 404.
    """

    def __init__(self, answer: Callable[[str, str, Any], Any]) -> None:
        self.asked: list[tuple[str, str, Any]] = []
        self.running = self.most_running = 0
        lock, stand_in = threading.Lock(), self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                self._reply()

            def do_POST(self) -> None:
                self._reply()

            def _reply(self) -> None:
                length = int(self.headers.get("content-length", 0))
                body = json.loads(self.rfile.read(length)) if length else None
                with lock:
                    stand_in.asked.append((self.command, self.path, body))
                    stand_in.running += 1
                    stand_in.most_running = max(stand_in.most_running, stand_in.running)
                try:
                    found = answer(self.command, self.path, body)
                finally:
                    with lock:
                        stand_in.running -= 1
                text = json.dumps({"result": found, "status": "ok", "time": 0.0}).encode()
                self.send_response(200 if found is not None else 404)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *words: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
