"""What ``holdfast.Upgrade`` adds to a search of the old index if all candidates are cached; the cache in GB.

    python bench/upgrade.py [--items 1000000] [--dim 512] [--searches 2000] [--folder DIR] [--json FILE]

The cache holds a new vector of every item. The store answers at once, from candidates drawn beforehand, so that what is
timed is what is added: reading 50 vectors, scoring and sorting. The page cache is warm for the part that was written
last.
"""

import argparse
import json
import os
import shutil
import tempfile
import time
from pathlib import Path

import numpy as np
from process_memory import bytes_of

from holdfast import NewVectors, Upgrade
from holdfast.core.environment import describe
from holdfast.core.storage import write_json

_BLOCK, _CANDIDATES = 10_000, 50


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=1_000_000)
    parser.add_argument("--dim", type=int, default=512)
    parser.add_argument("--searches", type=int, default=2000)
    parser.add_argument("--folder", type=Path, help="where the cache goes; a temporary folder by default")
    parser.add_argument("--json", help="also write the figures to this file")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="holdfast-bench-", dir=options.folder))
    try:
        record = measured(folder, options.items, options.dim, options.searches)
    finally:
        shutil.rmtree(folder)
    print(json.dumps(record, indent=1))
    if options.json:
        write_json(Path(options.json), {"kind": "bench upgrade", **record, "environment": describe("cpu")})


def measured(folder: Path, items: int, dim: int, searches: int) -> dict[str, float]:
    draw = np.random.default_rng(0)
    cache = NewVectors(folder / "cache.sqlite", most=items)
    begin = time.perf_counter()
    for start in range(0, items, _BLOCK):
        vectors = draw.standard_normal((min(_BLOCK, items - start), dim), dtype=np.float32)
        cache.put({(start + row, ""): vector for row, vector in enumerate(vectors)})
    filled = time.perf_counter() - begin
    before = bytes_of("RssAnon")
    queries = draw.standard_normal((searches, dim), dtype=np.float32)
    found = draw.integers(0, items, (searches, _CANDIDATES))
    scores = -np.sort(-draw.random((searches, _CANDIDATES)), axis=1)
    rows = [list(zip(names, row, strict=True)) for names, row in zip(found.tolist(), scores.tolist(), strict=True)]

    def search(vector: np.ndarray, count: int) -> list[tuple[int, float]]:
        return rows[int(vector[0])][:count]

    upgrade = Upgrade(
        search=search,
        embed_old=lambda numbers: np.array([[float(number)] for number in numbers]),
        embed_new=lambda numbers: queries[numbers],
        embed_items=lambda names: draw.standard_normal((len(names), dim)),
        cache=cache,
    )
    times: dict[float | None, list[float]] = {}
    cpu: list[float] = []  # of the processor: what other work on the machine does not lengthen
    for deadline in (None, 1.0):
        upgrade._deadline = deadline
        for number in range(searches):
            begin, begin_cpu = time.perf_counter(), time.process_time()
            answer = upgrade.search(number)
            times.setdefault(deadline, []).append(1000 * (time.perf_counter() - begin))
            if deadline is None:
                cpu.append(1000 * (time.process_time() - begin_cpu))
            assert answer.embedded == 0
    size = sum(file.stat().st_size for file in folder.iterdir())
    return {
        "items": items,
        "dim": dim,
        "searches": searches,
        "p50_ms": float(np.median(times[None])),
        "p95_ms": float(np.quantile(times[None], 0.95)),
        "p50_processor_ms": float(np.median(cpu)),
        "p50_ms_with_a_deadline": float(np.median(times[1.0])),
        "p95_ms_with_a_deadline": float(np.quantile(times[1.0], 0.95)),
        "fill_seconds": filled,
        "disk_gb": size / 1e9,
        "memory_added_by_searches_gb": (bytes_of("RssAnon") - before) / 1e9,
        "load": os.getloadavg()[0],
        "cores": os.cpu_count() or 0,
    }


if __name__ == "__main__":
    main()
