"""The d-Simplex without its matrix: time and memory against the dense product, at the paper's largest size.

    python bench/simplex.py [--classes 22000] [--batch 320] [--repeats 9] [--json FILE]

Forward and backward, float32, medians over repeats after one warm-up: of the logits alone, and of the whole
cross-entropy. The dense product is measured in the same run with its matrix already built. Peak memory is that of a
fresh process each, with the cross-entropy (Linux).
"""

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from process_memory import bytes_of
from torch import Tensor
from torch.nn import functional as F

from holdfast.core.environment import describe
from holdfast.core.storage import write_json
from holdfast.train.geometry import DSimplex


def main() -> None:
    parser = argparse.ArgumentParser(description="The d-Simplex without its matrix, timed.")
    parser.add_argument("--classes", type=int, default=22_000)
    parser.add_argument("--batch", type=int, default=320)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--json", help="also write the figures to this file")
    parser.add_argument("--peak-of", choices=("implicit", "dense"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peak_of:
        print(peak_bytes(options.peak_of, options.classes, options.batch))
        return
    result = measure(options.classes, options.batch, options.repeats)
    environment = describe("cpu")
    print(f"{environment['processor']}, {torch.get_num_threads()} threads, torch {torch.__version__}")
    print(f"K = {options.classes}, batch {options.batch}, float32, {options.repeats} repeats")
    for what in ("logits", "cross_entropy"):
        for name in ("implicit", "dense"):
            row = result[what][name]
            spread = f"min {row['min_ms']:.2f}, max {row['max_ms']:.2f}"
            print(f"{what:13} {name:9} {row['median_ms']:9.2f} ms  ({spread})")
        print(f"{what:13} speed-up  {result[what]['speed_up']:9.1f} x")
    for name, size in result["peak_mb"].items():
        print(f"peak memory   {name:9} {size:9.0f} MB")
    print(f"largest difference of the logits {result['difference']:.1e}")
    if options.json:
        write_json(Path(options.json), {"bench": "simplex", "environment": environment, **result})


def measure(classes: int, batch: int, repeats: int) -> dict:
    torch.manual_seed(0)
    z = torch.randn(batch, classes - 1)
    labels = torch.randint(0, classes, (batch,))
    simplex = DSimplex(classes)
    matrix = simplex.dense(dtype=torch.float32)
    result: dict = {"classes": classes, "batch": batch, "repeats": repeats, "threads": torch.get_num_threads()}
    result["difference"] = (simplex.logits(z) - z @ matrix.T).abs().max().item()
    upstream = torch.randn(batch, classes)
    ends = {
        "logits": lambda logits: logits.backward(upstream),
        "cross_entropy": lambda logits: F.cross_entropy(logits, labels).backward(),
    }
    for what, end in ends.items():
        result[what] = {
            "implicit": timed(simplex.logits, end, z, repeats),
            "dense": timed(lambda z: z @ matrix.T, end, z, repeats),
        }
        result[what]["speed_up"] = result[what]["dense"]["median_ms"] / result[what]["implicit"]["median_ms"]
    result["peak_mb"] = {name: peak_in_fresh_process(name, classes, batch) / 1e6 for name in ("implicit", "dense")}
    return result


def timed(
    logits: Callable[[Tensor], Tensor], end: Callable[[Tensor], None], z: Tensor, repeats: int
) -> dict[str, float]:
    times = []
    for _ in range(repeats + 1):
        leaf = z.clone().requires_grad_()
        start = time.perf_counter()
        end(logits(leaf))
        times.append(1000 * (time.perf_counter() - start))
    kept = times[1:]
    return {"median_ms": statistics.median(kept), "min_ms": min(kept), "max_ms": max(kept)}


def peak_in_fresh_process(name: str, classes: int, batch: int) -> int:
    command = [sys.executable, __file__, "--peak-of", name, "--classes", str(classes), "--batch", str(batch)]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def peak_bytes(name: str, classes: int, batch: int) -> int:
    """How far the process grows beyond its inputs while one step runs."""
    z = torch.randn(batch, classes - 1, requires_grad=True)
    labels = torch.randint(0, classes, (batch,))
    simplex = DSimplex(classes)
    F.cross_entropy(torch.zeros(batch, classes), labels)  # what the first call of anything allocates
    before = bytes_of("VmHWM")
    logits = simplex.logits(z) if name == "implicit" else z @ simplex.dense(dtype=torch.float32).T
    F.cross_entropy(logits, labels).backward()
    return bytes_of("VmHWM") - before


if __name__ == "__main__":
    main()
