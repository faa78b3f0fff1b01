"""Registering a model with bridges: what searches and writes feel of it, and what a bridged query costs.

    python bench/register.py [--items 100000] [--dim 512] [--pairs 2000] [--query-dim 1280] [--query-items 20000]
                             [--queries 2000] [--query-files OLD.npz NEW.npz] [--threads 2] [--folder DIR]
                             [--json FILE]

A gallery of --items vectors of --dim numbers on the embedded engine, with an index. Every item has a label and an
image, so that the check of ``register`` runs too. A second model is registered with bridges from --pairs vectors:

- alone, beside three threads that wake up every millisecond. One of them takes the gallery's write lock and one the
  catalogue's lock. The longest time between two wake-ups is the longest that ``register`` makes others wait.
- beside a thread that searches and one that adds single items; and these two for as long without ``register``. The
  longest call includes what the two threads make each other wait: the embedded engine flushes after every write. On a
  virtual machine it also includes pauses by the host, so the longest call without stolen time is printed beside it.

Then a gallery of --query-items vectors of --query-dim numbers with an index and a bridge: searches on one CPU thread,
by a vector of the version that stored the items and by a bridged vector of the other version, in turn. The bridge is
also timed alone. With --query-files the same for these features (``features`` of the same items by both models), which
are repeated with noise up to --query-items: large maps are kept in a short form if nothing is lost by it, which made-up
vectors with even noise do not allow.
"""

import argparse
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from stolen_time import StolenTime
from timing import write_figures

from holdfast import Encoder, Gallery, Preprocess, build_backbone
from holdfast.core.environment import describe
from holdfast.gallery import Item, state
from holdfast.vectors import feature_set

K, WARM, PAIRED = 10, 50, 2000


def main() -> None:
    parser = argparse.ArgumentParser(description="Registering a model with bridges beside searches and writes.")
    parser.add_argument("--items", type=int, default=100_000)
    parser.add_argument("--dim", type=int, default=512)
    parser.add_argument("--pairs", type=int, default=2000)
    parser.add_argument("--query-dim", type=int, default=1280)
    parser.add_argument("--query-items", type=int, default=20_000)
    parser.add_argument("--queries", type=int, default=2000)
    parser.add_argument("--query-files", type=Path, nargs=2, help="features of the same items by two models")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--folder", type=Path, help="where everything goes; a temporary folder by default")
    parser.add_argument("--json", help="also write the figures to this file")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    environment, load = describe("cpu"), os.getloadavg()
    print(f"{environment['processor']}, {options.threads} threads; load before the start: {load[0]:.1f}")
    folder = Path(tempfile.mkdtemp(prefix="holdfast-bench-", dir=options.folder))
    try:
        registering = measure_register(folder / "register", options)
        rows = features(options.query_items, options.query_dim)
        bridged = measure_queries(folder / "queries", rows, turned(rows[:PAIRED]), options.queries)
        if options.query_files:
            old, new = map(unit_features, options.query_files)
            stored = repeated(old, options.query_items)
            bridged["real"] = measure_queries(folder / "real", stored, new[:PAIRED], options.queries)
    finally:
        shutil.rmtree(folder)
    if options.json:
        found = {"load": load, "load_after": os.getloadavg(), "register": registering, "bridged_query": bridged}
        if options.query_files:
            options.query_files = [file.name for file in options.query_files]
        write_figures(options.json, "register", environment, options, **found)


def features(count: int, dim: int) -> np.ndarray:
    """Unit rows: 1,000 classes in 32 dimensions, scattered, and led to ``dim`` by a random layer with ReLU."""
    rng = np.random.default_rng(0)
    centres, layer = rng.standard_normal((1000, 32)), rng.standard_normal((32, dim))
    rows = np.empty((count, dim), dtype=np.float32)
    for start in range(0, count, 10_000):
        near = centres[np.arange(start, min(count, start + 10_000)) % 1000]
        latent = near + 0.7 * rng.standard_normal(near.shape)
        rows[start : start + len(near)] = np.maximum(latent @ layer, 0) + 0.1 * rng.standard_normal((len(near), dim))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return rows


def turned(rows: np.ndarray, seed: int = 1) -> np.ndarray:
    """The rows as another model would give them: rotated, with noise."""
    rng = np.random.default_rng(seed)
    rotation = np.linalg.qr(rng.standard_normal((rows.shape[1], rows.shape[1])))[0].astype(np.float32)
    found = rows @ rotation
    found += 0.3 * rng.standard_normal(found.shape, dtype=np.float32) / rows.shape[1] ** 0.5
    found /= np.linalg.norm(found, axis=1, keepdims=True)
    return found


def write_models(folder: Path, dim: int) -> list[Path]:
    """Two models with features of ``dim`` numbers, without slots and projection."""
    preprocess = Preprocess(size=28, mean=(0.5,), std=(0.5,), colour="grey")
    made = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        encoder = Encoder(build_backbone("small", width=dim // 4), preprocess=preprocess)
        encoder.save_pretrained(folder / f"model{seed}")
        made.append(folder / f"model{seed}")
    return made


def filled_gallery(folder: Path, model: Path, rows: np.ndarray, **fields: Any) -> Gallery:
    gallery = Gallery.create(folder, model, device="cpu")
    before, state.INDEX_FROM = state.INDEX_FROM, len(rows) + 1  # one index, when all is stored
    gallery.add(
        (Item(str(i), vector=row, **fields, label=f"class {i % 1000}") for i, row in enumerate(rows)), batch_size=1000
    )
    state.INDEX_FROM = before
    gallery.build_index()
    return gallery


class Calls(threading.Thread):
    """Calls a function again and again in a thread; when each call ended."""

    def __init__(self, call: Callable[[int], Any], pause: float) -> None:
        super().__init__(daemon=True)
        self._call, self._pause, self._stop_now = call, pause, threading.Event()
        self.calls: list[tuple[float, float]] = []
        self.start()

    def run(self) -> None:
        number = 0
        while not self._stop_now.is_set():
            started = time.perf_counter()
            self._call(number)
            self.calls.append((started, time.perf_counter() - started))
            number += 1
            time.sleep(self._pause)

    def stop(self) -> None:
        self._stop_now.set()
        self.join()

    def figures(self, stolen: StolenTime) -> dict[str, Any]:
        """``longest_own_ms`` leaves out what the host of a virtual machine took away."""
        seconds = np.array([took for _, took in self.calls])
        own = np.array([took - stolen.within(started, started + took) for started, took in self.calls])
        longest = int(seconds.argmax())
        return {
            "n": len(seconds),
            "p50_ms": 1e3 * float(np.percentile(seconds, 50)),
            "p99_ms": 1e3 * float(np.percentile(seconds, 99)),
            "longest_ms": 1e3 * float(seconds.max()),
            "longest_at_s": self.calls[longest][0] - self.calls[0][0],
            "longest_own_ms": 1e3 * float(own.max()),
        }


def measure_register(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    folder.mkdir()
    models, rows = write_models(folder, options.dim), features(options.items, options.dim)
    picture = folder / "picture.png"
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (28, 28), dtype=np.uint8)).save(picture)
    some = np.random.default_rng(3).choice(options.items, min(options.items, 2 * options.pairs), replace=False)
    new = feature_set("new.npz", turned(rows)[some], ids=some)
    queries = rows[:1000].copy()
    with filled_gallery(folder / "gallery", models[0], rows, path=picture) as gallery:

        def register() -> None:
            # By force, because the images have nothing to do with the vectors.
            gallery.register(models[1], bridge_pairs=options.pairs, new_vectors=new, force=True)

        idle = longest_waits(gallery, lambda: time.sleep(10))
        alone = longest_waits(gallery, register)
        gallery.rollback(drop=True)
        beside = calls_beside(gallery, queries, "register", register)
        quiet = calls_beside(gallery, queries, "quiet", lambda: time.sleep(beside["seconds"]))
        bridges = gallery.newest().bridges
    print(f"{options.items:,} x {options.dim}; register took {beside['seconds']:.1f} s, {bridges[0]['kind']}")
    for phase, waits in (("idle", idle), ("register", alone)):
        print(f"{phase:9} longest wait: " + ", ".join(f"{name} {wait:.1f} ms" for name, wait in waits.items()))
    for phase, found in (("quiet", quiet), ("register", beside)):
        for what in ("searches", "writes"):
            row = found[what]
            print(
                f"{phase:9} {what:9} n {row['n']:6,}  p50 {row['p50_ms']:6.2f} ms  p99 {row['p99_ms']:6.2f} ms  "
                f"longest {row['longest_ms']:6.1f} ms at {row['longest_at_s']:.1f} s, "
                f"{row['longest_own_ms']:.1f} ms without stolen time"
            )
    waits = {"idle_waits_ms": idle, "register_waits_ms": alone}
    return {**waits, "quiet": quiet, "beside_register": beside, "bridges": bridges}


def longest_waits(gallery: Gallery, work: Callable[[], None]) -> dict[str, float]:
    """The longest time, in ms, between two wake-ups of threads that take no lock, the write lock, the catalogue's."""
    locks = {
        "no lock": nullcontext(),
        "write lock": gallery._state.writing,
        "catalogue": gallery._state.catalogue.locked(),
    }
    longest, stop = dict.fromkeys(locks, 0.0), threading.Event()

    def wake_up(name: str) -> None:
        last = time.perf_counter()
        while not stop.is_set():
            time.sleep(0.001)
            with locks[name]:
                now = time.perf_counter()
            longest[name] = max(longest[name], 1e3 * (now - last))
            last = now

    threads = [threading.Thread(target=wake_up, args=(name,)) for name in locks]
    for thread in threads:
        thread.start()
    work()
    stop.set()
    for thread in threads:
        thread.join()
    return longest


def calls_beside(gallery: Gallery, queries: np.ndarray, name: str, work: Callable[[], None]) -> dict[str, Any]:
    """Searches and writes in two threads while ``work`` runs: how long their calls took."""

    def search(number: int) -> None:
        gallery.search(vector=queries[number % len(queries)], version=1, k=K)

    def add(number: int) -> None:
        gallery.add([Item(f"{name}/{number}", vector=queries[number % len(queries)])], version=1)

    with StolenTime() as stolen:
        searches, writes = Calls(search, 0.001), Calls(add, 0.01)
        started = time.perf_counter()
        work()
        seconds = time.perf_counter() - started
        searches.stop()
        writes.stop()
    return {"seconds": seconds, "searches": searches.figures(stolen), "writes": writes.figures(stolen)}


def measure_queries(folder: Path, rows: np.ndarray, new_rows: np.ndarray, queries: int) -> dict[str, Any]:
    """Searches by vectors of the version that stored the items, and by bridged vectors of the next one.

    rows: unit vectors of all items by the first model.
    new_rows: of the first items by the second model. All of them are pairs, and queries are taken from them in turn.
    """
    folder.mkdir()
    torch.set_num_threads(1)
    models, pairs = write_models(folder, rows.shape[1]), len(new_rows)
    seconds: dict[str, list[float]] = {"plain": [], "bridged": [], "bridge alone": []}
    with filled_gallery(folder / "gallery", models[0], rows) as gallery:
        new = feature_set("new.npz", new_rows, ids=np.arange(pairs))
        gallery.register(models[1], bridge_pairs=pairs, new_vectors=new)
        (chosen,) = gallery.newest().bridges
        target, source = gallery.versions()
        for number in range(queries + WARM):
            moments = [time.perf_counter()]
            gallery.search(vector=rows[number % pairs], version=1, k=K, indexed_by=1)
            moments.append(time.perf_counter())
            gallery.search(vector=new_rows[number % pairs], version=2, k=K, indexed_by=1)
            moments.append(time.perf_counter())
            gallery.models.queries_for(new_rows[number % pairs], source, [target])
            moments.append(time.perf_counter())
            for name, took in zip(seconds, np.diff(moments), strict=True):
                seconds[name].append(float(took))
    print(f"{len(rows):,} x {rows.shape[1]}, one thread, {queries:,} searches each, in turn")
    print(f"bridge: {chosen['kind']} {chosen['options']}")
    found: dict[str, Any] = {}
    for name, took in seconds.items():
        found[name] = {f"p{p}_ms": 1e3 * float(np.percentile(took[WARM:], p)) for p in (50, 99)}
        print(f"{name:12} p50 {found[name]['p50_ms']:.3f} ms  p99 {found[name]['p99_ms']:.3f} ms")
    extra = found["bridged"]["p50_ms"] - found["plain"]["p50_ms"]
    print(f"a bridged search costs {extra:.3f} ms more at p50")
    return {**found, "extra_p50_ms": extra, "kind": chosen["kind"], "options": chosen["options"], "items": len(rows)}


def repeated(rows: np.ndarray, count: int) -> np.ndarray:
    """The rows, and after them the same rows with noise, ``count`` unit vectors in all.

    So the pairs are a small part of the index, as in a large one. Where they are a large part, ``auto`` can choose the
    kind ``local``, which reads all pairs at each query.
    """
    rng = np.random.default_rng(0)
    more = rows[np.arange(max(0, count - len(rows))) % len(rows)]
    more = more + 0.3 * rng.standard_normal(more.shape, dtype=np.float32) / rows.shape[1] ** 0.5
    return np.concatenate([rows, more / np.linalg.norm(more, axis=1, keepdims=True)])


def unit_features(file: Path) -> np.ndarray:
    with np.load(file) as pack:
        rows = pack["features"].astype(np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


if __name__ == "__main__":
    main()
