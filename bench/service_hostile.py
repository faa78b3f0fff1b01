"""The service under attack: what hostile requests cost others, and searches beside register, backfill and deletions.

    python bench/service_hostile.py [--items 20000] [--images 2000] [--dim 128] [--seconds 15] [--clients 2]
                                    [--threads 1] [--folder DIR] [--json FILE]

Twenty bodies of at most 16 MiB are sent to `holdfast serve`, one after another, and then all at once. Meanwhile another
client asks for /v1/health every few milliseconds: the longest wait is the longest time in which the service did nothing
else. Memory is that of the process and of its workers, sampled every 10 ms: what a request adds is the largest sample
minus the one before it was sent.

Then --clients clients search by vector, each again as soon as it is answered: alone, beside a client that deletes items
one by one, beside `gallery register` of a second model, and beside `gallery backfill` to it. Register and backfill run
until they are done. All processes share the cores, so a ratio contains what the other work takes of them.
"""

import argparse
import base64
import http.client
import io
import json
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from timing import write_figures

from holdfast.core.environment import describe

SIZE = 16 * 2**20 - 4096
JSON, PNG, JPEG = "application/json", "image/png", "image/jpeg"
Body = tuple[str, str, str, Callable[[], bytes]]


def main() -> None:
    parser = argparse.ArgumentParser(description="Hostile requests, and searches beside maintenance.")
    parser.add_argument("--items", type=int, default=20_000, help="items with vectors only")
    parser.add_argument("--images", type=int, default=2000, help="items with images, to be backfilled")
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--seconds", type=float, default=15)
    parser.add_argument("--clients", type=int, default=2)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--part", choices=["all", "hostile", "beside"], default="all")
    parser.add_argument("--folder", type=Path, help="keep the gallery here")
    parser.add_argument("--json", help="also write the figures to this file")
    options = parser.parse_args()
    environment, load = describe("cpu"), os.getloadavg()
    print(f"{environment['processor']}, {options.threads} threads; load before the start: {load[0]:.1f}")
    folder = Path(tempfile.mkdtemp(prefix="holdfast-bench-", dir=options.folder))
    try:
        build(folder, options)
        found: dict[str, Any] = {}
        if options.part != "beside":
            found |= hostile(folder, options)
        if options.part != "hostile":
            found |= beside(folder, options)
    finally:
        shutil.rmtree(folder)
    if options.json:
        write_figures(options.json, "service_hostile", environment, options, load_before=load, **found)


def build(folder: Path, options: argparse.Namespace) -> None:
    """Two models, and a gallery with an index by the first."""
    import torch

    from holdfast import Encoder, Gallery, Preprocess, build_backbone
    from holdfast.gallery import Item

    for number in (1, 2):
        torch.manual_seed(number)
        preprocess = Preprocess(size=28, mean=(0.5,), std=(0.5,), colour="grey")
        network = build_backbone("small", width=options.dim // 4)
        Encoder(network, 2 * options.dim, preprocess=preprocess).save_pretrained(folder / f"model{number}")
    draw = np.random.default_rng(0)
    (folder / "images").mkdir()
    for n in range(options.images):
        Image.fromarray(draw.integers(0, 256, (28, 28), dtype=np.uint8)).save(folder / "images" / f"{n}.png")
    with Gallery.create(folder / "gallery", folder / "model1", device="cpu") as gallery:
        rows = draw.standard_normal((options.items, options.dim)).astype(np.float32)
        gallery.add((Item(f"v/{n}", vector=row) for n, row in enumerate(rows)), batch_size=1000)
        gallery.add(Item(f"i/{n}", path=folder / "images" / f"{n}.png") for n in range(options.images))
        gallery.build_index()


class Service:
    """`holdfast serve` as a process, while its context is entered."""

    def __init__(self, folder: Path, options: argparse.Namespace) -> None:
        threads = {name: str(options.threads) for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")}
        words = [sys.executable, "-m", "holdfast", "serve", str(folder / "gallery"), "--port", "0"]
        environment = {**os.environ, **threads, "PYTHONUNBUFFERED": "1"}
        self._process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=environment)
        assert self._process.stdout is not None
        started = re.search(r" at http://([^:]+):(\d+)", self._process.stdout.readline())
        if started is None:
            raise SystemExit("the service did not start")
        self.address = started[1], int(started[2])

    def __enter__(self) -> "Service":
        return self

    def __exit__(self, *error: object) -> None:
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(60)

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(*self.address, timeout=120)

    def send(self, method: str, path: str, kind: str, body: bytes) -> int:
        connection = self.connect()
        try:
            connection.request(method, path, body, {"Content-Type": kind})
            answer = connection.getresponse()
            answer.read()
            return answer.status
        except (ConnectionError, http.client.HTTPException):  # refused before the whole body was sent
            return 0
        finally:
            connection.close()

    def memory(self) -> int:
        """Resident bytes of the process and of all that it started."""
        total, left = 0, [self._process.pid]
        while left:
            process = left.pop()
            try:
                total += int(Path(f"/proc/{process}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
                for task in Path(f"/proc/{process}/task").iterdir():
                    left += map(int, (task / "children").read_text().split())
            except (OSError, ValueError, IndexError):  # it ended
                continue
        return total


class Watch:
    """Samples memory and asks for /v1/health while its context is entered."""

    def __init__(self, service: Service) -> None:
        self._service, self._stop = service, threading.Event()
        self._threads = [threading.Thread(target=work) for work in (self._ask, self._sample)]
        self.before = service.memory()
        self.peak, self.waits = self.before, [0.0]

    def __enter__(self) -> "Watch":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.wait(0.3)  # what a request leaves behind
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _ask(self) -> None:
        connection = self._service.connect()
        while not self._stop.wait(0.005):
            begun = time.perf_counter()
            connection.request("GET", "/v1/health")
            connection.getresponse().read()
            self.waits.append(time.perf_counter() - begun)

    def _sample(self) -> None:
        while not self._stop.wait(0.01):
            self.peak = max(self.peak, self._service.memory())

    @property
    def figures(self) -> dict[str, float]:
        return {
            "health_max_ms": 1e3 * max(self.waits),
            "health_p50_ms": 1e3 * float(np.median(self.waits)),
            "added_mb": (self.peak - self.before) / 1e6,
        }


def hostile(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    rows = []
    with Service(folder, options) as service:
        warm = picture(64)
        threads = [
            threading.Thread(target=service.send, args=("POST", "/v1/search/image", PNG, warm)) for _ in range(9)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        with Watch(service) as idle:
            time.sleep(3)
        print(f"idle: longest wait {idle.figures['health_max_ms']:.0f} ms")
        made = [(name, path, kind, body()) for name, path, kind, body in bodies()]
        for name, path, kind, body in made:
            assert len(body) <= 16 * 2**20
            method = "PUT" if path.startswith("/v1/item?") else "POST"
            with Watch(service) as watch:
                begun = time.perf_counter()
                status = service.send(method, path, kind, body)
                seconds = time.perf_counter() - begun
            row = {"name": name, "path": path, "bytes": len(body), "status": status, "seconds": seconds}
            rows.append({**row, **watch.figures})
            print("{name:34} {status} {seconds:6.2f} s, {health_max_ms:4.0f} ms, {added_mb:4.0f} MB".format(**rows[-1]))
        with Watch(service) as together:
            threads = [
                threading.Thread(
                    target=service.send, args=("PUT" if path.startswith("/v1/item?") else "POST", path, kind, body)
                )
                for _, path, kind, body in made
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    longest, most = (max(row[name] for row in rows) for name in ("health_max_ms", "added_mb"))
    print(f"of {len(rows)}: longest wait {longest:.0f} ms, most memory {most:.0f} MB; all at once {together.figures}")
    return {
        "bodies": rows,
        "idle": idle.figures,
        "health_max_ms": longest,
        "added_max_mb": most,
        "all_at_once": together.figures,
    }


def picture(side: int) -> bytes:
    file = io.BytesIO()
    Image.fromarray(np.random.default_rng(1).integers(0, 256, (side, side, 3), dtype=np.uint8)).save(file, "PNG")
    return file.getvalue()


def bodies() -> list[Body]:
    """Name, path, content type and body of each hostile request."""
    search, by_id, items, gone = "/v1/search/vector", "/v1/search/id", "/v1/items", "/v1/items/delete"
    image, put = "/v1/search/image", "/v1/item?id=hostile"

    def fill(start: str, part: str, end: str) -> Callable[[], bytes]:
        count = (SIZE - len(start) - len(end)) // len(part) - 1
        return lambda: (start + part * count + part.rstrip(",") + end).encode()

    def packed_items() -> bytes:
        row = base64.b64encode(np.ones(128, "<f4").tobytes()).decode()
        return json.dumps({"items": [{"id": f"h/{n}", "vector": row} for n in range(20_000)]}).encode()

    def long_texts() -> bytes:
        fields = {f"f{n}": "ä" * 4000 for n in range(8)}
        return json.dumps({"items": [{"id": f"h/{n}", "vector": [1.0] * 128, "metadata": fields} for n in range(60)]},
                          ensure_ascii=False).encode()  # fmt: skip

    def image_in_json() -> bytes:
        body = base64.b64encode(png_of(5792, 5792, 2)).decode()
        return json.dumps({"items": [{"id": f"h/{n}", "image": body} for n in range(20)]}).encode()

    return [
        ("vector of empty texts", search, JSON, fill('{"vector":[', '"",', "]}")),
        ("vector of numbers", search, JSON, fill('{"vector":[', "1,", "]}")),
        ("vector of long numbers", search, JSON, fill('{"vector":[', "0.1234567890123456,", "]}")),
        ("vector of lists", search, JSON, fill('{"vector":[', "[],", "]}")),
        ("vector as base64", search, JSON, fill('{"vector":"', "A", '"}')),
        ("list in list", search, JSON, lambda: b"[" * SIZE),
        ("names of a filter", by_id, JSON, fill('{"id":"a","filter":{', '"":1,', "}}")),
        ("a text of escapes", by_id, JSON, fill('{"id":"', "\\\\", '"}')),
        ("empty items", items, JSON, fill('{"items":[', "{},", "]}")),
        ("texts for items", items, JSON, fill('{"items":[', '"",', "]}")),
        ("one item with much metadata", items, JSON, fill('{"items":[{"id":"a","metadata":{', '"b":1,', "}}]}")),
        ("20,000 items as base64", items, JSON, packed_items),
        ("items with long texts", items, JSON, long_texts),
        ("20 large images in one body", items, JSON, image_in_json),
        ("ids", gone, JSON, fill('{"ids":[', '"a",', "]}")),
        ("PNG of 33 megapixels", image, PNG, lambda: png_of(5792, 5792, 2)),
        ("transparent PNG of 33 megapixels", put, PNG, lambda: png_of(5792, 5792, 6)),
        ("PNG of 10^9 pixels", image, PNG, lambda: png_of(40_000, 40_000, 0, rows=10)),
        ("progressive JPEG, many scans", image, JPEG, progressive_jpeg),
        ("noise that is not an image", put, PNG, lambda: np.random.default_rng(2).bytes(SIZE)),
    ]


def png_of(width: int, height: int, kind: int, rows: int | None = None) -> bytes:
    """A PNG of zeros. kind: 0 grey, 2 RGB, 6 RGBA. rows: only so many are there, of the ``height`` in the header."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    line = bytes(1 + width * {0: 1, 2: 3, 6: 4}[kind])
    packer = zlib.compressobj(1)
    data = b"".join(packer.compress(line) for _ in range(height if rows is None else rows)) + packer.flush()
    head = struct.pack(">IIBBBBB", width, height, 8, kind, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", data) + chunk(b"IEND", b"")


def progressive_jpeg() -> bytes:
    """A progressive JPEG of 33 megapixels whose last scan is repeated: each repetition is decoded again."""
    file = io.BytesIO()
    Image.new("L", (5792, 5792)).save(file, "JPEG", progressive=True)
    data = file.getvalue()
    last = data.rindex(b"\xff\xda")
    scan, end = data[last:-2], data[-2:]
    return data[:-2] + scan * min(2000, (SIZE - len(data)) // len(scan)) + end


def beside(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Searches alone and beside other work."""
    found: dict[str, Any] = {}
    with Service(folder, options) as service:
        searches(service, options, lambda stop: stop.wait(3))  # warm
        gallery = str(folder / "gallery")

        def delete(stop: threading.Event) -> None:
            connection = service.connect()
            until = time.monotonic() + options.seconds
            for n in range(options.items):
                connection.request("DELETE", f"/v1/item?id=v/{n}")
                connection.getresponse().read()
                if time.monotonic() > until:
                    return

        def command(*words: str) -> Callable[[threading.Event], None]:
            line = [sys.executable, "-m", "holdfast", "gallery", *words, "--json"]
            return lambda stop: subprocess.run(line, check=True, stdout=subprocess.DEVNULL) and None

        works: dict[str, Callable[[threading.Event], object]] = {
            "alone": lambda stop: stop.wait(options.seconds),
            "delete": delete,
            "register": command("register", gallery, str(folder / "model2"), "--force"),
            "backfill": command("backfill", gallery),
            "alone_again": lambda stop: stop.wait(options.seconds),
        }
        for name, work in works.items():
            found[name] = searches(service, options, work)
            print("{:12} n = {n:6d}, p50 {p50_ms:6.2f} ms, p99 {p99_ms:6.2f} ms, max {max_ms:6.0f} ms, {errors} errors"
                  .format(name, **found[name]))  # fmt: skip
    without = (found["alone"]["p99_ms"] + found["alone_again"]["p99_ms"]) / 2
    ratios = {name: found[name]["p99_ms"] / without for name in ("delete", "register", "backfill")}
    print(
        "p99 against the mean of the two alone: " + ", ".join(f"{name} {value:.1f}" for name, value in ratios.items())
    )
    return {"searches": found, "p99_ratio": ratios}


def searches(
    service: Service, options: argparse.Namespace, work: Callable[[threading.Event], object]
) -> dict[str, float]:
    """Searches by --clients clients while ``work`` runs."""
    stop, seconds, errors = threading.Event(), [], []
    rows = np.random.default_rng(3).standard_normal((500, options.dim)).astype("<f4")
    texts = [json.dumps({"vector": base64.b64encode(row.tobytes()).decode()}) for row in rows]

    def search(first: int) -> None:
        connection = service.connect()
        number = first
        while not stop.is_set():
            number += 1
            begun = time.perf_counter()
            connection.request("POST", "/v1/search/vector", texts[number % 500], {"Content-Type": JSON})
            answer = connection.getresponse()
            answer.read()
            seconds.append(time.perf_counter() - begun)
            if answer.status != 200:
                errors.append(answer.status)

    threads = [threading.Thread(target=search, args=(100 * n,)) for n in range(options.clients)]
    for thread in threads:
        thread.start()
    begun = time.perf_counter()
    try:
        work(stop)
    finally:
        took = time.perf_counter() - begun
        stop.set()
        for thread in threads:
            thread.join()
    return {
        "n": len(seconds),
        "errors": len(errors),
        "work_s": took,
        "p50_ms": 1e3 * float(np.percentile(seconds, 50)),
        "p99_ms": 1e3 * float(np.percentile(seconds, 99)),
        "max_ms": 1e3 * max(seconds),
    }


if __name__ == "__main__":
    main()
