"""A served gallery under mixed load for half an hour, killed five times: what was acknowledged, errors, memory.

    python bench/mixed_load.py [--minutes 30] [--kills 5] [--items 20000] [--images 400] [--searchers 4] [--writers 3]
                               [--pause 2] [--threads 2] [--folder DIR] [--json FILE]

`holdfast serve` is one process. Clients search by vector and by image without a pause, writers add, replace and delete
items, and a maintainer registers a second model, backfills to it, replaces items by their paths and rolls back, again
and again, with --pause seconds between two tasks. All of it goes over HTTP (the maintainer's over the socket in the
gallery's folder). The process is killed by SIGKILL --kills times in the first 60 % of the time and started again.

Every writer keeps a record of what was acknowledged, and compares all of it with the gallery after every kill and at
the end (acknowledged.py). An answer of 500 or more counts as an error unless it came within 10 s after a start.
Memory is the resident set of the serving process, every 5 s: its growth is the median of the last tenth of the time
after the last start, against the median of a tenth that begins 3 minutes after that start (earlier in short runs).

It prints a line every 30 s and writes the figures so far to --json. Exit status 0: nothing was lost, no such error, and
memory grew by at most 5 %.
"""

import argparse
import contextlib
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from acknowledged import DIM, Client, Maintainer, ServerGoneError, Servers, Writer, check_all
from PIL import Image
from timing import write_figures

from holdfast.core.environment import describe

WARM_SECONDS = 180.0
RESTART_SECONDS = 10.0
MOST_GROWTH = 0.05
SLOTS, WIDTH, SIDE = 60, 8, 28


def main() -> None:
    parser = argparse.ArgumentParser(description="A served gallery under mixed load, with kills.")
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--items", type=int, default=20_000, help="items with vectors that nobody changes")
    parser.add_argument("--images", type=int, default=400, help="items with images, which are backfilled")
    parser.add_argument("--searchers", type=int, default=4)
    parser.add_argument("--writers", type=int, default=3)
    parser.add_argument("--pause", type=float, default=2, help="seconds between two tasks of the maintainer")
    parser.add_argument("--threads", type=int, default=2, help="OMP_NUM_THREADS of the service")
    parser.add_argument("--folder", type=Path, help="build the gallery below this folder")
    parser.add_argument("--json", help="also write the figures to this file")
    options = parser.parse_args()
    environment, load = describe("cpu"), os.getloadavg()
    print(f"{environment['processor']}, {options.threads} threads; load before the start: {load[0]:.1f}")
    folder = Path(tempfile.mkdtemp(prefix="holdfast-mixed-", dir=options.folder))
    try:
        run = Run(folder, options)

        def write(found: dict[str, Any]) -> None:
            if options.json:
                write_figures(options.json, "mixed_load", environment, options, load_before=load, **found)

        found = run.until_the_end(write)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"lost or wrong: {found['failures'] or 'nothing'}; errors outside restarts: {found['errors'] or 'none'}")
    growth = found["memory"]["growth"]
    print("memory: too few samples" if growth is None else f"memory grew by {growth:+.1%}")
    raise SystemExit(0 if found["passed"] else 1)


def build(folder: Path, options: argparse.Namespace) -> dict[str, Path]:
    """Two models, images, and a gallery by the first model; the paths of the items that have one, by id."""
    import torch

    from holdfast import Encoder, Gallery, Preprocess, build_backbone
    from holdfast.gallery import Item
    from holdfast.train.scenarios import SlotRegistry

    for number in (1, 2):
        torch.manual_seed(number)
        preprocess = Preprocess(size=SIDE, mean=(0.5,), std=(0.5,), colour="grey")
        info = {"slots": SlotRegistry(SLOTS).take_left(["a", "b"]).to_json()}
        encoder = Encoder(build_backbone("small", width=WIDTH), SLOTS - 1, preprocess=preprocess, info=info)
        encoder.save_pretrained(folder / f"model{number}")
    draw = np.random.default_rng(0)
    images = {f"p/{n}": folder / f"{n}.png" for n in range(options.images)}
    for path in images.values():
        Image.fromarray(draw.integers(0, 256, (SIDE, SIDE), dtype=np.uint8)).save(path)
    with Gallery.create(folder / "gallery", folder / "model1", device="cpu") as gallery:
        rows = draw.standard_normal((options.items, DIM)).astype(np.float32)
        gallery.add((Item(f"base/{n}", vector=row) for n, row in enumerate(rows)), batch_size=1000)
        gallery.add(Item(name, path=path, metadata={"n": 0}) for name, path in images.items())
        gallery.build_index()
    return images


class ServeProcesses(Servers):
    """`holdfast serve` as a process, one after another. What they write to stderr is in ``log``."""

    def __init__(self, folder: Path, log: Path, threads: int) -> None:
        super().__init__(folder)
        self._log = log.open("ab")
        self._process: subprocess.Popen[str] | None = None
        names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")
        self._environment = {**os.environ, **dict.fromkeys(names, str(threads)), "PYTHONUNBUFFERED": "1"}

    def launch(self) -> tuple[int, str]:
        words = [sys.executable, "-m", "holdfast", "serve", str(self.folder), "--port", "0"]
        self._process = subprocess.Popen(
            words, stdout=subprocess.PIPE, stderr=self._log, text=True, env=self._environment
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        found = re.search(r" at (http://\S+)", line)
        assert found is not None, f"the service did not start: {line}"
        return self._process.pid, found[1]

    def ended(self) -> int:
        assert self._process is not None
        status = self._process.wait(120)
        assert self._process.stdout is not None
        self._process.stdout.close()
        return status


class Searcher:
    """Searches by vector, and every twentieth time by image, and checks the answers.

    seconds: how long answers took, by what the maintainer did meanwhile.
    """

    def __init__(self, number: int, servers: Servers, stop: threading.Event, maintainer: Maintainer) -> None:
        self.client, self._servers, self._stop = Client(servers, stop), servers, stop
        self._maintainer = maintainer
        self._vectors, self._draw = np.random.default_rng(100 + number), random.Random(number)
        self._images = [path.read_bytes() for path in (servers.folder.parent / f"{n}.png" for n in range(10))]
        self.seconds: dict[str, list[float]] = {}

    def run(self) -> None:
        number = 0
        while not self._stop.is_set():
            number += 1
            try:
                server = self._servers.wait(self._stop)  # the time until a server runs again is not a search's
                task, started = self._maintainer.task, time.perf_counter()
                if number % 20:
                    vector = self._vectors.standard_normal(DIM).astype(np.float32).tolist()
                    status, found = self.client.ask("POST", "/v1/search/vector", {"vector": vector, "k": 10})
                else:
                    status, found = self.client.ask("POST", "/v1/search/image?k=10", self._draw.choice(self._images))
            except ServerGoneError:
                continue
            if status == 200:
                ids = {hit["id"] for hit in found["hits"]}
                assert len(ids) == len(found["hits"]) == 10, f"a search gave {len(ids)} different hits of 10"
                if server == self._servers.generation:
                    self.seconds.setdefault(task, []).append(time.perf_counter() - started)
        self.client.close()


class Run:
    """One run: a gallery in ``folder``, its servers and clients, and the figures so far."""

    def __init__(self, folder: Path, options: argparse.Namespace) -> None:
        self._folder, self._options = folder, options
        images = build(folder, options)
        self._stop, self._counts = threading.Event(), Counter[str]()
        self._failures: list[str] = []
        self._errors: list[dict[str, Any]] = []
        self._memory: list[dict[str, float]] = []
        self._servers = ServeProcesses(folder / "gallery", folder / "log", options.threads)
        self._writers = [Writer(f"w{n}", self._servers, self._stop, self._counts) for n in range(options.writers)]
        models = [folder / "model1", folder / "model2"]
        self._maintainer = Maintainer(self._servers, self._stop, self._counts, models, images)
        self._maintainer.pause = options.pause
        self._searchers = [Searcher(n, self._servers, self._stop, self._maintainer) for n in range(options.searchers)]
        self._clients = [*(one.client for one in self._writers), *(one.client for one in self._searchers)]
        for client in self._clients:
            client.statuses = Statuses(self._servers, self._errors)

    def until_the_end(self, write: Any) -> dict[str, Any]:
        """The figures; ``write`` is called with those so far every 30 s."""
        options, total = self._options, 60 * self._options.minutes
        kills = [0.6 * total * (n + 1) / (options.kills + 0.5) for n in range(options.kills)]
        runs: list[Callable[[], None]] = [one.run for one in self._writers] + [one.run for one in self._searchers]
        runs.append(self._maintainer.run)
        threads = [threading.Thread(target=self._guarded, args=(run,), daemon=True) for run in runs]
        begun, shown, sampled = time.monotonic(), 0.0, 0.0
        self._servers.start()
        for thread in threads:
            thread.start()
        try:
            while (now := time.monotonic() - begun) < total and not self._stop.wait(0.2):
                if kills and now >= kills[0]:
                    kills.pop(0)
                    status = self._servers.end(signal.SIGKILL)
                    assert status == -signal.SIGKILL, f"the service had ended before: {status}"
                    self._servers.start()
                if now - sampled >= 5:
                    sampled = now
                    self._memory.append(
                        resident(self._servers.process) | {"s": now, "start": self._servers.started - begun}
                    )
                if now - shown >= 30:
                    shown = now
                    print(self._line(now), flush=True)
                    write(self.figures(now, finished=False))
            self._stop.set()
            for thread in threads:
                thread.join(120)
            status = self._servers.end(signal.SIGTERM)
            if status:
                self._failures.append(f"SIGTERM ended the service with status {status}")
        finally:
            self._stop.set()
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._servers.process, signal.SIGKILL)
        self._check_everything()
        found = self.figures(time.monotonic() - begun, finished=True)
        write(found)
        return found

    def _guarded(self, run: Any) -> None:
        try:
            run()
        except BaseException as error:
            self._failures.append(f"{type(error).__name__}: {error}")
            self._stop.set()

    def _check_everything(self) -> None:
        """Open the gallery that the last server left, and compare it with the records."""
        from holdfast.gallery import Gallery

        log = (self._folder / "log").read_text(errors="replace")
        if "Traceback" in log:
            self._failures.append(f"the log of the service has a traceback: ...{log[-2000:]}")
        try:
            with Gallery.open(self._folder / "gallery", device="cpu") as gallery:
                check_all(gallery, self._writers, self._maintainer, self._options.items)
        except Exception as error:
            self._failures.append(f"at the end: {type(error).__name__}: {error}")

    def figures(self, seconds: float, *, finished: bool) -> dict[str, Any]:
        statuses = Counter[int]()
        for client in self._clients:
            statuses.update(dict(client.statuses))
        growth = growth_of(self._memory)
        outside = [error for error in self._errors if error["s_after_start"] > RESTART_SECONDS]
        good = not self._failures and not outside and self._servers.kills == self._options.kills
        return {
            "finished": finished,
            "passed": finished and good and growth is not None and growth <= MOST_GROWTH,
            "ran_s": seconds,
            "killed": self._servers.kills,
            "failures": list(self._failures),
            "errors": outside,
            "errors_at_restarts": len(self._errors) - len(outside),
            "statuses": {str(status): count for status, count in sorted(statuses.items())},
            "counts": dict(sorted(self._counts.items())),
            "searches": {task or "nothing beside": percentiles(rows) for task, rows in self._latencies().items()},
            "memory": {"growth": growth, "samples": list(self._memory)},
            "load": os.getloadavg()[0],
        }

    def _latencies(self) -> dict[str, list[float]]:
        found: dict[str, list[float]] = {}
        for searcher in self._searchers:
            for task, rows in list(searcher.seconds.items()):
                found.setdefault(task, []).extend(rows)
        return dict(sorted(found.items()))

    def _line(self, now: float) -> str:
        searches = sum(len(rows) for rows in self._latencies().values())
        writes = sum(
            count for name, count in self._counts.items() if name in ("done add", "done delete", "done delete many")
        )
        tasks = ", ".join(f"{name} {self._counts[f'done {name}']}" for name in ("register", "backfill", "rollback"))
        memory = f"{self._memory[-1]['rss_mb']:.0f} MB" if self._memory else "?"
        return (
            f"{now / 60:5.1f} min: {searches} searches, {writes} writes, {self._counts['checks']} checks, {tasks}; "
            f"{self._servers.kills} kills, {len(self._errors)} errors, {memory}"
        )


class Statuses(Counter[int]):
    """Counts statuses of answers, and notes when those of 500 or more came."""

    def __init__(self, servers: Servers, errors: list[dict[str, Any]]) -> None:
        super().__init__()
        self._servers, self._errors = servers, errors

    def __setitem__(self, status: int, count: int) -> None:
        if status >= 500:
            after = time.monotonic() - self._servers.started
            self._errors.append({"status": status, "s_after_start": after, "server": self._servers.generation})
        super().__setitem__(status, count)


def resident(process: int) -> dict[str, float]:
    """Megabytes of a process in memory: all, and without pages of files."""
    text = Path(f"/proc/{process}/status").read_text(encoding="utf-8")
    kilobytes = {name: int(value) for name, value in re.findall(r"(VmRSS|RssAnon):\s+(\d+) kB", text)}
    return {"rss_mb": kilobytes["VmRSS"] / 1e3, "anonymous_mb": kilobytes["RssAnon"] / 1e3}


def growth_of(samples: list[dict[str, float]], name: str = "rss_mb") -> float | None:
    """How much more memory the last server took at the end than after its warm-up; None with too few samples."""
    if not samples:
        return None
    start, end = samples[-1]["start"], samples[-1]["s"]
    warm = start + min(WARM_SECONDS, (end - start) / 3)
    tenth = max((end - warm) / 10, 10)
    early = [one[name] for one in samples if one["start"] == start and warm <= one["s"] <= warm + tenth]
    late = [one[name] for one in samples if one["start"] == start and one["s"] >= end - tenth]
    if len(early) < 2 or len(late) < 2 or warm + tenth > end - tenth:
        return None
    return float(np.median(late) / np.median(early) - 1)


def percentiles(seconds: list[float]) -> dict[str, float]:
    return {
        "n": len(seconds),
        "p50_ms": 1e3 * float(np.percentile(seconds, 50)),
        "p99_ms": 1e3 * float(np.percentile(seconds, 99)),
        "max_ms": 1e3 * max(seconds),
    }


if __name__ == "__main__":
    main()
