"""The compatibility matrix against the bare arithmetic it needs.

    python bench/evaluation.py [--models 31] [--queries 50000] [--gallery 10000] [--dim 99] [--measured 2]
                               [--repeats 3] [--device auto] [--json FILE]

Random unit features of the size of CIFAR10 under K = 100. ``measured`` models are put through ``compatibility_matrix``
and, in the same run, through nothing but a matrix product and an argmax per cell; the time for all ``models`` follows
from the number of cells.
"""

import argparse
import statistics
from collections.abc import Callable

import numpy as np
import torch
from timing import timed, write_figures

from holdfast.core.environment import describe
from holdfast.train.devices import resolve_device
from holdfast.train.evaluation import compatibility_matrix


def main() -> None:
    parser = argparse.ArgumentParser(description="The compatibility matrix, timed.")
    parser.add_argument("--models", type=int, default=31)
    parser.add_argument("--queries", type=int, default=50_000)
    parser.add_argument("--gallery", type=int, default=10_000)
    parser.add_argument("--dim", type=int, default=99)
    parser.add_argument("--measured", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--json", help="also write the figures to this file")
    options = parser.parse_args()
    device = resolve_device(options.device)
    rng = np.random.default_rng(0)

    def features(rows: int) -> np.ndarray:
        z = rng.standard_normal((rows, options.dim)).astype(np.float32)
        return z / np.linalg.norm(z, axis=1, keepdims=True)

    models = [(features(options.queries), features(options.gallery)) for _ in range(options.measured)]
    labels = rng.integers(0, 10, options.queries), rng.integers(0, 10, options.gallery)
    measured_cells = options.measured * (options.measured + 1) // 2
    all_cells = options.models * (options.models + 1) // 2

    def matrix(protocol: str) -> Callable[[], object]:
        return lambda: compatibility_matrix(models, *labels, protocol=protocol, device=device)

    work = {"bare product and argmax": lambda: bare(models, device)}
    work |= {protocol: matrix(protocol) for protocol in ("instance", "template")}
    environment = describe(str(device))
    where = environment["gpu"] or environment["processor"]
    print(f"{where}, {torch.get_num_threads()} threads, torch {torch.__version__}, {options.repeats} repeats")
    print(f"{options.queries} queries, {options.gallery} gallery images, d = {options.dim}, {measured_cells} cells")
    rows = {}
    for name, run in work.items():
        run()
        times = [timed(run, 1, device) / 1000 for _ in range(options.repeats)]
        cell = statistics.median(times) / measured_cells
        rows[name] = {"cell_s": cell, "min_s": min(times), "max_s": max(times), "all_cells_s": cell * all_cells}
        print(f"{name:24} {cell:8.3f} s per cell  (all: min {min(times):.2f}, max {max(times):.2f} s)   "
              f"T = {options.models}: {cell * all_cells:8.1f} s")  # fmt: skip
    ratio = rows["instance"]["cell_s"] / rows["bare product and argmax"]["cell_s"]
    print(f"instance protocol over bare arithmetic: {ratio:.2f} x")
    if options.json:
        write_figures(options.json, "evaluation", environment, options, rows=rows, ratio=ratio)


def bare(models: list, device: torch.device, chunk: int = 1677) -> None:
    """One product and one argmax per cell, in chunks of 64 MB of scores."""
    for t, (queries, _) in enumerate(models):
        query = torch.from_numpy(queries).to(device)
        for _, gallery in models[: t + 1]:
            transposed = torch.from_numpy(gallery).to(device).T
            for block in query.split(chunk):
                (block @ transposed).argmax(1)


if __name__ == "__main__":
    main()
