"""Clients of a served gallery that keep a record of what was acknowledged, and compare it with the gallery.

Shared by bench/mixed_load.py and tests/service/test_service_chaos.py. Servers may be killed at any moment: nothing
acknowledged may be lost, and nothing refused may be done.
"""

import contextlib
import http.client
import json
import os
import random
import signal
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import numpy as np

from holdfast.core.errors import HoldfastError
from holdfast.gallery import Gallery
from holdfast.service.served_gallery import run_on_server

EACH, DIM = 25, 32
"""Ids of one writer, and numbers of their vectors."""
BUSY = (408, 503, 504)  # a body of a process that the system lets wait can be late, too


class ServerGoneError(Exception):
    """The server was killed before it answered."""


class Servers:
    """One server after another on the same gallery, which is in ``folder``; subclasses know how to start one."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.kills, self.generation = folder, 0, 0
        self.address, self.process = ("", 0), 0
        self.started = 0.0
        self._ready = threading.Event()

    def launch(self) -> tuple[int, str]:
        """Start a server; its process and URL, once it answers."""
        raise NotImplementedError

    def ended(self) -> int:
        """Wait until the server has ended; its status."""
        raise NotImplementedError

    def start(self) -> None:
        self.process, url = self.launch()
        host, port = url.strip().removeprefix("http://").split(":")
        self.address, self.started = (host, int(port)), time.monotonic()
        self.generation += 1
        self._ready.set()

    def end(self, number: int) -> int:
        """Send a signal to the server; the status it ended with."""
        self._ready.clear()
        self.kills += number == signal.SIGKILL
        os.kill(self.process, number)
        return self.ended()

    def wait(self, stop: threading.Event) -> int:
        """The number of the server that runs now, once one runs."""
        while not self._ready.wait(0.1):
            if stop.is_set():
                raise ServerGoneError
        return self.generation


class Client:
    """A new connection for each server.

    statuses: counts the answers by their status; several clients of one thread may share it.
    """

    def __init__(self, servers: Servers, stop: threading.Event, statuses: Counter[int] | None = None) -> None:
        self._servers, self._stop = servers, stop
        self.statuses: Counter[int] = Counter() if statuses is None else statuses
        self._connection: http.client.HTTPConnection | None = None

    def ask(self, method: str, path: str, body: object = None, key: str | None = None) -> tuple[int, dict[str, Any]]:
        """Status and JSON of an answer; ``ServerGoneError`` if there is none. Bytes are sent as an image."""
        headers = {"Content-Type": "image/png" if isinstance(body, bytes) else "application/json"}
        if key is not None:
            headers["Idempotency-Key"] = key
        sent = body if body is None or isinstance(body, bytes) else json.dumps(body)
        try:
            if self._connection is None:
                self._servers.wait(self._stop)
                self._connection = http.client.HTTPConnection(*self._servers.address, timeout=60)
            self._connection.request(method, path, sent, headers)
            answer = self._connection.getresponse()
            found = json.loads(answer.read())
            self.statuses[answer.status] += 1
            return answer.status, found
        except (OSError, http.client.HTTPException, ValueError):
            self.close()
            raise ServerGoneError from None

    def until_answered(
        self, method: str, path: str, body: object = None, key: str | None = None
    ) -> tuple[int, dict[str, Any]]:
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

    def __init__(self, name: str, servers: Servers, stop: threading.Event, counts: "Counter[str]") -> None:
        self.client, self._servers, self._stop, self.counts = Client(servers, stop), servers, stop, counts
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
            self.client.close()

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
            request: tuple[str, str, Any] = ("POST", "/v1/items", {"items": items, "version": 1})
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

    def _done(self, request: tuple[str, str, Any], key: str) -> bool:
        """Send a write; whether it was done. If there is no answer, the service is asked what became of it."""
        for _ in range(1000):
            try:
                status, found = self.client.ask(*request, key)
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
            status, found = self.client.until_answered("GET", f"/v1/operation?{urlencode({'id': key})}")
            if status == 404 or found.get("state") == "not done":
                return False
            if found["state"] == "done":
                return True
            time.sleep(0.01)
        raise AssertionError("no answer after 1000 attempts")

    def _check_deleted(self, request: tuple[str, str, Any], found: dict[str, Any]) -> None:
        """The answer names exactly the items that the record has."""
        named = request[2]["ids"] if request[2] is not None else [request[1].partition("id=")[2].replace("%2F", "/")]
        assert set(found.get("deleted", ())) == {name for name in named if name in self.record}

    def _check(self, name: str) -> None:
        status, found = self.client.until_answered("GET", f"/v1/item?{urlencode({'id': name})}")
        kept = self.record.get(name)
        self.counts["checks"] += 1
        if kept is None:
            assert status == 404, f"{name} was deleted or refused, and is there: {found}"
            return
        assert (status, found.get("metadata")) == (200, {"n": kept[0]}), f"{name} was acknowledged: {found}"
        query = {"vector": kept[1], "version": 1, "k": 5, "exact": True}
        status, found = self.client.until_answered("POST", "/v1/search/vector", query)
        assert status == 200, found
        hits = found["hits"]
        assert (hits[0]["id"], round(hits[0]["score"], 3)) == (name, 1.0)
        assert len({hit["id"] for hit in hits}) == len(hits) == 5


class Maintainer:
    """Registers, backfills, rolls back, and replaces items by their paths, over the socket.

    models: folders of the first version's model and of the one that is registered and rolled back.
    images: the paths of the items that have one, by id.
    newest: as acknowledged; None if a kill leaves two possibilities.
    numbers: by id, the numbers that the item's metadata may have.
    task: what runs now.
    """

    def __init__(
        self,
        servers: Servers,
        stop: threading.Event,
        counts: "Counter[str]",
        models: list[Path],
        images: dict[str, Path],
    ) -> None:
        self._servers, self._stop, self.counts, self._models = servers, stop, counts, models
        self._draw, self._number, self._images, self.task = random.Random("maintainer"), 0, images, ""
        self.newest: int | None = 1
        self.numbers = {name: {0} for name in images}

    pause = 0.0
    """Seconds between two tasks."""

    def run(self) -> None:
        with contextlib.suppress(ServerGoneError):
            while not self._stop.is_set():
                self._servers.wait(self._stop)
                try:
                    self._one_task()
                except ServerGoneError:
                    self.counts["tasks cut off"] += 1
                self.task = ""
                self._stop.wait(self.pause)

    def ask(self, task: str, **arguments: Any) -> Any:
        """The result of a task; None if it was refused."""
        self.task = task if task not in ("versions", "stats") else ""
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

    def _read(self, task: str) -> Any:
        """As ``ask``, repeated if a server that is too busy refuses. A task that only reads may be repeated."""
        for _ in range(1000):
            if (found := self.ask(task)) is not None:
                return found
            self._servers.wait(self._stop)
            time.sleep(0.01)
        raise AssertionError(f"{task} was refused 1000 times: {dict(self.counts)}")

    def _one_task(self) -> None:
        self.check()
        newest, self._number = self.newest, self._number + 1
        choice = ["register", "register", "add"] if newest == 1 else ["backfill", "backfill", "rollback", "add"]
        task = self._draw.choice(choice)
        if task == "register":
            self.newest = None
            found = self.ask("register", model=str(self._models[1]), force=True)
            self.newest = newest if found is None else found["number"]
        elif task == "rollback":
            self.newest = None
            found = self.ask("rollback")
            self.newest = found["newest"] if found else newest
        elif task == "backfill":
            self.ask("backfill", limit=self._draw.randint(1, len(self.numbers)))
        else:
            names = self._draw.sample(sorted(self.numbers), 5)
            for name in names:
                self.numbers[name] |= {self._number}
            rows = [{"id": name, "path": str(self._images[name]), "metadata": {"n": self._number}} for name in names]
            if self.ask("add", items=rows):
                self.numbers |= {name: {self._number} for name in names}

    def check(self) -> None:
        """The versions are those that were acknowledged; what a kill left open is read."""
        numbers = [one["number"] for one in self._read("versions")]
        assert numbers[0] == 1
        if self.newest is None:  # a version that is partly rolled back is listed until the rollback is finished
            self.newest = numbers[-1]
        assert numbers[-1] == self.newest


def check_all(gallery: Gallery, writers: list[Writer], maintainer: Maintainer, others: int = 0) -> None:
    """The gallery holds the items of the records, ``others`` that nobody writes, and nothing else."""
    expected = {name: kept for writer in writers for name, kept in writer.record.items()}
    total = len(expected) + len(maintainer.numbers) + others
    assert gallery.stats()["items"] == total
    assert sum(row["vectors"] for row in gallery.stats()["versions"]) == total
    found = gallery.get(list(expected))
    assert {name: one["metadata"]["n"] for name, one in found.items()} == {name: n for name, (n, _) in expected.items()}
    for name, (_, vector) in expected.items():
        (hit,) = gallery.search(vector=vector, version=1, k=1, exact=True)
        assert (hit.id, round(hit.score, 3)) == (name, 1.0)
    for name, one in gallery.get(list(maintainer.numbers)).items():
        assert one["metadata"]["n"] in maintainer.numbers[name]
    assert len(gallery.get(list(maintainer.numbers))) == len(maintainer.numbers)
