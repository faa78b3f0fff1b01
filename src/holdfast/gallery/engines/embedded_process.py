"""What the embedded engine has done by another process, which runs this file: create, index or try a collection.

qdrant-edge holds Python's global lock during every call. An index takes minutes for a large collection, and a new
collection about 0.1 s of waiting for the disk. No thread of the gallery's process could search meanwhile. A collection
that may be damaged is loaded here first: a crash ends only this process.

This file imports nothing of Holdfast, so that the process starts quickly.
"""

import contextlib
import ctypes
import json
import os
import sys
import time
from collections.abc import Iterable, Mapping
from typing import Any

M, EF_CONSTRUCT = 16, 100
"""Edges per node, candidates when building."""

# In kB. An index of any number of vectors is one segment: every segment would be searched separately.
_INDEX_FROM, _LARGEST_SEGMENT = 1, 1 << 30
# In kB of vectors that are searched, all or those that match a filter: fewer are compared one by one instead of
# searching the graph.
_FULL_SCAN_BELOW = 50_000
NOT_LOADED = 3
"""Exit status: a collection cannot be loaded."""
LOCKED = "WouldBlock"
"""In what qdrant-edge says of a collection that another process has loaded."""
_LOCKED_S = 2.0
"""Seconds before a collection counts as loaded by another process."""


def create_collection(edge: Any, path: str, dim: int) -> None:
    """Create an empty collection for vectors of ``dim`` numbers in an empty folder.

    edge: the module ``qdrant_edge``.
    """
    config = edge.EdgeConfig(
        vectors=_vectors(edge, dim),
        hnsw_config=edge.HnswIndexConfig(
            m=M, ef_construct=EF_CONSTRUCT, full_scan_threshold=_FULL_SCAN_BELOW, max_indexing_threads=0
        ),
        optimizers=edge.EdgeOptimizersConfig(
            default_segment_number=1, max_segment_size=_LARGEST_SEGMENT, indexing_threshold=_INDEX_FROM
        ),
    )
    shard = edge.EdgeShard.create(path, config)
    shard.flush()
    shard.close()


def _vectors(edge: Any, dim: int, *, on_disk: bool = False) -> Any:
    return edge.EdgeVectorParams(size=dim, distance=edge.Distance.Dot, on_disk=on_disk)


def index_collection(edge: Any, path: str) -> None:
    """Index all vectors of a collection, and the fields that have no index yet.

    In a large collection the graph compares copies of the vectors with 4 bits for each number, which takes about half
    the time. The best that are found are compared again in float32. The copies are rotated first, so that a few numbers
    that are much larger than the others do not take all of the 4 bits. The copies are in memory. A float32 vector is
    first read from the disk when it is compared: with 100,000 of 512 numbers a process takes 130 MB less.
    """
    shard = load_collection(edge, path)
    dim = _dim(edge, shard)
    if 4 * dim * shard.info().points_count > 1000 * _FULL_SCAN_BELOW:
        shard.close()
        four_bits = edge.TurboQuantQuantizationConfig(bits=edge.TurboQuantBitSize.Bits4)
        vectors = _vectors(edge, dim, on_disk=True)
        config = edge.EdgeConfig(vectors=vectors, quantization_config=four_bits)
        shard = edge.EdgeShard.load(path, config)
    shard.optimize()
    index_fields(edge, shard, _fields(edge, shard))  # after ``optimize``, which would make new ones twice
    shard.flush()
    shard.close()


def load_collection(edge: Any, path: str) -> Any:
    """Load a collection.

    If the gallery's process was killed while another one tried the collection, that one ends a moment later, and
    keeps the collection locked until then.
    """
    until = time.monotonic() + _LOCKED_S
    while True:
        try:
            return edge.EdgeShard.load(path)
        except Exception as error:
            if LOCKED not in str(error) or time.monotonic() > until:
                raise
            time.sleep(0.02)


def try_loading(edge: Any, path: str, memory: int, file_size: int) -> None:
    """Load a collection and close it. Ends this process with ``NOT_LOADED`` and the reason if that raises.

    memory, file_size: limits in bytes, of the address space and of each file that is written. Beyond them a call
        raises, or this process aborts. On systems other than Linux there may be no limit.
    """
    with contextlib.suppress(AttributeError, ImportError, OSError, ValueError):
        import resource

        ctypes.CDLL(None).mallopt(-8, 1)  # M_ARENA_MAX: each thread would reserve 64 MiB of addresses
        limits = {resource.RLIMIT_CORE: 0, resource.RLIMIT_FSIZE: file_size, resource.RLIMIT_AS: memory}
        for kind, limit in limits.items():
            resource.setrlimit(kind, (limit, resource.getrlimit(kind)[1]))
    try:
        load_collection(edge, path).close()
    except BaseException as error:  # a panic of Rust is not an Exception
        sys.stdout.write((str(error).strip().splitlines() or [type(error).__name__])[0])
        sys.exit(NOT_LOADED)


def _dim(edge: Any, shard: Any) -> int:
    """Numbers in a vector; 0 if there are no vectors."""
    records, _ = shard.scroll(edge.ScrollRequest(limit=1, with_payload=False, with_vector=True))
    return len(records[0].vector) if records else 0


def indexed_fields(edge: Any, shard: Any) -> dict[str, type]:
    """The type, str or float, of every field that has an index."""
    kinds = {edge.PayloadSchemaType.Keyword: str, edge.PayloadSchemaType.Float: float}
    found = {name: info.data_type for name, info in shard.info().payload_schema.items()}
    return {name: kind for name, given in found.items() for known, kind in kinds.items() if given == known}


def index_fields(edge: Any, shard: Any, fields: dict[str, type]) -> None:
    """Index fields by which searches may be filtered, so that the matching vectors are found without reading all.

    Edges between vectors with equal values are not added to the graph: few matching vectors are compared one by one,
    and many are found by a wider search of the graph.
    """
    known = indexed_fields(edge, shard)
    for name, kind in fields.items():
        if name not in known:
            params = edge.KeywordIndexParams if kind is str else edge.FloatIndexParams
            shard.update(edge.UpdateOperation.create_field_index(name, params(enable_hnsw=False, on_disk=True)))


def field_types(payloads: Iterable[Mapping[str, Any]]) -> dict[str, type]:
    """The type, str or float, of the first value of each field."""
    found: dict[str, type] = {}
    for payload in payloads:
        for name, value in payload.items():
            found.setdefault(name, str if isinstance(value, str) else float)
    return found


def _fields(edge: Any, shard: Any) -> dict[str, type]:
    found: dict[str, type] = {}
    start: int | None = 0
    while start is not None:
        request = edge.ScrollRequest(offset=start, limit=10_000, with_payload=True, with_vector=False)
        records, start = shard.scroll(request)
        found = {**field_types(record.payload or {} for record in records), **found}
    return found


def _end_with_parent(parent: int) -> None:
    """On Linux this process is killed when its parent ends (prctl 1 is PR_SET_PDEATHSIG), also if it has ended."""
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).prctl(1, 9)
    if os.getppid() != parent:
        sys.exit(1)


def _main() -> None:
    search_path, parent, task, path, *numbers = sys.argv[1:]
    _end_with_parent(int(parent))
    sys.path[:] = json.loads(search_path)
    import qdrant_edge

    if task == "create":
        create_collection(qdrant_edge, path, int(numbers[0]))
        return
    if task == "load":
        try_loading(qdrant_edge, path, *map(int, numbers))
        return
    with contextlib.suppress(OSError):
        os.nice(10)  # favours searches
    index_collection(qdrant_edge, path)


if __name__ == "__main__":
    _main()
