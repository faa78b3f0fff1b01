"""A backfill and what searches feel of it: items a second, accuracy on the way, the time of searches without and with.

    python bench/backfill.py GALLERY [--rate N] [--searches 2000] [--threads 2] [--json FILE]

GALLERY: one with images at hand and items in older versions, such as holdfast demo leaves in runs/demo/gallery. A copy
is worked on, so the same figures can be had again. Searches are by vector, of ten hits, one after the other in a thread
of their own, first on a quiet gallery, then for as long as the backfill to the newest version takes.
"""

import argparse
import os
import shutil
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import torch
from timing import write_figures

from holdfast import Gallery
from holdfast.environment import describe


def main() -> None:
    parser = argparse.ArgumentParser(description="A backfill, and searches beside it.")
    parser.add_argument("gallery", type=Path)
    parser.add_argument("--rate", type=float)
    parser.add_argument("--searches", type=int, default=2000)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", help="also write the figures to this file")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    folder = Path(tempfile.mkdtemp(prefix="holdfast-bench-"))
    environment, load = describe("cpu"), os.getloadavg()
    try:
        shutil.copytree(options.gallery, folder / "gallery")
        with Gallery.open(folder / "gallery") as gallery:
            found = measure(gallery, options)
    finally:
        shutil.rmtree(folder)
    print(f"{environment['processor']}, {options.threads} threads; load before the start: {load[0]:.1f}")
    print(f"{found['items']} items, {found['moved']} moved in {found['seconds']:.1f} s: {found['items_per_s']:.1f}/s")
    for name in ("quiet", "beside"):
        row = found[name]
        print(f"searches {name:6} n {row['n']:6}  p50 {row['p50_ms']:.2f} ms  p99 {row['p99_ms']:.2f} ms")
    for point in found["accuracy"]:
        print(f"{100 * point['share']:6.2f} % backfilled  accuracy {100 * point['accuracy']:.2f} %")
    if options.json:
        options.gallery = options.gallery.name  # a place on one machine says nothing about a figure
        write_figures(options.json, "backfill", environment, options, load=load, **found)


def measure(gallery: Gallery, options: argparse.Namespace) -> dict:
    newest = gallery.versions()[-1]
    rng = np.random.default_rng(0)
    queries = rng.standard_normal((options.searches, newest.stored_dim))
    stop, beside = threading.Event(), []

    def ask(query: np.ndarray) -> float:
        started = time.perf_counter()
        gallery.search(vector=query, version=newest.number)
        return 1000 * (time.perf_counter() - started)

    def go_on() -> None:
        while not stop.is_set():
            beside.append(ask(queries[len(beside) % len(queries)]))

    quiet = [ask(query) for query in queries]
    searching = threading.Thread(target=go_on)
    searching.start()
    try:
        done = gallery.backfill(rate=options.rate).as_json()
    finally:
        stop.set()
        searching.join()
    kept = ("moved", "unreadable", "without_image", "share", "seconds", "accuracy")
    return {
        "items": gallery.stats()["items"],
        **{name: done[name] for name in kept},
        "items_per_s": done["rate"],
        "quiet": figures(quiet),
        "beside": figures(beside),
    }


def figures(times: list[float]) -> dict[str, float]:
    return {"n": len(times), "p50_ms": float(np.percentile(times, 50)), "p99_ms": float(np.percentile(times, 99))}


if __name__ == "__main__":
    main()
