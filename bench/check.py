"""``holdfast check`` of a large gallery against an exact faiss flat search of the same work, in the same run.

    python bench/check.py [--gallery 1000000] [--queries 10000] [--dim 512] [--classes 1000] [--repeats 3]
                          [--threads 2] [--folder DIR] [--json FILE]

Random unit features are written to files (2 GB at the default size) and removed at the end. Both sides read those
files and search old and new queries for the nearest gallery item, each in a process of its own so that its peak memory
can be told; the check then also makes intervals and the verdict. Needs faiss (the dev extra).
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from process_memory import bytes_of

from holdfast.core.environment import describe
from holdfast.core.storage import write_json


def main() -> None:
    parser = argparse.ArgumentParser(description="holdfast check, timed against faiss.")
    parser.add_argument("--gallery", type=int, default=1_000_000)
    parser.add_argument("--queries", type=int, default=10_000)
    parser.add_argument("--dim", type=int, default=512)
    parser.add_argument("--classes", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--folder", type=Path, help="where the features go; a temporary folder by default")
    parser.add_argument("--json", help="also write the figures to this file")
    parser.add_argument("--side", choices=list(SIDES), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        measure(options.side, options.folder)
        return
    folder = Path(tempfile.mkdtemp(prefix="holdfast-bench-", dir=options.folder))
    try:
        write_features(folder, options.gallery, options.queries, options.dim, options.classes)
        report(folder, options)
    finally:
        shutil.rmtree(folder)


def report(folder: Path, options: argparse.Namespace) -> None:
    environment = describe("cpu")
    print(f"{environment['processor']}, {options.threads} threads, {options.repeats} repeats, sides taking turns")
    print(f"{options.gallery:,} x {options.dim} gallery, 2 x {options.queries:,} queries")
    found: dict[str, list[dict[str, float]]] = {name: [] for name in SIDES}
    for _ in range(options.repeats):
        for name in SIDES:
            found[name].append(in_a_process(name, folder, options.threads))
    agree = {row["hits"] for rows in found.values() for row in rows}
    rows = {}
    for name, runs in found.items():
        seconds = [run["seconds"] for run in runs]
        rows[name] = {
            "median_s": statistics.median(seconds),
            "min_s": min(seconds),
            "max_s": max(seconds),
            "peak_gb": max(run["peak_gb"] for run in runs),
        }
        print(f"{name:16} {rows[name]['median_s']:8.1f} s  (min {min(seconds):.1f}, max {max(seconds):.1f})   "
              f"peak {rows[name]['peak_gb']:.2f} GB")  # fmt: skip
    ratio = rows["holdfast check"]["median_s"] / rows["faiss flat"]["median_s"]
    print(f"check over faiss: {ratio:.2f} x   queries right, as each side counts them: {sorted(agree)}")
    if options.json:
        settings = {
            key: getattr(options, key) for key in ("gallery", "queries", "dim", "classes", "repeats", "threads")
        }
        record = {"bench": "check", "environment": environment, **settings, "rows": rows, "ratio": ratio}
        write_json(Path(options.json), record)


def write_features(folder: Path, gallery: int, queries: int, dim: int, classes: int) -> None:
    """Classes around random directions; new queries lie a little closer than old ones."""
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((classes, dim)).astype(np.float32)
    for name, rows, noise in (("gallery", gallery, 4.5), ("old", queries, 4.5), ("new", queries, 4.2)):
        labels = rng.integers(0, classes, rows) if name == "gallery" else np.arange(rows) % classes
        np.save(folder / f"{name}.labels.npy", labels)
        shape = (rows, dim)
        file = np.lib.format.open_memmap(folder / f"{name}.npy", mode="w+", dtype=np.float32, shape=shape)
        for start in range(0, rows, 50_000):
            some = labels[start : start + 50_000]
            z = centres[some] + noise * rng.standard_normal((len(some), dim), dtype=np.float32)
            file[start : start + len(some)] = z / np.linalg.norm(z, axis=1, keepdims=True)
        file.flush()


def with_faiss(folder: Path) -> int:
    import faiss

    gallery = np.load(folder / "gallery.npy", mmap_mode="r")
    index = faiss.IndexFlatIP(gallery.shape[1])
    for start in range(0, len(gallery), 50_000):
        index.add(np.ascontiguousarray(gallery[start : start + 50_000]))
    labels, right = np.load(folder / "gallery.labels.npy"), 0
    for name in ("old", "new"):
        _, hits = index.search(np.load(folder / f"{name}.npy"), 1)
        right += int((labels[hits[:, 0]] == np.load(folder / f"{name}.labels.npy")).sum())
    return right


def with_check(folder: Path) -> int:
    from holdfast import check

    found = check(*(folder / f"{name}.npy" for name in ("gallery", "old", "new")))
    assert found.self_test is not None
    assert found.cross_test is not None
    return round((found.self_test.value + found.cross_test.value) * found.queries)


SIDES = {"faiss flat": with_faiss, "holdfast check": with_check}


def in_a_process(name: str, folder: Path, threads: int) -> dict[str, float]:
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "OPENBLAS_NUM_THREADS": str(threads)}
    words = [sys.executable, __file__, "--side", name, "--folder", str(folder)]
    done = subprocess.run(words, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    measured: dict[str, float] = json.loads(done.stdout)
    return measured


def measure(name: str, folder: Path) -> None:
    """Imports are not timed; reading the files is."""
    if name == "faiss flat":
        import faiss  # noqa: F401
    else:
        import holdfast.checks  # noqa: F401
    started = time.perf_counter()
    hits = SIDES[name](folder)
    seconds = time.perf_counter() - started
    print(json.dumps({"seconds": seconds, "peak_gb": bytes_of("VmHWM") / 1e9, "hits": hits}))


if __name__ == "__main__":
    main()
