"""What the embedded engine has done by another process, which runs this file: create a collection, or index one.

qdrant-edge holds Python's global lock during every call. An index takes minutes for a large collection, and a new
collection about 0.1 s of waiting for the disk. No thread of the gallery's process could search meanwhile.

This file imports nothing of Holdfast, so that the process starts quickly.
"""

import contextlib
import ctypes
import json
import os
import sys
from typing import Any

M, EF_CONSTRUCT = 16, 100
"""Edges per node, candidates when building."""

# In kB. An index of any number of vectors is one segment: every segment would be searched separately.
_INDEX_FROM, _LARGEST_SEGMENT = 1, 1 << 30
# In kB of vectors that match a filter: fewer are compared one by one instead of searching the graph.
_FULL_SCAN_BELOW = 10_000


def create_collection(edge: Any, path: str, dim: int) -> None:
    """Create an empty collection for vectors of ``dim`` numbers in an empty folder.

    edge: the module ``qdrant_edge``.
    """
    config = edge.EdgeConfig(
        vectors=edge.EdgeVectorParams(size=dim, distance=edge.Distance.Dot),
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


def index_collection(edge: Any, path: str) -> None:
    """Index all vectors of a collection."""
    shard = edge.EdgeShard.load(path)
    shard.optimize()
    shard.flush()
    shard.close()


def _end_with_parent() -> None:
    """On Linux this process is killed when its parent ends (prctl 1 is PR_SET_PDEATHSIG)."""
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).prctl(1, 9)


def _main() -> None:
    search_path, task, path, *numbers = sys.argv[1:]
    _end_with_parent()
    sys.path[:] = json.loads(search_path)
    import qdrant_edge

    if task == "create":
        create_collection(qdrant_edge, path, int(numbers[0]))
        return
    with contextlib.suppress(OSError):
        os.nice(10)  # favours searches
    index_collection(qdrant_edge, path)


if __name__ == "__main__":
    _main()
