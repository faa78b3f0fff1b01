"""A gallery over HTTP: how many searches by vector a second, and how long each takes, with several clients at once.

    python bench/service.py [--items 100000] [--dim 512] [--clients 16] [--seconds 60] [--form base64|json]
                            [--queries 1000] [--threads 2] [--folder DIR] [--json FILE]

The vectors are those of bench/gallery.py, made up. `holdfast serve` is one process, all clients together are another
one, on the same cores: each client has one connection and asks again as soon as it is answered. An error is whatever is
not a 200 with 10 hits. Recall is against exact search. --folder keeps the gallery there for the next run.
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
import time
from pathlib import Path
from typing import Any

import numpy as np
from timing import write_figures

from gallery import K, peak_memory, write_features
from holdfast.environment import describe

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
    options = parser.parse_args()
    options.features = None
    if options.url:
        print(json.dumps(asyncio.run(all_clients(options))))
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
    threads = {name: str(options.threads) for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")}
    words = [sys.executable, "-m", "holdfast", "serve", str(folder / "gallery"), "--port", "0"]
    server = subprocess.Popen(
        words, stdout=subprocess.PIPE, text=True, env={**os.environ, **threads, "PYTHONUNBUFFERED": "1"}
    )
    try:
        assert server.stdout is not None
        started = re.search(r" at (http://\S+)", server.stdout.readline())
        if started is None:
            raise SystemExit("the service did not start")
        asked = ["queries", "clients", "seconds", "form"]
        words = [sys.executable, __file__, "--url", started[1], "--folder", str(folder)]
        words += [word for name in asked for word in (f"--{name}", str(getattr(options, name)))]
        before = processor_seconds(server.pid)
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(done.stderr)
        row: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        row["server_cpu_ms"] = 1e3 * (processor_seconds(server.pid) - before) / row["asked"]
        row["server_peak_gb"] = peak_memory(server.pid) / 1e9
    finally:
        server.terminate()
        status = server.wait()
    row |= {"server_status": status, "load": os.getloadavg()[0]}
    items = np.load(folder / "items.npy", mmap_mode="r")
    print(
        f"{len(items):,} x {items.shape[1]}, {options.clients} clients, vectors as {options.form}: "
        f"{row['searches_per_s']:,.0f} searches/s for {row['measured_s']:.0f} s, n = {row['n']}, "
        f"errors {row['errors']}, p50 {row['p50_ms']:.1f} ms, p99 {row['p99_ms']:.1f} ms, "
        f"recall@{K} {row['recall']:.4f}, server's CPU {row['server_cpu_ms']:.2f} ms a search, "
        f"its peak {row['server_peak_gb']:.2f} GB, load {row['load']:.1f}"
    )
    if options.json:
        del options.features, options.url
        write_figures(options.json, "service", environment, options, load_before=load, **row)


def processor_seconds(process: int) -> float:
    """User and system time of a process so far: unlike the clock's, other work leaves it alone."""
    fields = Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def all_clients(options: argparse.Namespace) -> dict[str, Any]:
    queries, truth = np.load(options.folder / "queries.npy"), np.load(options.folder / "truth.npy")
    host, port = options.url.removeprefix("http://").split(":")
    requests = [request(row, host, options.form) for row in queries]
    right = [{str(place) for place in row} for row in truth.tolist()]
    begin = time.perf_counter() + WARM_SECONDS
    tallies = [Tally() for _ in range(options.clients)]
    await asyncio.gather(
        *(
            one_client(host, int(port), requests, right, place, begin, begin + options.seconds, tally)
            for place, tally in enumerate(tallies)
        )
    )
    seconds = [one for tally in tallies for one in tally.seconds]
    found = sum(tally.found for tally in tallies)
    return {
        "n": len(seconds),
        "asked": sum(tally.asked for tally in tallies),
        "errors": sum(tally.errors for tally in tallies),
        "measured_s": options.seconds,
        "searches_per_s": len(seconds) / options.seconds,
        "p50_ms": 1e3 * float(np.percentile(seconds, 50)),
        "p99_ms": 1e3 * float(np.percentile(seconds, 99)),
        "max_ms": 1e3 * max(seconds),
        "recall": found / (K * len(seconds)),
    }


class Tally:
    """What one client counted."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.errors = self.found = self.asked = 0


def request(vector: np.ndarray, host: str, form: str) -> bytes:
    raw = vector.astype("<f4")
    body = {"vector": base64.b64encode(raw.tobytes()).decode() if form == "base64" else raw.tolist(), "k": K}
    text = json.dumps(body).encode()
    head = f"POST /v1/search/vector HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(text)}\r\n\r\n".encode() + text


async def one_client(
    host: str,
    port: int,
    requests: list[bytes],
    right: list[set[str]],
    place: int,
    begin: float,
    end: float,
    tally: Tally,
) -> None:
    """Ask until ``end``; what is asked before ``begin`` is not counted."""
    reader, writer = await asyncio.open_connection(host, port)
    place = place * len(requests) // 16 % len(requests)
    while (started := time.perf_counter()) < end:
        place = (place + 1) % len(requests)
        try:
            writer.write(requests[place])
            head = await reader.readuntil(b"\r\n\r\n")
            body = await reader.readexactly(int(re.search(rb"content-length: (\d+)", head)[1]))  # type: ignore[index]
            hits = json.loads(body)["hits"] if head.startswith(b"HTTP/1.1 200") else []
        except (OSError, EOFError, ValueError):
            hits = []
            reader, writer = await asyncio.open_connection(host, port)
        tally.asked += 1
        if started >= begin:
            tally.errors += len(hits) != K
            tally.found += len({hit["id"] for hit in hits} & right[place])
            tally.seconds.append(time.perf_counter() - started)
    writer.close()


if __name__ == "__main__":
    main()
