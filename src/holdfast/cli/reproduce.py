"""``holdfast reproduce``: the paper's tables and figures, run where missing and shown beside the paper's numbers."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from holdfast.cli.run import DATA_OPTION, DEVICE_OPTION, MODELS_OPTION, QUIET_OPTION
from holdfast.cli.show import JSON_OPTION, print_json
from holdfast.cli.sweep import PROCESSES_OPTION
from holdfast.wording import are, counted

if TYPE_CHECKING:
    import torch

    from holdfast.recipes.assemble import SharedData
    from holdfast.reproduction import Cell, Exhibit, Results, Selection


def reproduce(
    name: str = typer.Argument(..., help="What to reproduce: table2, fig4, ... or all; another name lists them."),
    methods: str = typer.Option("", "--methods", help="Only these, with commas.", show_default="all"),
    tasks: str = typer.Option("", "--tasks", help="Only these numbers of tasks, such as 2,7.", show_default="all"),
    seeds: str = typer.Option("", "--seeds", help="Only these seeds.", show_default="all"),
    order: str = typer.Option("", "--order", help="Only this class order: natural or icarl.", show_default="both"),
    set_name: str = typer.Option(
        "", "--set-name", help="Only paper or tuned, and what is changed in it.", show_default="both"
    ),
    parallel: int = typer.Option(8, "--parallel", "-n", min=1, help="Runs at a time; on a GPU at most 32 per process."),
    processes: int = PROCESSES_OPTION,
    limit_minutes: float | None = typer.Option(None, "--limit-minutes", min=0, help="Stop after so long; go on later."),
    out: Path = typer.Option(Path("runs/reproduce"), "--out", "-o", help="Where the run folders go."),
    results: Path = typer.Option(Path("results"), "--results", help="Where the JSON file of each finished run lies."),
    data: Path | None = DATA_OPTION,
    models: Path | None = MODELS_OPTION,
    device: str = DEVICE_OPTION,
    render: bool = typer.Option(False, "--render", help="Run nothing; show what there is."),
    dry_run: bool = typer.Option(False, "--dry-run", help="List the missing runs, their steps and minutes, and stop."),
    markdown: bool = typer.Option(False, "--markdown", help="Print Markdown."),
    docs: Path | None = typer.Option(None, "--docs", help="Write DIR/results/NAME.md and DIR/figures/*.png."),
    html: Path | None = typer.Option(None, "--html", help="Write one self-contained page with tables and figures."),
    quiet: bool = QUIET_OPTION,
    json: bool = JSON_OPTION,
) -> None:
    """Reproduce a table or figure of the paper.

    What is missing is run, then ours is shown beside the paper's. Without a GPU (or with --render) nothing is run,
    unless --device cpu asks for it. A finished run is never repeated and one that was stopped goes on, so the same
    command again and again, for a while each, gets everything done. Exit status 1 where a run failed.

    Example: holdfast reproduce table2 --set-name paper --seeds 0 --data ~/data --parallel 16 --limit-minutes 25
    """
    from holdfast.cli.sweep import numbers
    from holdfast.errors import HoldfastError
    from holdfast.reproduction import Results, Selection
    from holdfast.reproduction.exhibits import chosen, in_order_of_work

    exhibits = chosen(name)
    if not results.is_dir() and (render or dry_run):
        raise HoldfastError(f"{results}: no such folder; give the one that holds the results with --results")
    selection = Selection(
        methods=_words(methods),
        tasks=numbers(tasks, "--tasks") or None,
        seeds=numbers(seeds, "--seeds") or None,
        orders=_one_of(order, "--order", ("natural", "icarl")),
        sets=_one_of(set_name, "--set-name", ("paper", "tuned")),
    )
    wanted = in_order_of_work(selection.of([cell for exhibit in exhibits.values() for cell in exhibit.cells()]))
    missing = Results(results).missing(wanted)
    if dry_run:
        _show_plan(missing, json)
        return
    failed = False
    if missing and not render:
        from holdfast.recipes.assemble import SharedData

        shared = SharedData(data, models)
        failed = _run(missing, out, results, shared, device, parallel, processes, limit_minutes, quiet or json)
    _show(exhibits, Results(results), selection, json=json, as_markdown=markdown)
    _write(exhibits, Results(results), selection, docs, html)
    if failed:
        raise typer.Exit(1)


def _run(
    missing: "list[Cell]", out: Path, results: Path, shared: "SharedData", device: str, parallel: int,
    processes: int, limit_minutes: float | None, quiet: bool,
) -> bool:  # fmt: skip
    """Carry out what is missing, as far as the time goes; whether any of it failed."""
    from holdfast.cli.failures import failure_lines
    from holdfast.cli.peak_memory import PeakMemory
    from holdfast.cli.room import what_fits
    from holdfast.cli.sweep_progress import sweep_watcher
    from holdfast.engine import resolve_device
    from holdfast.errors import HoldfastError
    from holdfast.recipes.planned_steps import steps_ahead
    from holdfast.reproduction.run import carry_out, planned

    where: torch.device = resolve_device(device)
    if where.type == "cpu" and device == "auto":
        stay, them = ("stays", "it") if len(missing) == 1 else ("stay", "them")
        left = f"{counted(len(missing), 'missing run')} {stay} missing (--device cpu runs {them} anyway)"
        typer.echo(f"No GPU here: {left}.", err=True)
        return False
    runs = [planned(cell) for cell in missing]
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
    failed = {name: reason for name, reason in unfinished.items() if reason != "interrupted"}
    for line in failure_lines(failed):
        typer.echo(line, err=True)
    done = len(found) - len(unfinished)
    share = f"{done} of {counted(len(runs), 'missing run')} {are(done)} done"
    rest = "; the same command goes on with the others" if done < len(runs) else ""
    typer.echo(f"{share}{rest}.", err=True)
    return bool(failed)


def _show_plan(missing: "list[Cell]", json: bool) -> None:
    from holdfast.reproduction.cost import predicted_minutes
    from holdfast.reproduction.exhibit import Table
    from holdfast.reproduction.layout import plain

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


def _show(
    exhibits: "Mapping[str, Exhibit]", results: "Results", selection: "Selection", *, json: bool, as_markdown: bool
) -> None:
    from holdfast.reproduction.layout import markdown, plain

    if json:
        print_json([row for exhibit in exhibits.values() for row in exhibit.rows(results, selection)])
        return
    for exhibit in exhibits.values():
        tables = exhibit.tables(results, selection)
        if as_markdown:
            typer.echo(markdown(exhibit.about, tables), nl=False)
            continue
        for table in tables:
            typer.echo(f"{plain(table)}\n")


def _write(
    exhibits: "Mapping[str, Exhibit]", results: "Results", selection: "Selection", docs: Path | None, html: Path | None
) -> None:
    from holdfast.reproduction.layout import markdown
    from holdfast.reproduction.page import render_page
    from holdfast.storage import write_text

    if docs:
        for name, exhibit in exhibits.items():
            figures = exhibit.figures(results)
            text = markdown(exhibit.about, exhibit.tables(results, selection), figures)
            write_text(docs / "results" / f"{name}.md", text)
            for figure in figures:
                figure.draw(figure.data, docs / "figures" / f"{figure.name}.png")
    if html:
        write_text(html, render_page(exhibits, results, selection))
    if not (docs or html) and len(exhibits) == 1:
        (exhibit,) = exhibits.values()
        if not exhibit.tables(results, selection):  # a figure alone: where else would it be seen?
            for figure in exhibit.figures(results):
                figure.draw(figure.data, Path(f"{figure.name}.png"))
                typer.echo(f"{figure.name}.png: {figure.caption}")


def _words(text: str) -> list[str] | None:
    from holdfast.cli.demo import method_names

    return method_names(text) if text else None


def _one_of(text: str, option: str, known: tuple[str, ...]) -> list[str] | None:
    from holdfast.errors import HoldfastError

    if text and text not in known:
        raise HoldfastError(f"{option} {text!r}: use {' or '.join(known)}")
    return [text] if text else None
