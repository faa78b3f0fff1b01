"""Many runs on one device: the command."""

from pathlib import Path
from typing import Any

import typer

from holdfast.cli.options import (
    DATA_OPTION,
    DEVICE_OPTION,
    JSON_OPTION,
    MODELS_OPTION,
    SET_OPTION,
    int_list,
)
from holdfast.cli.show import print_json, print_table, scores_row
from holdfast.core.wording import decimal
from papers.sweeps.failures import failure_lines

PROCESSES_OPTION = typer.Option(1, "--processes", min=1, help="Divide the parallel runs over this many processes.")


def sweep(
    recipes: list[str] = typer.Argument(..., metavar="RECIPES", help="TOML files or built-in recipes."),
    methods: str = typer.Option("", "--methods", help="Names with commas, or all.", show_default="the recipe's"),
    tasks: str = typer.Option("", "--tasks", help="Numbers of tasks, such as 2,7.", show_default="the recipe's"),
    seeds: str = typer.Option("", "--seeds", help="Seeds, such as 0,1,2.", show_default="the recipe's"),
    parallel: int = typer.Option(1, "--parallel", "-n", min=1, help="Runs at a time; on a GPU at most 32 per process."),
    processes: int = PROCESSES_OPTION,
    out: Path = typer.Option(Path("runs/sweep"), "--out", "-o", help="Where the run folders and the report go."),
    record: Path | None = typer.Option(None, "--record", help="Also write one JSON file per run into this folder."),
    set_: list[str] = SET_OPTION,
    data: Path | None = DATA_OPTION,
    models: Path | None = MODELS_OPTION,
    device: str = DEVICE_OPTION,
    json: bool = JSON_OPTION,
) -> None:
    """Run many recipes, methods and seeds, several at a time.

    Every combination of recipes, methods, numbers of tasks and seeds is a run. On a GPU the runs share the data and the
    device, each on its own stream. After a kill, run the same command to resume: finished runs and tasks are not
    repeated. A run that fails is reported and does not affect the others.

    Example: python -m papers.sweeps cifar100-10/er cifar100-10/simplex_hoc --tasks 7,16 --seeds 0,1 --parallel 8
    """

    from holdfast.cli.options import method_list
    from holdfast.cli.progress import ProgressDisplay, exit_on_interrupt
    from holdfast.core.errors import HoldfastError
    from holdfast.core.run_folder import RunFolder
    from holdfast.train.devices import resolve_device
    from holdfast.train.experiments.assemble import SharedData
    from papers.run_pages import write_report
    from papers.sweeps.gpu_capacity import PeakMemory, sweep_capacity
    from papers.sweeps.plan import plan
    from papers.sweeps.record import write_record
    from papers.sweeps.sweep import SweepOptions, run_all

    planned = plan(
        recipes,
        methods=method_list(methods) if methods else (),
        tasks=int_list("--tasks", tasks, required=False),
        seeds=int_list("--seeds", seeds, required=False),
        settings=set_,
    )
    where = resolve_device(device)
    with exit_on_interrupt(), ProgressDisplay(quiet=json, runs=len(planned)) as display:
        shared = SharedData(data, models, decoding=display.decoding)
        capacity = sweep_capacity(planned, shared, where, min(parallel, len(planned)), processes, json)
        watch = PeakMemory(where, display.watch)
        options = SweepOptions(where, capacity.parallel, processes)
        found = run_all(planned, out, options, shared=shared, watch=watch)
    if not json:
        watch.print(capacity.predicted)
    good = {name: metrics for name, metrics in found.items() if isinstance(metrics, dict)}
    failed = {name: str(error) for name, error in found.items() if isinstance(error, HoldfastError)}
    if record:
        short = len({run.recipe.short_name for run in planned}) == len(planned)
        for run in planned:
            if run.name in good:
                name = run.recipe.short_name if short else run.name
                write_record(RunFolder(out / run.name), record / f"{name}.json", run.command)
    if good:
        write_report([out / name for name in good], out / "report.html")
    _show(good, failed, out, json)
    if failed:
        raise typer.Exit(1)


def _show(good: dict[str, dict[str, Any]], failed: dict[str, str], out: Path, json: bool) -> None:
    if json:
        rows: list[dict[str, Any]] = [{"name": name, "run": str(out / name), **found} for name, found in good.items()]
        print_json([*rows, *({"name": name, "failed": reason} for name, reason in failed.items())])
        return
    if good:
        _print_scores(good)
    for line in failure_lines(failed):
        typer.echo(line, err=True)
    if good:
        typer.echo(f"Report: {(out / 'report.html').resolve()}")


def _print_scores(runs: dict[str, dict[str, Any]]) -> None:
    """One row for each run: AC, AA and ACA by template, or by its first protocol; and AC by instance beside it."""
    both = all({"template", "instance"} <= found["protocols"].keys() for found in runs.values())
    rows = []
    for name, found in runs.items():
        protocols = found["protocols"]
        row = scores_row(name, protocols.get("template", next(iter(protocols.values()))))
        rows.append([*row, decimal(protocols["instance"]["AC"], 3)] if both else row)
    first, more = ("by template", ["AC by instance"]) if both else ("run", [])
    print_table([first, "AC", "AA %", "ACA %", *more], rows, right=range(1, 4 + len(more)))
