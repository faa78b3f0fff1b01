"""Time and peak memory of ``holdfast.compare`` on a large index.

    python bench/compare.py [--items 1000000] [--dim 768] [--queries 1000] [--folder DIR] [--json FILE]

Two files of random vectors (3 GB each at the default size) are written and removed at the end. The new model's
vectors are a turned copy of the old one's with noise, and each query asks for one item. The comparison runs in a
process of its own.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from process_memory import bytes_of

from holdfast.core.environment import describe
from holdfast.core.storage import write_json

_BLOCK = 50_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=1_000_000)
    parser.add_argument("--dim", type=int, default=768)
    parser.add_argument("--queries", type=int, default=1000)
    parser.add_argument("--folder", type=Path, help="where the files go; a temporary folder by default")
    parser.add_argument("--json", help="also write the figures to this file")
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        measure(options.folder)
        return
    folder = Path(tempfile.mkdtemp(prefix="holdfast-bench-", dir=options.folder))
    try:
        write_files(folder, options.items, options.dim, options.queries)
        command = [sys.executable, __file__, "--measure", "--folder", str(folder)]
        figures = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    finally:
        shutil.rmtree(folder)
    record = {
        "kind": "bench compare", "items": options.items, "dim": options.dim, "queries": options.queries, **figures,
        "environment": describe("cpu"),
    }  # fmt: skip
    print(f"{options.items:,} x {options.dim}, {options.queries:,} queries: {figures['seconds']:.0f} s, "
          f"peak {figures['peak_gb']:.2f} GB; {figures['verdict']}")  # fmt: skip
    if options.json:
        write_json(Path(options.json), record)


def write_files(folder: Path, items: int, dim: int, queries: int) -> None:
    draw = np.random.default_rng(0)
    turn = np.linalg.qr(draw.standard_normal((dim, dim)))[0].astype(np.float32)
    asked = np.sort(draw.choice(items, queries, replace=False))
    arrays = {
        name: np.lib.format.open_memmap(folder / f"{name}.npy", "w+", np.float32, (items, dim))
        for name in ("old", "new")
    }
    rows: dict[str, list[np.ndarray]] = {"old": [], "new": []}
    for start in range(0, items, _BLOCK):
        stop = min(start + _BLOCK, items)
        vectors = draw.standard_normal((stop - start, dim), dtype=np.float32)
        here = asked[(asked >= start) & (asked < stop)] - start
        for name, matrix, noise in (("old", None, 1.0), ("new", turn, 0.5)):
            given = vectors if matrix is None else vectors @ matrix
            arrays[name][start:stop] = given + noise * draw.standard_normal(given.shape, dtype=np.float32)
            wanted = vectors[here] if matrix is None else vectors[here] @ matrix
            rows[name].append(wanted + 2 * noise * draw.standard_normal(wanted.shape, dtype=np.float32))
    for name, array in arrays.items():
        array.flush()
        np.save(folder / f"{name}-queries.npy", np.concatenate(rows[name]))
    write_json(folder / "asked.json", asked.tolist())


def measure(folder: Path) -> None:
    from holdfast import compare

    asked = json.loads((folder / "asked.json").read_text())
    begin = time.perf_counter()
    files = [folder / "old.npy", folder / "new.npy", folder / "old-queries.npy", folder / "new-queries.npy"]
    result = compare(*files, relevance=[(str(query), str(item)) for query, item in enumerate(asked)])
    figures = {"seconds": time.perf_counter() - begin, "peak_gb": bytes_of("VmHWM") / 1e9, "verdict": result.verdict}
    print(json.dumps({**figures, "reason": result.reason}))


if __name__ == "__main__":
    main()
