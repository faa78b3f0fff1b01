"""The gallery against plain qdrant-edge and faiss HNSW: the same vectors, the same run.

    python bench/gallery.py [--items 100000] [--dim 512] [--queries 1000] [--batch 1000] [--threads 2]
                            [--features FILE.npy] [--folder DIR] [--json FILE] [--engine ADDRESS] [--alone]

Each side has a process of its own, so that its memory can be told: it stores all items, builds its index and is asked
one vector after the other for the 10 nearest. (The gallery builds its index in yet another process.) Recall is against
exact search. Without --features the vectors are made: 1,000 classes in 32 dimensions, scattered, and led to --dim by a
random layer with ReLU, which makes them as uneven as features are. All sides use 16 edges per node, 100 candidates to
build and 128 to search. The gallery makes every batch durable; plain qdrant-edge is flushed once, at the end; faiss
writes nothing to disk. Needs the dev extra.

--engine: the gallery's engine; by default the embedded one. ``postgresql`` without an address starts the server of the
dev extra, in a temporary folder, with 1 GB of shared buffers; all else is as PostgreSQL sets it. A
server's memory is not in the figures. --alone: leave the other two sides out.
"""

import argparse
import atexit
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from process_memory import bytes_of

from holdfast.core.environment import describe
from holdfast.core.storage import write_json

K = 10
Search = Callable[[np.ndarray], list[int]]


def main() -> None:
    parser = argparse.ArgumentParser(description="The gallery, timed against plain qdrant-edge and faiss HNSW.")
    parser.add_argument("--items", type=int, default=100_000)
    parser.add_argument("--dim", type=int, default=512)
    parser.add_argument("--queries", type=int, default=1000)
    parser.add_argument("--batch", type=int, default=1000)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--features", type=Path, help="rows of features: the first --queries are asked, others stored")
    parser.add_argument("--folder", type=Path, help="where everything goes; a temporary folder by default")
    parser.add_argument("--engine", default="embedded", help="as holdfast gallery create takes it, or: postgresql")
    parser.add_argument("--alone", action="store_true", help="only the gallery")
    parser.add_argument("--json", help="also write the figures to this file")
    parser.add_argument("--side", choices=list(SIDES), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        measure(options)
        return
    folder = Path(tempfile.mkdtemp(prefix="holdfast-bench-", dir=options.folder))
    name, server = options.engine, own_server() if options.engine == "postgresql" else None
    try:
        options.engine = name if server is None else server.url
        write_features(folder, options)
        report(folder, name, options)
    finally:
        shutil.rmtree(folder)
        if server is not None:
            server.remove()


def own_server() -> Any:
    sys.path.append(str(Path(__file__).parents[1] / "tests" / "gallery"))
    from postgres_server import PostgresServer

    return PostgresServer("-c shared_buffers=1GB -c max_wal_size=4GB")


def report(folder: Path, engine: str, options: argparse.Namespace) -> None:
    environment, load = describe("cpu"), os.getloadavg()
    items, dim = np.load(folder / "items.npy", mmap_mode="r").shape
    print(f"{environment['processor']}, {options.threads} threads; load before the start: {load[0]:.1f}")
    print(f"{items:,} x {dim}, {options.queries} queries of {K} hits, one by one; batches of {options.batch}")
    print(f"the gallery's engine: {engine}")
    rows = {}
    for name in list(SIDES)[: 1 if options.alone else None]:
        rows[name] = row = in_a_process(name, folder, options)
        print(
            f"{name:16} stored {row['items_per_s']:8,.0f}/s  index {row['index_s']:6.1f} s  "
            f"p50 {row['p50_ms']:.2f} ms  p99 {row['p99_ms']:.2f} ms  recall@10 {row['recall']:.4f}  "
            f"peak {row['peak_gb']:.2f} GB ({row['children_gb']:.2f} in its index builder)  load {row['load']:.1f}",
            flush=True,
        )
    if options.json:
        settings = {key: getattr(options, key) for key in ("queries", "batch", "threads")}
        made = "made" if options.features is None else options.features.name
        record = {"bench": "gallery", "environment": environment, "items": items, "dim": dim, "features": made}
        record["engine"] = engine
        write_json(Path(options.json), {**record, **settings, "load": load, "rows": rows})


def write_features(folder: Path, options: argparse.Namespace) -> None:
    """Unit rows in items.npy and queries.npy, and the exact answers in truth.npy."""
    if options.features is not None:
        rows = np.load(options.features, mmap_mode="r")[: options.queries + options.items].astype(np.float32)
    else:
        rng = np.random.default_rng(0)
        centres = rng.standard_normal((1000, 32), dtype=np.float32)
        layer = rng.standard_normal((32, options.dim), dtype=np.float32)
        count = options.queries + options.items
        rows = np.empty((count, options.dim), dtype=np.float32)
        for start in range(0, count, 20_000):
            near = centres[rng.integers(0, len(centres), min(20_000, count - start))]
            latent = near + 0.7 * rng.standard_normal(near.shape, dtype=np.float32)
            rows[start : start + len(near)] = np.maximum(latent @ layer, 0)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    queries, items = rows[: options.queries], rows[options.queries :]
    best = [np.argsort(-(items @ part.T), axis=0)[:K].T for part in np.array_split(queries, len(queries) // 50 + 1)]
    np.save(folder / "truth.npy", np.concatenate(best))
    np.save(folder / "queries.npy", queries)
    np.save(folder / "items.npy", items)


def with_gallery(items: np.ndarray, folder: Path, options: argparse.Namespace) -> tuple[float, float, Search]:
    """A model whose backbone has as many numbers as the vectors, so that they are its compact features."""
    from holdfast import Encoder, Gallery, Preprocess, build_backbone
    from holdfast.gallery import Item, state

    dim = items.shape[1]
    preprocess = Preprocess(size=28, mean=(0.5,), std=(0.5,), colour="grey")
    Encoder(build_backbone("small", width=dim // 4), 2 * dim, preprocess=preprocess).save_pretrained(folder / "model")
    gallery = Gallery.create(folder / "gallery", folder / "model", engine=options.engine)
    atexit.register(lambda: gallery._state.engine.drop("v0001"))  # a server outlives this
    state.INDEX_FROM = len(items) + 1  # so that storing and building are timed apart
    started = time.perf_counter()
    gallery.add((Item(str(i), vector=row) for i, row in enumerate(items)), batch_size=options.batch)
    stored = time.perf_counter()
    gallery.build_index()
    built = time.perf_counter()
    return stored - started, built - stored, lambda query: [int(hit.id) for hit in gallery.search(vector=query, k=K)]


def with_qdrant_edge(items: np.ndarray, folder: Path, options: argparse.Namespace) -> tuple[float, float, Search]:
    import qdrant_edge as edge

    from holdfast.gallery.engines.embedded_engine import EF_SEARCH
    from holdfast.gallery.engines.embedded_process import EF_CONSTRUCT, M

    (folder / "edge").mkdir()
    config = edge.EdgeConfig(
        vectors=edge.EdgeVectorParams(size=items.shape[1], distance=edge.Distance.Cosine),
        hnsw_config=edge.HnswIndexConfig(m=M, ef_construct=EF_CONSTRUCT, full_scan_threshold=10_000),
        optimizers=edge.EdgeOptimizersConfig(default_segment_number=1, max_segment_size=1 << 30),
    )
    shard = edge.EdgeShard.create(str(folder / "edge"), config)
    started = time.perf_counter()
    for start in range(0, len(items), options.batch):
        rows = items[start : start + options.batch].tolist()
        points = [edge.Point(start + i, row, {}) for i, row in enumerate(rows)]
        shard.update(edge.UpdateOperation.upsert_points(points))
    shard.flush()
    stored = time.perf_counter()
    shard.optimize()
    built = time.perf_counter()
    params = edge.SearchParams(hnsw_ef=EF_SEARCH)

    def search(query: np.ndarray) -> list[int]:
        request = edge.SearchRequest(query=edge.Query.Nearest(query.tolist()), limit=K, params=params)
        return [point.id for point in shard.search(request)]

    return stored - started, built - stored, search


def with_faiss(items: np.ndarray, folder: Path, options: argparse.Namespace) -> tuple[float, float, Search]:
    """Storing and building are one here: the time counts as both."""
    import faiss

    from holdfast.gallery.engines.embedded_engine import EF_SEARCH
    from holdfast.gallery.engines.embedded_process import EF_CONSTRUCT, M

    faiss.omp_set_num_threads(options.threads)
    index = faiss.IndexHNSWFlat(items.shape[1], M, faiss.METRIC_INNER_PRODUCT)
    index.hnsw.efConstruction, index.hnsw.efSearch = EF_CONSTRUCT, EF_SEARCH
    started = time.perf_counter()
    index.add(np.ascontiguousarray(items))
    built = time.perf_counter()
    return 0.0, built - started, lambda query: index.search(query[None], K)[1][0].tolist()


SIDES = {"holdfast gallery": with_gallery, "qdrant-edge": with_qdrant_edge, "faiss hnsw": with_faiss}


def in_a_process(name: str, folder: Path, options: argparse.Namespace) -> dict[str, float]:
    environment = {**os.environ, "OMP_NUM_THREADS": str(options.threads), "OPENBLAS_NUM_THREADS": str(options.threads)}
    words = [sys.executable, __file__, "--side", name, "--folder", str(folder), "--batch", str(options.batch)]
    words += ["--threads", str(options.threads), "--engine", options.engine]
    done = subprocess.run(words, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    measured: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return measured


def measure(options: argparse.Namespace) -> None:
    folder: Path = options.folder
    items = np.load(folder / "items.npy", mmap_mode="r")
    queries, truth = np.load(folder / "queries.npy"), np.load(folder / "truth.npy")
    storing, building, search = SIDES[options.side](items, folder, options)
    for query in queries[:50]:
        search(query)
    seconds, right = [], 0
    for query, best in zip(queries, truth, strict=True):
        started = time.perf_counter()
        found = search(query)
        seconds.append(time.perf_counter() - started)
        right += len(set(found) & set(best.tolist()))
    row: dict[str, Any] = {
        "items_per_s": len(items) / (storing or building),
        "store_s": storing,
        "index_s": building,
        "p50_ms": 1e3 * float(np.percentile(seconds, 50)),
        "p99_ms": 1e3 * float(np.percentile(seconds, 99)),
        "recall": right / truth.size,
        "peak_gb": bytes_of("VmHWM") / 1e9,
        "children_gb": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024 / 1e9,
        "load": os.getloadavg()[0],
    }
    print(json.dumps(row))


if __name__ == "__main__":
    main()
