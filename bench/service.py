"""A gallery over HTTP: how many searches by vector a second, and how long each takes, with several clients at once.

    python bench/service.py [--items 100000] [--dim 512] [--clients 16] [--seconds 60] [--rounds 6]
                            [--form base64|json] [--queries 1000] [--threads 2] [--folder DIR] [--json FILE]

The vectors are those of bench/gallery.py, made up. `holdfast serve` is one process, all clients together are another
one, on the same cores: each client has one connection and asks again as soon as it is answered. An error is whatever is
not a 200 with 10 hits. Recall is against exact search. --folder keeps the gallery there for the next run.

In turns with it, a process without HTTP searches a copy of the gallery, with one thread and with as many threads as
there are clients, for half of --seconds each: the machine may get slower meanwhile, and a turn is short (--seconds
divided by --rounds). `share` is the service's searches per second divided by those of the faster of the two without
HTTP.
"""

import argparse
import asyncio
import base64
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import uvloop
from process_memory import bytes_of
from timing import write_figures

from gallery import K, write_features
from holdfast.core.environment import describe
from holdfast.core.wording import counted

WARM_SECONDS = 2.0


def main() -> None:
    parser = argparse.ArgumentParser(description="Searches by vector over HTTP, several clients at once.")
    parser.add_argument("--items", type=int, default=100_000)
    parser.add_argument("--dim", type=int, default=512)
    parser.add_argument("--queries", type=int, default=1000, help="different vectors that are asked, in turn")
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--form", choices=["base64", "json"], default="base64")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--folder", type=Path, help="keep the gallery here")
    parser.add_argument("--json", help="also write the figures to this file")
    parser.add_argument("--url", help=argparse.SUPPRESS)
    parser.add_argument("--rounds", type=int, default=6, help="turns with the process without HTTP")
    parser.add_argument("--in-process", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.features = None
    if options.in_process:
        search_in_process(options)
        return
    if options.url:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            for line in sys.stdin:
                print(json.dumps(runner.run(all_clients(options, float(line)))), flush=True)
        return
    folder = options.folder or Path(tempfile.mkdtemp(prefix="holdfast-bench-"))
    try:
        if not (folder / "gallery").exists():
            folder.mkdir(parents=True, exist_ok=True)
            write_features(folder, options)
            build(folder, options)
        report(folder, options)
    finally:
        if options.folder is None:
            shutil.rmtree(folder)


def build(folder: Path, options: argparse.Namespace) -> None:
    """A gallery in HNSW mode, indexed, of a model whose compact features have --dim numbers."""
    from holdfast import Encoder, Gallery, Preprocess, build_backbone
    from holdfast.gallery import Item, state

    items = np.load(folder / "items.npy", mmap_mode="r")
    preprocess = Preprocess(size=28, mean=(0.5,), std=(0.5,), colour="grey")
    network = build_backbone("small", width=options.dim // 4)
    Encoder(network, 2 * options.dim, preprocess=preprocess).save_pretrained(folder / "model")
    state.INDEX_FROM = len(items) + 1
    with Gallery.create(folder / "gallery", folder / "model") as gallery:
        gallery.add((Item(str(i), vector=row) for i, row in enumerate(items)), batch_size=1000)
        gallery.build_index()


def report(folder: Path, options: argparse.Namespace) -> None:
    environment, load = describe("cpu"), os.getloadavg()
    print(f"{environment['processor']}, {options.threads} threads; load before the start: {load[0]:.1f}")
    variables = {
        **os.environ,
        **dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), str(options.threads)),
        "PYTHONUNBUFFERED": "1",
    }
    same = [word for name in ("queries", "clients", "form") for word in (f"--{name}", str(getattr(options, name)))]
    again = [sys.executable, __file__, "--folder", str(folder), *same]
    shutil.rmtree(folder / "copy", ignore_errors=True)
    shutil.copytree(folder / "gallery", folder / "copy", ignore=shutil.ignore_patterns("*.socket"))
    words = [sys.executable, "-m", "holdfast", "serve", str(folder / "gallery"), "--port", "0"]
    server = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=variables)
    try:
        assert server.stdout is not None
        started = re.search(r" at (http://\S+)", server.stdout.readline())
        if started is None:
            raise SystemExit("the service did not start")
        with (
            Child([*again, "--in-process"], variables) as plain,
            Child([*again, "--url", started[1]], variables) as http,
        ):
            row = in_turns(plain, http, server.pid, options)
        row["server_peak_gb"] = bytes_of("VmHWM", server.pid) / 1e9
    finally:
        server.terminate()
        status = server.wait()
        shutil.rmtree(folder / "copy", ignore_errors=True)
    row |= {"server_status": status, "load": os.getloadavg()[0]}
    items = np.load(folder / "items.npy", mmap_mode="r")
    print(
        f"{len(items):,} x {items.shape[1]}, {options.clients} clients, vectors as {options.form}: "
        f"{row['searches_per_s']:,.0f} searches/s for {row['measured_s']:.0f} s, n = {row['n']}, "
        f"errors {row['errors']}, p50 {row['p50_ms']:.1f} ms, p99 {row['p99_ms']:.1f} ms, "
        f"recall@{K} {row['recall']:.4f}, server's CPU {row['server_cpu_ms']:.2f} ms a search, "
        f"clients' {row['client_cpu_ms']:.2f} ms, its peak {row['server_peak_gb']:.2f} GB, load {row['load']:.1f}"
    )
    rates = row["in_process_searches_per_s"]
    shown = ", ".join(f"{rate:,.0f} with {counted(threads, 'thread')}" for threads, rate in rates.items())
    print(f"without HTTP, searches/s: {shown}; the service reaches {row['share']:.0%} of the larger")
    if options.json:
        del options.features, options.url, options.in_process
        write_figures(options.json, "service", environment, options, load_before=load, **row)


def in_turns(plain: "Child", http: "Child", server: int, options: argparse.Namespace) -> dict[str, Any]:
    """The figures of the service and of the process without HTTP, which are measured in turns.

    plain, http: the processes that search without HTTP and over HTTP.
    server: the process of the service.
    """
    turn, threads = options.seconds / options.rounds, (1, options.clients)
    rates: dict[int, list[float]] = {count: [] for count in threads}
    turns: list[dict[str, Any]] = []
    used = 0.0
    for number in range(options.rounds):
        for count in threads if number % 2 else reversed(threads):
            rates[count].append(plain.ask(f"{count} {turn / 2}")["searches_per_s"])
        before = processor_seconds(server)
        turns.append(http.ask(str(turn)))
        used += processor_seconds(server) - before
    seconds = np.concatenate([one["seconds"] for one in turns])
    asked, measured = sum(one["asked"] for one in turns), options.rounds * turn
    mean = {count: sum(found) / len(found) for count, found in rates.items()}
    return {
        "n": len(seconds),
        "asked": asked,
        "errors": sum(one["errors"] for one in turns),
        "measured_s": measured,
        "searches_per_s": len(seconds) / measured,
        "p50_ms": 1e3 * float(np.percentile(seconds, 50)),
        "p99_ms": 1e3 * float(np.percentile(seconds, 99)),
        "max_ms": 1e3 * float(seconds.max()),
        "recall": sum(one["found"] for one in turns) / (K * len(seconds)),
        "server_cpu_ms": 1e3 * used / asked,
        "client_cpu_ms": 1e3 * sum(one["cpu_s"] for one in turns) / asked,
        "in_process_searches_per_s": mean,
        "share": len(seconds) / measured / max(mean.values()),
        "turns": {"service": [len(one["seconds"]) / turn for one in turns], "in_process": rates},
    }


class Child:
    """This file in another process, which answers every line on its stdin by a line of JSON."""

    def __init__(self, words: list[str], variables: dict[str, str]) -> None:
        self._process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=variables)

    def ask(self, line: str) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(line, file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline()
        if not answer:
            raise SystemExit("a process of the bench ended; see the lines above")
        found: dict[str, Any] = json.loads(answer)
        return found

    def __enter__(self) -> "Child":
        return self

    def __exit__(self, *error: object) -> None:
        self._process.communicate()


def search_in_process(options: argparse.Namespace) -> None:
    """For each line on stdin, a number of threads and seconds: how many searches a second the threads do."""
    from holdfast import Gallery

    queries = np.load(options.folder / "queries.npy")
    with Gallery.open(options.folder / "copy", device="cpu") as gallery:
        for line in sys.stdin:
            count, seconds = int(line.split()[0]), float(line.split()[1])
            counts = [0] * count
            begin = time.perf_counter() + WARM_SECONDS
            end = begin + seconds

            def search(thread: int, counts: list[int] = counts, begin: float = begin, end: float = end) -> None:
                place = thread * len(queries) // 16 % len(queries)
                while (now := time.perf_counter()) < end:
                    place = (place + 1) % len(queries)
                    gallery.search(vector=queries[place], k=K)
                    counts[thread] += now >= begin

            threads = [threading.Thread(target=search, args=(number,)) for number in range(count)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            print(json.dumps({"searches_per_s": sum(counts) / seconds}), flush=True)


def processor_seconds(process: int) -> float:
    """User and system time of a process so far: unlike the clock's, other work leaves it alone."""
    fields = Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def all_clients(options: argparse.Namespace, length: float) -> dict[str, Any]:
    """What the clients measured in ``length`` seconds.

    Answers are kept and looked at after the end, so that clients take little time.
    """
    queries, truth = np.load(options.folder / "queries.npy"), np.load(options.folder / "truth.npy")
    host, port = options.url.removeprefix("http://").split(":")
    requests = [request(row, host, options.form) for row in queries]
    right = [{str(place) for place in row} for row in truth.tolist()]
    begin, loop = time.perf_counter() + WARM_SECONDS, asyncio.get_running_loop()
    clients = [
        Client(requests, number * len(requests) // 16 % len(requests), begin + length)
        for number in range(options.clients)
    ]
    used = time.process_time()
    for client in clients:
        await loop.create_connection(lambda client=client: client, host, int(port))  # type: ignore[misc]
    await asyncio.gather(*(client.ended for client in clients))
    used = time.process_time() - used
    answers = [answer for client in clients for answer in client.answers]
    measured = [answer for answer in answers if answer.started >= begin]
    hits = [hits_of(answer) for answer in measured]
    return {
        "asked": len(answers),
        "errors": sum(len(ids) != K for ids in hits) + sum(client.ended.result() is not None for client in clients),
        "found": sum(len(ids & right[answer.place]) for answer, ids in zip(measured, hits, strict=True)),
        "seconds": [answer.seconds for answer in measured],
        "cpu_s": used,
    }


def request(vector: np.ndarray, host: str, form: str) -> bytes:
    raw = vector.astype("<f4")
    body = {"vector": base64.b64encode(raw.tobytes()).decode() if form == "base64" else raw.tolist(), "k": K}
    text = json.dumps(body).encode()
    head = f"POST /v1/search/vector HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(text)}\r\n\r\n".encode() + text


class Answer(NamedTuple):
    """An answer, to the request at ``place``."""

    started: float
    seconds: float
    place: int
    text: bytes


def hits_of(answer: Answer) -> set[str]:
    """The ids of the hits; none if the answer is an error."""
    head, _, body = answer.text.partition(b"\r\n\r\n")
    return {hit["id"] for hit in json.loads(body)["hits"]} if head.startswith(b"HTTP/1.1 200") else set()


class Client(asyncio.Protocol):
    """One connection, which asks again as soon as it is answered, until ``end``.

    place: of the first request.
    ended: what ended the connection early; None if nothing did.
    """

    def __init__(self, requests: list[bytes], place: int, end: float) -> None:
        self.answers: list[Answer] = []
        self.ended: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
        self._requests, self._place, self._end = requests, place, end
        self._read, self._length, self._started = b"", 0, 0.0

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._ask()

    def data_received(self, data: bytes) -> None:
        self._read += data
        if not self._length and (size := self._read.find(b"\r\n\r\n")) >= 0:
            self._length = size + 4 + int(re.search(rb"content-length: (\d+)", self._read)[1])  # type: ignore[index]
        if self._length and len(self._read) >= self._length:
            now = time.perf_counter()
            self.answers.append(Answer(self._started, now - self._started, self._place, self._read))
            self._read, self._length = b"", 0
            if now < self._end:
                self._ask()
            else:
                self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        early = time.perf_counter() < self._end
        self.ended.set_result((exc or EOFError("the service closed the connection")) if early else None)

    def _ask(self) -> None:
        self._place = (self._place + 1) % len(self._requests)
        self._started = time.perf_counter()
        self._transport.write(self._requests[self._place])


if __name__ == "__main__":
    main()
