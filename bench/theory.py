"""Theorem 1 by Monte Carlo: seconds for a million samples in each of eleven dimensions up to 2048.

    python bench/theory.py [--samples 1000000] [--repeats 3] [--json FILE]

One thread. Wall-clock and processor seconds, medians over repeats; on a shared machine the second is what the code
costs. Also how far each estimate lies from the closed form, in standard errors.
"""

import argparse
import math
import statistics
import time
from pathlib import Path

from holdfast.core.environment import describe
from holdfast.core.storage import write_json
from papers.stationary.theorems import study_caps
from papers.stationary.theory_figures import DIMS


def main() -> None:
    parser = argparse.ArgumentParser(description="Theorem 1 by Monte Carlo, timed.")
    parser.add_argument("--samples", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", help="also write the figures to this file")
    options = parser.parse_args()
    wall, processor, worst = [], [], 0.0
    for repeat in range(options.repeats):
        started, used = time.perf_counter(), time.process_time()
        for d in DIMS:
            study = study_caps(d, math.radians(60), math.radians(40), samples=options.samples, seed=repeat)
            for part in (study.same, study.different):
                worst = max(worst, *(abs(e.mean - e.exact) / e.se for e in (part.kt, part.kk)))
        wall.append(time.perf_counter() - started)
        processor.append(time.process_time() - used)
    environment = describe("cpu")
    print(f"{environment['processor']}, {options.samples:,} samples, d = {', '.join(map(str, DIMS))}")
    for name, seconds in (("wall-clock", wall), ("processor", processor)):
        spread = f"min {min(seconds):.2f}, max {max(seconds):.2f}, n = {options.repeats}"
        print(f"{name:10} {statistics.median(seconds):6.2f} s for all dimensions  ({spread})")
    print(f"largest distance from the closed form: {worst:.2f} standard errors of {4 * len(DIMS) * options.repeats}")
    if options.json:
        result = {
            "bench": "theory",
            "environment": environment,
            "samples": options.samples,
            "dims": list(DIMS),
            "wall_s": wall,
            "processor_s": processor,
            "largest_deviation_se": worst,
        }
        write_json(Path(options.json), result)


if __name__ == "__main__":
    main()
