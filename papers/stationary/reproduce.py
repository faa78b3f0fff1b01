"""``python -m papers.stationary reproduce``: run the missing parts of the paper's tables and figures and show them.

What can be reproduced is listed here so that ``--help`` need not import it.

The missing runs of ``python -m papers.stationary reproduce``: listed with their cost, or carried out.

What ``python -m papers.stationary reproduce`` prints, and the pages and pictures it writes.
"""

import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from holdfast.cli.run import DATA_OPTION, DEVICE_OPTION, MODELS_OPTION, QUIET_OPTION
from holdfast.cli.show import JSON_OPTION, print_json, whole_numbers_if_any
from holdfast.cli.sweep import PROCESSES_OPTION
from holdfast.wording import are, counted

if TYPE_CHECKING:
    import torch

    from holdfast.experiments.assemble import SharedData
    from papers.stationary.cells import Cell
    from papers.stationary.exhibit import Exhibit, Selection
    from papers.stationary.results import Results


RESULTS = Path("results")


def reproduce(
    name: str = typer.Argument(..., metavar="NAME", help="What to reproduce: table2, fig4, ... or all; listed below."),
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
    results: Path = typer.Option(RESULTS, "--results", help="Where the JSON file of each finished run lies."),
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

    Tables are printed. Run folders are written to --out, and a JSON file for each finished run to --results. Pictures
    are written by --docs and --html, where nothing narrows the choice; a figure that is a drawing alone goes into the
    current folder if neither is given.

    Example: python -m papers.stationary reproduce table2 --set-name paper --seeds 0 --data ~/data
    """
    from holdfast.errors import HoldfastError
    from papers.stationary.exhibit import Selection, matching
    from papers.stationary.exhibits import DRAWN, chosen, in_order_of_work
    from papers.stationary.results import Results

    exhibits = chosen(name)
    for given, option in ((data, "--data"), (models, "--models")):
        if given is not None and not given.expanduser().is_dir():
            raise HoldfastError(f"{given}: no such folder; {option} names one that is there")
    selection = Selection(
        methods=_words(methods),
        tasks=whole_numbers_if_any("--tasks", tasks) or None,
        seeds=whole_numbers_if_any("--seeds", seeds) or None,
        orders=_one_of(order, "--order", ("natural", "icarl")),
        sets=_one_of(set_name, "--set-name", ("paper", "tuned")),
    )
    exhibits = matching(exhibits, selection, warn=lambda text: typer.echo(f"holdfast: {text}", err=True))
    if json and not dry_run and set(exhibits) <= set(DRAWN):
        raise HoldfastError(f"{name} is a drawing and has no rows for --json; without it the picture is drawn")
    listed = selection.of([cell for exhibit in exhibits.values() for cell in exhibit.cells()])
    wanted = in_order_of_work(listed)
    only_shown = (
        render or dry_run or not runs_here(device)
    )  # runs make the folder, and there is nothing to show of none
    if only_shown and not results.is_dir() and (wanted or results != RESULTS):  # settings and drawings need none
        raise HoldfastError(
            f"{results}: no such folder; --results names the one with a JSON file for each finished run"
        )
    missing = Results(results).missing(wanted)
    if dry_run:
        show_plan(missing, json)
        return
    failed = False
    paths = {cell.path for cell in missing}
    repeated = sum(cell.path in paths for cell in listed) > len(paths)
    if missing and not render and not stay_missing(missing, device, repeated=repeated):
        from holdfast.cli.progress import decoding_lines
        from holdfast.experiments.assemble import SharedData

        shared = SharedData(data, models, decoding=decoding_lines(quiet=quiet or json))
        failed = run_missing(missing, out, results, shared, device, parallel, processes, limit_minutes, quiet or json)
    found = Results(results)  # read anew: there may be more than before
    show(exhibits, found, selection, json=json, as_markdown=markdown)
    if docs or html:
        write(exhibits, found, selection, docs, html)
    elif not json:
        show_pictures(exhibits, found, selection)
    if failed:
        raise typer.Exit(1)


def _words(text: str) -> list[str] | None:
    from holdfast.cli.demo import method_names

    return method_names(text) if text else None


def _one_of(text: str, option: str, known: tuple[str, ...]) -> list[str] | None:
    from holdfast.errors import HoldfastError

    if text and text not in known:
        raise HoldfastError(f"{option} {text!r}: use {' or '.join(known)}")
    return [text] if text else None


EXHIBIT_NAMES = {
    "table1": "settings of CL2R",
    "table2": "CIFAR100/10, 2 to 31 tasks",
    "table3": "TinyImageNet200/20, 2 to 31 tasks",
    "table4": "CUB180/20, 2 to 31 tasks",
    "table5": "settings of IAM-CL2R",
    "table6": "CIFAR100R/10, two replacements",
    "table7": "replacements by other architectures",
    "table8": "other K, lambda and rho",
    "fig1": "an update seen from the prototypes (drawing)",
    "fig2": "pairs before and after an update (drawing)",
    "fig3": "the toy on MNIST (drawing)",
    "fig4": "compatibility matrices at 7 tasks",
    "fig5": "who owns which vertex (drawing)",
    "fig6": "AA over 31 tasks, replacements or none",
    "fig7": "compatibility matrices, two replacements",
    "fig8": "AA over 16 tasks of CelebA",
    "fig9": "AA over tasks, three architectures",
    "fig10": "rates, buffers and images per class",
    "fig11": "Proposition 2 (drawing)",
    "fig12": "Theorem 1 (drawing)",
    "goals": "what the tuned set is to reach",
    "tries": "how the tuned settings were chosen",
    "front": "AC against AA as the dial turns",
    "parts": "what each part of our own method brings",
    "questions": "what the paper leaves open",
    "stride": "what one update brings at a given lambda",
    "length": "what shorter features do (for two cores)",
    "mixed": "galleries of mixed versions",
    "all": "every one of these",
}
"""The paper's in its order, then what is shown beside them."""

# \b keeps a paragraph of help as it is written.
LISTED = "\b\nNAME is one of:\n" + "\n".join(f"  {name:<10} {about}" for name, about in EXHIBIT_NAMES.items())


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
    from holdfast.cli.gpu_capacity import PeakMemory, what_fits
    from holdfast.cli.sweep_progress import failure_lines, sweep_watcher
    from holdfast.devices import resolve_device
    from holdfast.errors import HoldfastError
    from holdfast.experiments.planned_steps import steps_ahead
    from holdfast.experiments.sweep import INTERRUPTED
    from papers.stationary.run import carry_out, planned

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
    from papers.stationary.cells import predicted_minutes
    from papers.stationary.exhibit import Table
    from papers.stationary.layout import plain

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


def show(
    exhibits: "Mapping[str, Exhibit]", results: "Results", selection: "Selection", *, json: bool, as_markdown: bool
) -> None:
    from papers.stationary.layout import markdown, plain

    if json:
        print_json([row for exhibit in exhibits.values() for row in exhibit.rows(results, selection)])
        return
    for exhibit in exhibits.values():
        tables = exhibit.tables(results, selection)
        if as_markdown:
            typer.echo(markdown(exhibit.about, tables), nl=False)
            continue
        for table in tables:
            typer.echo(f"{plain(table, _columns())}\n")


def _columns() -> int | None:
    """Of the terminal; None where the text goes elsewhere and nobody says how wide that is."""
    known = sys.stdout.isatty() or os.environ.get("COLUMNS")
    return shutil.get_terminal_size().columns if known else None


def write(
    exhibits: "Mapping[str, Exhibit]", results: "Results", selection: "Selection", docs: Path | None, html: Path | None
) -> None:
    """The pages that were asked for."""
    from holdfast.storage import write_text
    from papers.stationary.page import render_page

    if docs:
        _write_docs(exhibits, results, selection, docs)
    if html:
        write_text(html, render_page(exhibits, results, selection))
        typer.echo(f"{html}: written", err=True)
    if selection.narrowed and any(exhibit.figures(results) for exhibit in exhibits.values()):
        typer.echo("Pictures are left out: they show everything, and only a part was chosen.", err=True)


def _write_docs(exhibits: "Mapping[str, Exhibit]", results: "Results", selection: "Selection", docs: Path) -> None:
    from holdfast.storage import write_text
    from papers.stationary.layout import markdown

    pictures = 0
    for name, exhibit in exhibits.items():
        figures = exhibit.pictures(results, selection)
        write_text(
            docs / "results" / f"{name}.md", markdown(exhibit.about, exhibit.tables(results, selection), figures)
        )
        for figure in figures:
            figure.draw(figure.data, docs / "figures" / f"{figure.name}.png")
        pictures += len(figures)
    drawn = f" and {counted(pictures, 'picture')} in {docs / 'figures'}" if pictures else ""
    typer.echo(f"{counted(len(exhibits), 'page')} written in {docs / 'results'}{drawn}", err=True)


def show_pictures(exhibits: "Mapping[str, Exhibit]", results: "Results", selection: "Selection") -> None:
    """Where no page was asked for: a drawing goes into the current folder, for all else the way to it is said."""
    from papers.stationary.exhibits import DRAWN

    if not set(exhibits) <= set(DRAWN):
        if any(exhibit.pictures(results, selection) for exhibit in exhibits.values()):
            typer.echo("Pictures: --html FILE or --docs DIR writes them, with these tables.", err=True)
        return
    for exhibit in exhibits.values():
        for figure in exhibit.figures(results):
            path = Path(f"{figure.name}.png")
            figure.draw(figure.data, path)
            typer.echo(f"{path.absolute()}: {figure.caption}")
