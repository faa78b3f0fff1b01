"""A million items in one, two and five versions, beside the engines alone: ingest, index, memory, disk, searches.

    python bench/scale.py [--items 1000000] [--dim 512] [--cases embedded-1 embedded-5 postgresql-1 faiss]
                          [--queries 500] [--batch 2000] [--features FILE.npy] [--folder DIR] [--lock FILE]
                          [--json FILE]

A case is an engine and a number of versions. Items are split evenly between the versions. The vectors of each version
are the same features, rotated at random and with noise, as another model would give them; each version is registered
with bridges from 2,000 items of each older one, and queries are vectors of the newest version. Without --features the
features are made up: 1,000 classes in 32 dimensions, scattered, and led to --dim by a random layer with ReLU. With it
the rows of the file are repeated with noise; with --dim they are first reduced to so many numbers, by their largest
singular values.

Searches are for the 10 nearest, one by one, also with a filter that keeps one item in a hundred. With one version, the
engine alone answers the same queries from the same files or table, in turn with the gallery, 100 queries at a time:
qdrant-edge's own search, in float32 and by 4-bit copies, and one SQL statement that uses the same index. ``faiss`` is
an HNSW index of all items in memory. All have 16 edges per node, 100 candidates to build and 128 to search. Recall is
against exact search by the same scores.

PostgreSQL is the server of the dev extra, with 4 GB of shared buffers. --lock: a file that is locked
while searches are timed, for other work on the machine to wait for. Needs the dev extra.
"""

import argparse
import contextlib
import fcntl
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from process_memory import bytes_of
from timing import write_figures

from holdfast.core.environment import describe

K, PAIRS, PARTS, WARM, BLOCK = 10, 2000, 100, 50, 100
Search = Callable[[np.ndarray], list[int]]
FILTER = {"part": 7}


def main() -> None:
    parser = argparse.ArgumentParser(description="A gallery of many items in several versions, beside plain engines.")
    parser.add_argument("--items", type=int, default=1_000_000)
    parser.add_argument("--dim", type=int, help="numbers of a vector; default: 512, or those of --features")
    parser.add_argument("--cases", nargs="+", default=["embedded-1", "embedded-2", "embedded-5", "faiss"])
    parser.add_argument("--queries", type=int, default=500)
    parser.add_argument("--exact-queries", type=int, default=100, help="queries on which recall is measured")
    parser.add_argument("--batch", type=int, default=2000)
    parser.add_argument("--features", type=Path, help="rows of features, .npy; repeated with noise")
    parser.add_argument("--folder", type=Path, help="where everything goes; a temporary folder by default")
    parser.add_argument("--keep", action="store_true", help="do not delete the galleries on the embedded engine")
    parser.add_argument("--reuse", type=Path, help="a folder that --keep left: what is in it is not built again")
    parser.add_argument("--lock", type=Path, help="a file to lock while searches are timed")
    parser.add_argument("--json", type=Path, help="also write the figures to this file, after every case")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    parser.add_argument("--url", default="embedded", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.case:
        print(json.dumps(run_case(options)))
        return
    options.dim = numbers_of_a_vector(options)
    environment, load = describe("cpu"), os.getloadavg()
    folder = options.reuse or Path(tempfile.mkdtemp(prefix="holdfast-bench-", dir=options.folder))
    rows: dict[str, Any] = earlier_rows(options)
    try:
        if options.reuse is None:
            write_features(folder, options)
        for case in options.cases:
            row = in_a_process(case, folder, options)
            rows[case] = {**row, "commit": environment["commit"], "time": environment["time"]}
            print(f"{case}:")
            for name, value in row.items():
                print(f"  {name}: {value if not isinstance(value, float) else round(value, 3)}", flush=True)
            if options.json:
                made_of = "made up" if options.features is None else options.features.name
                given = argparse.Namespace(**{**vars(options), "features": made_of})
                write_figures(str(options.json), "scale", environment, given, load=load, rows=rows)
    finally:
        if not options.keep and options.reuse is None:
            shutil.rmtree(folder)


def numbers_of_a_vector(options: argparse.Namespace) -> int:
    given = options.features if options.reuse is None else options.reuse / "items.npy"
    if given is None:
        return options.dim or 512
    width = int(np.load(given, mmap_mode="r").shape[1])
    return min(options.dim or width, width)


def earlier_rows(options: argparse.Namespace) -> dict[str, Any]:
    """The rows of other cases in the file that is written to, if it is about the same vectors."""
    if options.json is None or not options.json.exists():
        return {}
    record = json.loads(options.json.read_text(encoding="utf-8"))
    rows: dict[str, Any] = record["rows"] if (record["items"], record["dim"]) == (options.items, options.dim) else {}
    return rows


def write_features(folder: Path, options: argparse.Namespace) -> None:
    """Unit rows of the items and of the queries, in items.npy and queries.npy."""
    rng = np.random.default_rng(0)
    count = options.items + options.queries
    if options.features is None:
        centres = rng.standard_normal((1000, 32), dtype=np.float32)
        layer = rng.standard_normal((32, options.dim), dtype=np.float32)

        def block(size: int) -> np.ndarray:
            near = centres[rng.integers(0, len(centres), size)]
            latent = near + 0.7 * rng.standard_normal(near.shape, dtype=np.float32)
            return np.maximum(latent @ layer, 0)
    else:
        given = np.load(options.features).astype(np.float32)
        given /= np.linalg.norm(given, axis=1, keepdims=True)
        if options.dim < given.shape[1]:
            given = given @ np.linalg.svd(given, full_matrices=False)[2][: options.dim].T
            given /= np.linalg.norm(given, axis=1, keepdims=True)

        def block(size: int) -> np.ndarray:
            near = given[rng.integers(0, len(given), size)]
            return near + 0.3 * rng.standard_normal(near.shape, dtype=np.float32) / options.dim**0.5

    items = np.lib.format.open_memmap(
        folder / "items.npy", mode="w+", dtype=np.float32, shape=(options.items, options.dim)
    )
    queries = np.empty((options.queries, options.dim), dtype=np.float32)
    for start in range(0, count, 20_000):
        rows = block(min(20_000, count - start))
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        own = max(0, min(len(rows), options.queries - start))
        queries[start : start + own] = rows[:own]
        first = max(0, start - options.queries)
        items[first : first + len(rows) - own] = rows[own:]
    items.flush()
    np.save(folder / "queries.npy", queries)


def in_a_process(case: str, folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """The figures of one case. Each case has its own process, so that memory is measured per case."""
    server = own_server() if case.startswith("postgresql") else None
    words = [sys.executable, __file__, "--case", case, "--folder", str(folder)]
    for name in ("queries", "exact_queries", "batch"):
        words += [f"--{name.replace('_', '-')}", str(getattr(options, name))]
    words += [] if options.lock is None else ["--lock", str(options.lock)]
    words += [] if server is None else ["--url", server.url]
    try:
        done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True)
    finally:
        if server is not None:
            server.remove()
        if not options.keep and options.reuse is None:
            shutil.rmtree(folder / case, ignore_errors=True)
    measured: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return measured


def own_server() -> Any:
    sys.path.append(str(Path(__file__).parents[1] / "tests" / "gallery"))
    from postgres_server import PostgresServer

    return PostgresServer("-c shared_buffers=4GB -c max_wal_size=16GB")


def run_case(options: argparse.Namespace) -> dict[str, Any]:
    items = np.load(options.folder / "items.npy", mmap_mode="r")
    queries = np.load(options.folder / "queries.npy")
    work = options.folder / options.case
    work.mkdir(exist_ok=True)
    if options.case == "faiss":
        return with_faiss(items, queries, options)
    return with_gallery(items, queries, work, options)


def with_gallery(items: np.ndarray, queries: np.ndarray, work: Path, options: argparse.Namespace) -> dict[str, Any]:
    from holdfast import Gallery

    engine, _, versions = options.case.rpartition("-")
    spaces = [Space(items.shape[1], seed) for seed in range(int(versions))]
    if not (work / "built.json").exists() or engine != "embedded":  # a server of an earlier call is gone
        (work / "built.json").write_text(json.dumps(build_gallery(items, spaces, work, options)), encoding="utf-8")
    row: dict[str, Any] = json.loads((work / "built.json").read_text(encoding="utf-8"))
    began = time.perf_counter()
    gallery = Gallery.open(work / "gallery", device="cpu")
    row["open_s"] = time.perf_counter() - began
    row["closed_disk_gb"] = gallery.stats()["bytes_on_disk"] / 1e9 if engine == "embedded" else row["disk_gb"]
    asked = spaces[-1](queries)

    def search(**how: Any) -> Search:
        return lambda query: [int(hit.id) for hit in gallery.search(vector=query, k=K, **how)]

    sides = {"gallery": search(), "filtered": search(filter=FILTER)}
    exact = {"gallery": search(exact=True), "filtered": search(exact=True, filter=FILTER)}
    with contextlib.ExitStack() as open_until:
        if len(spaces) == 1:
            plain = plain_edge if engine == "embedded" else plain_sql
            sides |= open_until.enter_context(plain(work, options, gallery.newest().collection))
        row |= measure(sides, exact, asked, options)
    row["searching_gb"] = bytes_of("VmRSS") / 1e9
    row["load"] = os.getloadavg()[0]
    gallery.close()
    return row


def build_gallery(
    items: np.ndarray, spaces: Sequence["Space"], work: Path, options: argparse.Namespace
) -> dict[str, Any]:
    """Store all items in as many versions as there are spaces, and index them; the figures of that."""
    from holdfast import Gallery
    from holdfast.gallery import state

    state.INDEX_FROM = len(items) + 1  # so that storing and indexing are timed apart
    models = write_models(work, items.shape[1], len(spaces))
    gallery = Gallery.create(work / "gallery", models[0], engine=options.url, device="cpu")
    ends = np.linspace(0, len(items), len(spaces) + 1).astype(int)
    stored_s = registered_s = 0.0
    for number, (space, start, end) in enumerate(zip(spaces, ends, ends[1:], strict=False)):
        if number:
            registered_s += register(gallery, models[number], items[: ends[number]], space)
        stored_s += store(gallery, items, space, range(start, end), options.batch)
    began, cpu = time.perf_counter(), processor_time_of_children()
    gallery.build_index()
    row: dict[str, Any] = {
        "versions": len(spaces),
        "stored_per_s": len(items) / stored_s,
        "register_s": registered_s,
        "index_s": time.perf_counter() - began,
        "index_cpu_s": processor_time_of_children() - cpu,
        "index_gb": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024 / 1e9,
        "storing_gb": bytes_of("VmHWM") / 1e9,
    }
    # Before the gallery is closed: the embedded engine still has the files that the index replaced.
    on_server = options.url != "embedded"
    row["disk_gb"] = (server_bytes(options) if on_server else gallery.stats()["bytes_on_disk"]) / 1e9
    gallery.close()
    return row


def with_faiss(items: np.ndarray, queries: np.ndarray, options: argparse.Namespace) -> dict[str, Any]:
    import faiss

    from holdfast.gallery.engines.embedded_engine import EF_SEARCH
    from holdfast.gallery.engines.embedded_process import EF_CONSTRUCT, M

    index = faiss.IndexHNSWFlat(items.shape[1], M, faiss.METRIC_INNER_PRODUCT)
    index.hnsw.efConstruction, index.hnsw.efSearch = EF_CONSTRUCT, EF_SEARCH
    began = time.perf_counter()
    for start in range(0, len(items), 50_000):
        index.add(np.ascontiguousarray(items[start : start + 50_000]))
    row: dict[str, Any] = {"index_s": time.perf_counter() - began, "searching_gb": bytes_of("VmRSS") / 1e9}

    def exact(query: np.ndarray) -> list[int]:
        return np.argsort(-(items @ query))[:K].tolist()

    faiss.omp_set_num_threads(1)
    search = {"plain": lambda query: index.search(query[None], K)[1][0].tolist()}
    return {**row, **measure(search, {"plain": exact}, queries, options), "load": os.getloadavg()[0]}


class Space:
    """A model's view of the features: a rotation, and noise that differs between models."""

    def __init__(self, dim: int, seed: int) -> None:
        self._noise = np.random.default_rng(1000 + seed)
        self._scale = 0.1 / dim**0.5 if seed else 0.0
        turned = np.linalg.qr(np.random.default_rng(seed).standard_normal((dim, dim)))[0]
        self._rotation = turned.astype(np.float32) if seed else None

    def __call__(self, rows: np.ndarray) -> np.ndarray:
        if self._rotation is None:
            return np.asarray(rows)
        found = rows @ self._rotation
        found += self._scale * self._noise.standard_normal(found.shape, dtype=np.float32)
        return found / np.linalg.norm(found, axis=1, keepdims=True)


def write_models(work: Path, dim: int, count: int) -> list[Path]:
    import torch

    from holdfast import Encoder, Preprocess, build_backbone

    preprocess = Preprocess(size=28, mean=(0.5,), std=(0.5,), colour="grey")
    made = []
    for seed in range(count):
        torch.manual_seed(seed)
        backbone = build_backbone("small", width=dim // 4)
        Encoder(backbone, preprocess=preprocess).save_pretrained(work / f"model{seed}")
        made.append(work / f"model{seed}")
    return made


def store(gallery: Any, items: np.ndarray, space: Space, rows: Sequence[int], batch: int) -> float:
    """Seconds to store these items in the newest version."""
    from holdfast.gallery import Item

    seconds = 0.0
    for start in range(rows[0], rows[-1] + 1, 50_000):
        end = min(rows[-1] + 1, start + 50_000)
        vectors = space(items[start:end])
        began = time.perf_counter()
        gallery.add(
            (Item(str(start + i), vector=row, metadata={"part": (start + i) % PARTS}) for i, row in enumerate(vectors)),
            batch_size=batch,
        )
        seconds += time.perf_counter() - began
    return seconds


def register(gallery: Any, model: Path, items: np.ndarray, space: Space) -> float:
    """Seconds to register a model with bridges from some items of every older version."""
    from holdfast.vectors import feature_set

    versions = len(gallery.versions())
    rows = np.unique(np.linspace(0, len(items) - 1, PAIRS * versions).astype(int))
    pairs = feature_set("pairs", space(items[rows]), ids=[str(row) for row in rows])
    began = time.perf_counter()
    gallery.register(model, force=True, bridge="rotation", new_vectors=pairs)
    return time.perf_counter() - began


@contextlib.contextmanager
def plain_edge(work: Path, options: argparse.Namespace, collection: str) -> Iterator[dict[str, Search]]:
    """qdrant-edge on a copy of the gallery's files: in float32, as by default, and by the 4-bit copies."""
    import qdrant_edge as edge

    from holdfast.gallery.engines.embedded_engine import EF_SEARCH, RESCORED_PER_HIT

    (files,) = (work / "gallery" / "vectors").glob(f"{collection}.*")
    shutil.rmtree(work / "plain", ignore_errors=True)  # of an earlier call with --keep
    shutil.copytree(files, work / "plain")
    shard = edge.EdgeShard.load(str(work / "plain"))

    def searched_by(copies: Any) -> Search:
        params = edge.SearchParams(hnsw_ef=EF_SEARCH, quantization=copies)

        def search(query: np.ndarray) -> list[int]:
            request = edge.SearchRequest(
                query=edge.Query.Nearest(query.tolist()), limit=K, params=params, with_payload=False, with_vector=False
            )
            return [point.id - 1 for point in shard.search(request)]

        return search

    yield {
        "plain": searched_by(edge.QuantizationSearchParams(ignore=True)),
        "plain_4_bits": searched_by(edge.QuantizationSearchParams(rescore=True, oversampling=RESCORED_PER_HIT)),
    }
    shard.close()


@contextlib.contextmanager
def plain_sql(work: Path, options: argparse.Namespace, collection: str) -> Iterator[dict[str, Search]]:
    """One SQL statement on the gallery's table and index, as somebody with only pgvector would write it."""
    import psycopg

    from holdfast.gallery.engines.postgres_engine import EF_SEARCH

    with psycopg.connect(options.url, autocommit=True) as connection:
        found = "SELECT schemaname FROM pg_tables WHERE tablename = %s"
        (schema,) = connection.execute(found, (collection,)).fetchone() or ("",)
        dim = np.load(options.folder / "queries.npy", mmap_mode="r").shape[1]
        connection.execute(f"SET hnsw.ef_search = {EF_SEARCH}")
        statement = (
            f'SELECT key FROM "{schema}"."{collection}" ORDER BY vector::halfvec({dim}) <#> %s::halfvec({dim}) '
            f"LIMIT {K}"
        )

        def search(query: np.ndarray) -> list[int]:
            text = "[" + ",".join(map(str, query.tolist())) + "]"
            return [key - 1 for (key,) in connection.execute(statement, (text,)).fetchall()]

        yield {"plain": search}


def server_bytes(options: argparse.Namespace) -> float:
    import psycopg

    with psycopg.connect(options.url) as connection:
        (size,) = connection.execute("SELECT pg_database_size(current_database())").fetchone() or (0,)
    return float(size)


def measure(
    sides: dict[str, Search], exact: dict[str, Search], queries: np.ndarray, options: argparse.Namespace
) -> dict[str, Any]:
    """Times of all sides and their recall. ``plain`` is judged by the exact search of the first side.

    Each side answers ``BLOCK`` queries before it is the next one's turn, so that no side finds the processor's caches
    full of another one's data at every query.
    """
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    answers: dict[str, list[list[int]]] = {name: [] for name in sides}
    with locked(options.lock):
        for query in queries[:WARM]:
            for search in sides.values():
                search(query)
        for start in range(0, len(queries), BLOCK):
            for name, search in sides.items():
                for query in queries[start : start + BLOCK]:
                    began = time.perf_counter()
                    found = search(query)
                    seconds[name].append(time.perf_counter() - began)
                    answers[name].append(found)
    row: dict[str, Any] = {}
    truth = {name: [set(search(query)) for query in queries[: options.exact_queries]] for name, search in exact.items()}
    for name, times in seconds.items():
        right = truth.get(name, next(iter(truth.values())))
        hits = sum(len(best & set(found)) for best, found in zip(right, answers[name], strict=False))
        row[name] = {
            "p50_ms": 1e3 * float(np.percentile(times, 50)),
            "p99_ms": 1e3 * float(np.percentile(times, 99)),
            "recall": hits / sum(len(best) for best in right),
        }
    return row


@contextlib.contextmanager
def locked(path: Path | None) -> Iterator[None]:
    if path is None:
        yield
        return
    with open(path, "a", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def processor_time_of_children() -> float:
    """Seconds of all processes that this one has started and that have ended; the embedded engine's index builder."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
