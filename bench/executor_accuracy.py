"""Whether executors that round differently end equally well: one recipe, one run for each, side by side on one device.

    python bench/executor_accuracy.py [--recipe cifar100-10/simplex_hoc] [--executors graph,fused] [--epochs 20]
                                      [--tasks 7] [--seeds 0,1,2,3,4] [--processes 1] [--data DIR] [--device auto]
                                      [--json FILE]

Single steps are compared in tests/engine; long runs part by chaos, so here the scores are: AC, AA and ACA by template,
and how far each AA is from the first executor's, over the seeds with its standard error: runs that round differently
end as far apart as two seeds do. ``graph`` equals ``eager`` bit for bit (tests/engine) and is faster.
"""

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from timing import write_figures

from holdfast.core.environment import describe
from holdfast.core.errors import HoldfastError
from holdfast.train.devices import resolve_device
from holdfast.train.experiments.assemble import SharedData
from holdfast.train.experiments.load import read_recipe
from holdfast.train.experiments.schema import check_recipe
from papers.sweeps.plan import PlannedRun
from papers.sweeps.sweep import SweepOptions, run_all


def main() -> None:
    parser = argparse.ArgumentParser(description="Scores of whole runs by different executors.")
    parser.add_argument("--recipe", default="cifar100-10/simplex_hoc")
    parser.add_argument("--executors", default="graph,fused")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--tasks", type=int, default=7)
    parser.add_argument("--seeds", default="0,1,2,3,4")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--json", help="also write the figures to this file")
    options = parser.parse_args()
    device = resolve_device(options.device)
    environment = describe(str(device))
    executors, seeds = options.executors.split(","), [int(seed) for seed in options.seeds.split(",")]
    runs = {(executor, seed): planned(executor, seed, options) for executor in executors for seed in seeds}
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as temporary:
        found = run_all(
            list(runs.values()),
            Path(temporary),
            SweepOptions(device, parallel=len(runs), processes=options.processes),
            shared=SharedData(options.data),
        )
    print(f"{environment['gpu'] or environment['processor']}, {options.recipe}, {options.tasks} tasks, "
          f"{options.epochs} epochs, {time.perf_counter() - started:.0f} s")  # fmt: skip
    rows = []
    for (executor, seed), run in runs.items():
        scores = found[run.name]
        if isinstance(scores, HoldfastError):
            raise scores
        template = scores["protocols"]["template"]
        row = {"executor": executor, "seed": seed, **{name: template[name] for name in ("AC", "AA", "ACA")}}
        reference = next((other for other in rows if other["seed"] == seed), row)
        row["AA_minus_first"] = row["AA"] - reference["AA"]
        rows.append(row)
        print(f"{executor:9} seed {seed}  AC {row['AC']:.3f}  AA {100 * row['AA']:.2f} %  ACA {100 * row['ACA']:.2f} %"
              f"  AA against {executors[0]} {100 * row['AA_minus_first']:+.2f}", flush=True)  # fmt: skip
    over_seeds = []
    if len(seeds) > 1:
        over_seeds = [summary(executor, [row for row in rows if row["executor"] == executor]) for executor in executors]
    for row in over_seeds:
        percent = {name: f"{100 * value:.2f}" for name, value in row.items() if name != "executor"}
        print(
            f"{row['executor']:9} {len(seeds)} seeds  AA {percent['AA']} % (deviation {percent['AA_sd']})  "
            f"against {executors[0]} {percent['AA_minus_first']} +- {percent['standard_error']}"
        )
    if options.json:
        options.data = None
        write_figures(options.json, "executor_accuracy", environment, options, rows=rows, over_seeds=over_seeds)


def summary(executor: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Over the seeds: mean AA and its deviation, mean distance from the first executor's and its standard error."""
    scores, distances = [row["AA"] for row in rows], [row["AA_minus_first"] for row in rows]
    return {
        "executor": executor,
        "AA": statistics.fmean(scores),
        "AA_sd": statistics.stdev(scores),
        "AA_minus_first": statistics.fmean(distances),
        "standard_error": statistics.stdev(distances) / len(rows) ** 0.5,
    }


def planned(executor: str, seed: int, options: argparse.Namespace) -> PlannedRun:
    changes = {
        "train.executor": executor,
        "train.epochs": str(options.epochs),
        "scenario.tasks": str(options.tasks),
        "seed": str(seed),
    }
    settings = [f"{name}={value}" for name, value in changes.items()]
    recipe = check_recipe(read_recipe(options.recipe, settings))
    return PlannedRun(f"{executor}-s{seed}", recipe, " ".join(["holdfast run", options.recipe, *settings]))


if __name__ == "__main__":
    main()
