"""The index side against an older checkout: time, processor time and memory, on one machine in one run.

    python bench/index_side.py PART OLD_CHECKOUT [--repeats 3] [--threads 2] [--small] [--json FILE]

PART is one of search, check, fit, imports, verbs, gallery, served, or all. Each measurement is a process of its own
with the checkout's ``src`` first on PYTHONPATH; both sides take turns. Rows give the median of each side and new over
old.

search: exact nearest neighbours, 100,000 x 256, 1,000 queries, k = 10.
check: a gallery of 1,000,000 x 512 with 2 x 1,000 queries, from files (2 GB, removed at the end).
fit: Bridge.fit with 2,000 pairs of 1,280 numbers, and with 2,000 of 384.
imports: processor time of ``from holdfast import Bridge, check``, and of ``import numpy``.
verbs: ``holdfast bridge`` and ``holdfast check`` on two files of 3,000 x 384, ``holdfast gallery search``; from start
    to end.
gallery: p50 of a search by a vector in an open gallery of 100,000 x 512 (HNSW), in one process.
served: resident memory of ``holdfast serve`` with that gallery, after 200 searches.
--small: a hundredth of the items, to try the script.
"""

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[1]
OLD, NEW = "old", "new"


class Bench:
    """The two checkouts, a folder for files, and the rows so far."""

    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        self.options, self.folder = options, folder
        self.sources = {OLD: options.old.resolve() / "src", NEW: ROOT / "src"}
        self.rows: list[dict[str, Any]] = []

    def environment(self, side: str) -> dict[str, str]:
        threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), str(self.options.threads))
        cache = {"PYTHONPATH": str(self.sources[side]), "PYTHONPYCACHEPREFIX": str(self.folder / f"bytecode-{side}")}
        inherited = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        return {**inherited, **threads, **cache}  # bytecode is written once, as by an installation

    def call(self, side: str, words: list[str], statuses: tuple[int, ...] = (0,)) -> tuple[float, float, str]:
        """Seconds on the clock, processor seconds and the output of a command."""
        before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        done = subprocess.run(
            words, env=self.environment(side), cwd=self.folder, capture_output=True, text=True, check=False
        )
        after, seconds = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter() - started
        if done.returncode not in statuses:
            raise SystemExit(f"{side}: {' '.join(words)}\n{done.stdout}{done.stderr}")
        return seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, done.stdout

    def work(self, side: str, name: str, *words: object) -> dict[str, float]:
        """What a worker of this script prints."""
        call = [sys.executable, __file__, name, ".", "--worker", *map(str, words)]
        result: dict[str, float] = json.loads(self.call(side, call)[2].splitlines()[-1])
        return result

    def compare(self, what: str, measure: Callable[[str], float], unit: str, at_most: float | None) -> None:
        """Measure both sides in turns and keep a row; at_most: the largest ratio that is asked for."""
        values: dict[str, list[float]] = {OLD: [], NEW: []}
        for _ in range(self.options.repeats):
            for side, found in values.items():
                found.append(measure(side))
        medians = {side: statistics.median(found) for side, found in values.items()}
        ratio = medians[NEW] / medians[OLD]
        row = {"what": what, "unit": unit, **medians, "ratio": ratio, "at_most": at_most, "values": values}
        self.rows.append({**row, "load": os.getloadavg()[0]})
        asked = "" if at_most is None else f"   asked: at most {at_most:g}"
        print(
            f"{what:44} old {medians[OLD]:9.3f}  new {medians[NEW]:9.3f} {unit:6} new/old {ratio:5.2f}{asked}",
            flush=True,
        )

    def scaled(self, count: int) -> int:
        return count // 100 if self.options.small else count


def search(bench: Bench) -> None:
    items, queries = bench.scaled(100_000), bench.scaled(1000) or 10
    for clock in ("seconds", "processor"):
        bench.compare(
            f"exact search, {items:,} x 256, {queries:,} queries, {clock}",
            lambda side, clock=clock: bench.work(side, "search", items, queries)[clock],  # type: ignore[misc]
            "s",
            1.2,
        )


def check(bench: Bench) -> None:
    items, queries = bench.scaled(1_000_000), bench.scaled(1000) or 10
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((1000, 512), dtype=np.float32)
    for name, rows in (("gallery", items), ("old", queries), ("new", queries)):
        file = np.lib.format.open_memmap(bench.folder / f"{name}.npy", "w+", np.float32, (rows, 512))
        for start in range(0, rows, 50_000):
            count = min(50_000, rows - start)
            labels = np.arange(start, start + count) % 1000
            file[start : start + count] = centres[labels] + 4.5 * rng.standard_normal((count, 512), dtype=np.float32)
        file.flush()
        np.save(bench.folder / f"{name}.labels.npy", np.arange(rows) % 1000)
    for clock in ("seconds", "processor"):
        bench.compare(
            f"check, {items:,} x 512, 2 x {queries:,} queries, {clock}",
            lambda side, clock=clock: bench.work(side, "check")[clock],  # type: ignore[misc]
            "s",
            1.2,
        )


def fit(bench: Bench) -> None:
    pairs = bench.scaled(2000) or 20
    for dim in (1280, 384):
        for clock in ("seconds", "processor"):
            bench.compare(
                f"Bridge.fit, {pairs:,} pairs of {dim:,}, {clock}",
                lambda side, clock=clock, dim=dim: bench.work(side, "fit", pairs, dim)[clock],  # type: ignore[misc]
                "s",
                1.2,
            )


def imports(bench: Bench) -> None:
    ours = [sys.executable, "-c", "import holdfast; from holdfast import Bridge, check"]
    numpy = [sys.executable, "-c", "import numpy"]
    for side in (OLD, NEW):  # writes the bytecode
        bench.call(side, ours)
    bench.compare("from holdfast import Bridge, check", lambda side: bench.call(side, ours)[1], "cpu s", None)
    bench.compare(
        "old: import numpy; new: holdfast",
        lambda side: bench.call(side, ours if side == NEW else numpy)[1],
        "cpu s",
        2.5,
    )


def verbs(bench: Bench) -> None:
    rng = np.random.default_rng(0)
    groups = rng.standard_normal((60, 32))
    items = groups[np.arange(3000) % 60] + 0.6 * rng.standard_normal((3000, 32))
    for name in ("one", "two"):
        rows = np.tanh(items @ rng.standard_normal((32, 384)) / 6) + 0.1 * rng.standard_normal((3000, 384))
        ids = [f"item-{number}" for number in range(3000)]
        np.savez(bench.folder / f"{name}.npz", features=rows.astype(np.float32), ids=ids, labels=np.arange(3000) % 60)
    holdfast = [sys.executable, "-m", "holdfast"]
    make_gallery(bench, bench.scaled(20_000), 128)
    commands = {
        "holdfast bridge": lambda side: ["bridge", "--old", "one.npz", "--new", "two.npz", "--out", f"bridge-{side}"],
        "holdfast check": lambda side: (
            ["check", "--gallery", "one.npz", "--queries-old", "one.npz", "--queries-new", "two.npz"]
            + (["--leave-one-out"] if side == OLD else [])
        ),
        "holdfast gallery search --id": lambda side: ["gallery", "search", f"gallery-{side}", "--id", "i7"],
    }
    for name, words in commands.items():
        for place, clock in enumerate(("seconds", "processor")):
            bench.compare(
                f"{name}, {clock}",
                lambda side, words=words, place=place: bench.call(side, [*holdfast, *words(side)], (0, 1, 3))[place],  # type: ignore[misc]
                "s",
                1 / 3,
            )
    by_vector = ["gallery", "search", "gallery-new", "query.npy"]
    by_id = ["gallery", "search", "gallery-old", "--id", "i7"]
    bench.compare(
        "gallery search, old --id, new by vector",
        lambda side: bench.call(side, [*holdfast, *(by_vector if side == NEW else by_id)])[0],
        "s",
        1 / 3,
    )


def gallery(bench: Bench) -> None:
    make_gallery(bench, bench.scaled(100_000), 512)
    bench.compare(
        "p50 of a search by vector in an open gallery",
        lambda side: bench.work(side, "gallery", f"gallery-{side}")["p50_ms"],
        "ms",
        1.2,
    )


def served(bench: Bench) -> None:
    make_gallery(bench, bench.scaled(100_000), 512)
    bench.compare("resident memory of a served gallery", lambda side: served_memory(bench, side), "MB", None)
    row = bench.rows[-1]
    print(f"{'':44} {row[OLD] - row[NEW]:.0f} MB less   asked: at least 250")


def served_memory(bench: Bench, side: str) -> float:
    words = [sys.executable, "-m", "holdfast", "serve", f"gallery-{side}", "--port", "0"]
    environment = {**bench.environment(side), "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(words, cwd=bench.folder, env=environment, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            url = server.stdout.readline().split()[-1]
            for row in np.load(bench.folder / "queries.npy"):
                body = json.dumps({"vector": row.tolist(), "k": 10}).encode()
                request = urllib.request.Request(f"{url}/v1/search/vector", body, {"Content-Type": "application/json"})
                with urllib.request.urlopen(request) as answer:
                    assert len(json.load(answer)["hits"]) == 10
            status = Path(f"/proc/{server.pid}/status").read_text()
            (line,) = [line for line in status.splitlines() if line.startswith("VmRSS")]
            return int(line.split()[1]) / 1000
        finally:
            server.terminate()


def make_gallery(bench: Bench, items: int, dim: int) -> None:
    """The same vectors in a gallery of each checkout, with its index built."""
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((1000, dim), dtype=np.float32)
    rows = centres[np.arange(items + 200) % 1000] + rng.standard_normal((items + 200, dim), dtype=np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    ids = [f"i{number}" for number in range(items)]
    np.savez(bench.folder / "items.npz", features=rows[:items], ids=ids)
    np.savez(bench.folder / "few.npz", features=rows[:100], ids=ids[:100])
    np.save(bench.folder / "queries.npy", rows[items:])
    np.save(bench.folder / "query.npy", rows[items])
    holdfast = [sys.executable, "-m", "holdfast"]
    for side in (OLD, NEW):
        shutil.rmtree(bench.folder / f"gallery-{side}", ignore_errors=True)
        create = ["gallery", "create", f"gallery-{side}"]
        if side == OLD:  # its galleries need a model
            shutil.rmtree(bench.folder / "model", ignore_errors=True)
            bench.call(side, [*holdfast, "adopt", "few.npz", "--way", "unchanged", "--out", "model"])
            bench.call(side, [*holdfast, *create, "--model", "model"])
        else:
            bench.call(side, [*holdfast, *create, "--vectors", "items.npz"])
        bench.call(side, [*holdfast, "gallery", "add", f"gallery-{side}", "items.npz", "--version", "1"])


PARTS: dict[str, Callable[[Bench], None]] = {
    part.__name__: part for part in (search, check, fit, imports, verbs, gallery, served)
}


def main() -> None:
    parser = argparse.ArgumentParser(description="The index side against an older checkout.")
    parser.add_argument("part", choices=[*PARTS, "all"])
    parser.add_argument("old", type=Path, help="folder of the old checkout")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--small", action="store_true", help="a hundredth of the items")
    parser.add_argument("--json", help="also write the figures to this file")
    parser.add_argument("--worker", nargs="*", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker is not None:
        print(json.dumps(WORKERS[options.part](*options.worker)))
        return
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as name:
        bench = Bench(options, Path(name))
        for part in PARTS if options.part == "all" else [options.part]:
            PARTS[part](bench)
    if options.json:
        from holdfast.core.environment import describe

        record = {"bench": "index_side", "environment": describe(), "threads": options.threads, "rows": bench.rows}
        Path(options.json).write_text(json.dumps(record, indent=2) + "\n")


def clocked(call: Callable[[], object]) -> dict[str, float]:
    started, before = time.perf_counter(), time.process_time()
    call()
    return {"seconds": time.perf_counter() - started, "processor": time.process_time() - before}


def tensors_for_old(*arrays: np.ndarray) -> tuple[Any, ...]:
    """The old code's search takes tensors."""
    import holdfast.vectors.neighbours as neighbours

    return tuple(neighbours.torch.from_numpy(rows) for rows in arrays) if hasattr(neighbours, "torch") else arrays


def search_work(items: str, queries: str) -> dict[str, float]:
    from holdfast import nearest

    rng = np.random.default_rng(0)
    rows = [rng.standard_normal((int(count), 256), dtype=np.float32) for count in (queries, items)]
    rows = [part / np.linalg.norm(part, axis=1, keepdims=True) for part in rows]
    asked, stored = tensors_for_old(*rows)
    nearest(asked[:10], stored[:1000], 10)
    return clocked(lambda: nearest(asked, stored, 10))


def check_work() -> dict[str, float]:
    from holdfast import check as check_upgrade

    sets = [
        (np.load(f"{name}.npy", mmap_mode="r"), np.load(f"{name}.labels.npy")) for name in ("gallery", "old", "new")
    ]
    return clocked(lambda: check_upgrade(*sets))


def fit_work(pairs: str, dim: str) -> dict[str, float]:
    from holdfast import Bridge

    rng = np.random.default_rng(0)
    latent = rng.standard_normal((int(pairs), 300))
    new, old = (
        (latent @ rng.standard_normal((300, int(dim))) + 5 * rng.standard_normal((int(pairs), int(dim)))).astype("f4")
        for _ in range(2)
    )
    return clocked(lambda: Bridge.fit(new=new, old=old))


def gallery_work(folder: str) -> dict[str, float]:
    from holdfast import Gallery

    queries, times = np.load("queries.npy"), []
    with Gallery.open(folder) as opened:
        for row in [*queries, *queries]:
            started = time.perf_counter()
            opened.search(vector=row, k=10)
            times.append(time.perf_counter() - started)
    return {"p50_ms": 1000 * statistics.median(times[len(queries) :])}


WORKERS: dict[str, Callable[..., dict[str, float]]] = {
    "search": search_work,
    "check": check_work,
    "fit": fit_work,
    "gallery": gallery_work,
}

if __name__ == "__main__":
    main()
