"""The missing runs of ``holdfast reproduce``: listed with their cost, or carried out."""

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from holdfast.cli.show import print_json
from holdfast.wording import are, counted

if TYPE_CHECKING:
    import torch

    from holdfast.recipes.assemble import SharedData
    from holdfast.reproduction import Cell

DRAWN_SETS = ("glyphs",)
"""Training sets that need no files."""


def runs_here(device: str) -> bool:
    """Without being told to, only a GPU is put to work."""
    from holdfast.devices import resolve_device

    return device != "auto" or resolve_device(device).type != "cpu"


def stay_missing(missing: "list[Cell]", device: str, *, repeated: bool) -> bool:
    """Whether nothing is run for want of a GPU, which is then said. repeated: a run stands in more than one table."""
    if runs_here(device):
        return False
    stay, them = ("stays", "it") if len(missing) == 1 else ("stay", "them")
    left = f"{counted(len(missing), 'missing run')} {stay} missing (--device cpu runs {them} anyway)"
    typer.echo(f"No GPU here: {left}.", err=True)
    if repeated:
        typer.echo("A run that several tables share is counted once here, and in each of them below.", err=True)
    return True


def run_missing(
    missing: "list[Cell]", out: Path, results: Path, shared: "SharedData", device: str, parallel: int,
    processes: int, limit_minutes: float | None, quiet: bool,
) -> bool:  # fmt: skip
    """Carry out what is missing, as far as the time goes; whether any of it failed."""
    from holdfast.cli.failures import failure_lines
    from holdfast.cli.peak_memory import PeakMemory
    from holdfast.cli.room import what_fits
    from holdfast.cli.sweep_progress import sweep_watcher
    from holdfast.devices import resolve_device
    from holdfast.errors import HoldfastError
    from holdfast.recipes.failure import INTERRUPTED
    from holdfast.recipes.planned_steps import steps_ahead
    from holdfast.reproduction.run import carry_out, planned

    where: torch.device = resolve_device(device)
    _refuse_without_data(missing, shared.root)
    runs = [planned(cell, where) for cell in missing]
    room = what_fits(runs, shared, where, min(parallel, len(runs)), processes, quiet)
    try:
        with sweep_watcher([run.name for run in runs], quiet=quiet) as display:
            display.expect(lambda: steps_ahead(runs, out, shared))
            watch = PeakMemory(where, display)
            found = carry_out(
                missing, out, results, shared=shared, device=where, parallel=room.at_once, processes=processes,
                limit_minutes=limit_minutes, watch=watch,
            )  # fmt: skip
    except KeyboardInterrupt:
        typer.echo("holdfast: interrupted; what is done is kept: the same command again goes on", err=True)
        raise typer.Exit(130) from None
    if not quiet:
        watch.say(room.predicted)
    unfinished = {name: str(error) for name, error in found.items() if isinstance(error, HoldfastError)}
    failed = {name: reason for name, reason in unfinished.items() if reason != INTERRUPTED}
    for line in failure_lines(failed):
        typer.echo(line, err=True)
    typer.echo(_outcome(len(runs), len(unfinished), len(failed)), err=True)
    return bool(failed)


def _refuse_without_data(missing: "list[Cell]", root: Path | None) -> None:
    """Once, before any run leaves a folder that says the same; a set that is not in the root its own runs refuse."""
    from holdfast.data import data_root
    from holdfast.data.root import existing

    needed = [name for cell in missing if (name := str(cell.recipe["data"]["train"]["name"])) not in DRAWN_SETS]
    if needed:
        existing(data_root(root), *dict.fromkeys(needed))


def _outcome(runs: int, unfinished: int, failed: int) -> str:
    """One sentence. The same command goes on with what was stopped; what failed would only fail again."""
    done, stopped = runs - unfinished, unfinished - failed
    share = f"{done} of {counted(runs, 'missing run')} {are(done if runs > 1 else 1)} done"
    which = "those that were stopped" if failed else "the others"
    return f"{share}{f'; the same command goes on with {which}' if stopped else ''}."


def show_plan(missing: "list[Cell]", json: bool) -> None:
    from holdfast.reproduction.cost import predicted_minutes
    from holdfast.reproduction.exhibit import Table
    from holdfast.reproduction.terminal import plain

    rows = [
        {"run": cell.path.with_suffix("").as_posix(), "steps": cell.steps, "minutes": predicted_minutes(cell.recipe),
         "command": cell.command}
        for cell in missing
    ]  # fmt: skip
    if json:
        print_json(rows)
        return
    columns = (("steps", ","), ("minutes", ".1f"))
    shown = [[str(r["run"]), *("–" if r[key] is None else format(r[key], how) for key, how in columns)] for r in rows]
    typer.echo(plain(Table("Missing", ["run", "steps", "minutes"], shown, right=(1, 2))))
    steps = [cell.steps for cell in missing if cell.steps is not None]
    told = f", {counted(sum(steps), 'step')}" if steps else ""
    if 0 < len(steps) < len(missing):
        told += f" and those of {len(missing) - len(steps)} that cannot be counted"
    minutes = [float(r["minutes"]) for r in rows if r["minutes"] is not None]
    timed = f", about {counted(round(sum(minutes)), 'minute')} of one H200" if minutes else ""
    others = len(rows) - len(minutes)
    what = f"the network of {others} was" if others == 1 else f"the networks of {others} were"
    untimed = f"; {what} not timed" if others else ""
    typer.echo(f"{counted(len(missing), 'run')}{told}{timed}{untimed}")
