"""``python -m papers.stationary reproduce``: execute the missing runs of a table or figure, then print or write it.

``PAGE_TITLES`` repeats the names of ``PAGES``, so that ``--help`` does not import torch.
"""

import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from holdfast.cli.options import (
    DATA_OPTION,
    DEVICE_OPTION,
    JSON_OPTION,
    MODELS_OPTION,
    int_list,
)
from holdfast.cli.show import print_json
from holdfast.core.wording import are, counted
from papers.sweeps.command import PROCESSES_OPTION

if TYPE_CHECKING:
    import torch

    from holdfast.train.experiments.assemble import SharedData
    from papers.stationary.result_page import ResultPage, Selection
    from papers.stationary.results import Results
    from papers.stationary.study_runs import StudyRun


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
    limit_minutes: float | None = typer.Option(
        None, "--limit-minutes", min=0, help="Stop after so many minutes; resume later."
    ),
    out: Path = typer.Option(Path("runs/reproduce"), "--out", "-o", help="Where the run folders go."),
    results: Path = typer.Option(RESULTS, "--results", help="Folder with a JSON file for each finished run."),
    data: Path | None = DATA_OPTION,
    models: Path | None = MODELS_OPTION,
    device: str = DEVICE_OPTION,
    render: bool = typer.Option(False, "--render", help="Run nothing; show the results there are."),
    dry_run: bool = typer.Option(False, "--dry-run", help="List the missing runs, their steps and minutes, and stop."),
    markdown: bool = typer.Option(False, "--markdown", help="Print Markdown."),
    docs: Path | None = typer.Option(None, "--docs", help="Write DIR/results/NAME.md and DIR/figures/*.png."),
    html: Path | None = typer.Option(None, "--html", help="Write one self-contained page with tables and figures."),
    json: bool = JSON_OPTION,
) -> None:
    """Reproduce a table or figure of the paper.

    Missing runs are executed, then our numbers are shown beside the paper's. Without a GPU (or with --render) nothing
    is executed, except with --device cpu. A finished run is not repeated and a stopped one resumes, so the same command
    can be repeated until everything is done. Exit status 1 if a run failed.

    Tables are printed. Run folders are written to --out, and a JSON file for each finished run to --results. Pictures
    are written by --docs and --html, if nothing is left out by a selection. Without these options a figure without runs
    is written to the current folder.

    Example: python -m papers.stationary reproduce table2 --set-name paper --seeds 0 --data ~/data
    """
    from holdfast.core.errors import HoldfastError
    from papers.stationary.pages import DRAWINGS, in_running_order, pages_named
    from papers.stationary.result_page import Selection, matching
    from papers.stationary.results import Results

    pages = pages_named(name)
    for given, option in ((data, "--data"), (models, "--models")):
        if given is not None and not given.expanduser().is_dir():
            raise HoldfastError(f"{given}: no such folder; {option} must name an existing one")
    selection = Selection(
        methods=_words(methods),
        tasks=int_list("--tasks", tasks, required=False) or None,
        seeds=int_list("--seeds", seeds, required=False) or None,
        orders=_one_of(order, "--order", ("natural", "icarl")),
        sets=_one_of(set_name, "--set-name", ("paper", "tuned")),
    )
    pages = matching(pages, selection, warn=lambda text: typer.echo(f"holdfast: {text}", err=True))
    if json and not dry_run and set(pages) <= set(DRAWINGS):
        raise HoldfastError(f"{name} is a drawing without rows for --json; leave --json out to draw it")
    listed = selection.of([run for page in pages.values() for run in page.runs()])
    wanted = in_running_order(listed)
    only_shown = render or dry_run or not runs_here(device)
    # Runs create the folder. Settings and drawings do not need it.
    if only_shown and not results.is_dir() and (wanted or results != RESULTS):
        raise HoldfastError(
            f"{results}: no such folder; --results must name the folder with a JSON file for each finished run"
        )
    missing = Results(results).missing(wanted)
    if dry_run:
        show_plan(missing, pages, json)
        return
    failed = False
    paths = {run.path for run in missing}
    repeated = sum(run.path in paths for run in listed) > len(paths)
    if missing and not render and not stay_missing(missing, device, repeated=repeated):
        from holdfast.train.experiments.assemble import SharedData

        shared = SharedData(data, models)
        failed = run_missing(missing, out, results, shared, device, parallel, processes, limit_minutes, json)
    found = Results(results)  # read again, with the new results
    show(pages, found, selection, json=json, as_markdown=markdown)
    if docs or html:
        write(pages, found, selection, docs, html)
    elif not json:
        show_pictures(pages, found, selection)
    if failed:
        raise typer.Exit(1)


def _words(text: str) -> list[str] | None:
    from holdfast.cli.options import method_list

    return method_list(text) if text else None


def _one_of(text: str, option: str, known: tuple[str, ...]) -> list[str] | None:
    from holdfast.core.errors import HoldfastError

    if text and text not in known:
        raise HoldfastError(f"{option} {text!r}: use {' or '.join(known)}")
    return [text] if text else None


PAGE_TITLES = {
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
    "fig3": "the toy on MNIST, and why it may stall",
    "fig4": "compatibility matrices at 7 tasks",
    "fig5": "the slot of each class (drawing)",
    "fig6": "AA over 31 tasks, replacements or none",
    "fig7": "compatibility matrices, two replacements",
    "fig8": "AA over 16 tasks of CelebA",
    "fig9": "AA over tasks, three architectures",
    "fig10": "rates, buffers and images per class",
    "fig11": "Proposition 2 (drawing)",
    "fig12": "Theorem 1 (drawing)",
    "search": "how the tuned settings were chosen",
    "front": "AC against AA for several lambda",
    "parts": "our own method without each of its parts",
    "questions": "details the paper leaves open",
    "experiments": "what may explain the missing rows",
    "stride": "gain of one update at a given lambda",
    "theory": "Theorem 1 and Proposition 1 on CIFAR100",
    "length": "effect of the feature length (for two cores)",
    "mixed": "galleries of mixed versions",
    "replacing": "schedule and reference of IAM-CL2R",
    "all": "every one of these",
}
"""Name -> short title. The paper's tables and figures in its order, then further studies."""

# \b keeps the line breaks of a help text.
LISTED = "\b\nNAME is one of:\n" + "\n".join(f"  {name:<11} {about}" for name, about in PAGE_TITLES.items())


DRAWN_SETS = ("glyphs",)
"""Training sets without files."""


def runs_here(device: str) -> bool:
    """Whether runs are executed: on a GPU, or on a device that is named."""
    from holdfast.train.devices import resolve_device

    return device != "auto" or resolve_device(device).type != "cpu"


def stay_missing(missing: "list[StudyRun]", device: str, *, repeated: bool) -> bool:
    """Whether missing runs are not executed because there is no GPU, and a message about it.

    repeated: a missing run is in more than one table.
    """
    if runs_here(device):
        return False
    stay, them = ("stays", "it") if len(missing) == 1 else ("stay", "them")
    left = f"{counted(len(missing), 'missing run')} {stay} missing (--device cpu runs {them} anyway)"
    typer.echo(f"No GPU here: {left}.", err=True)
    if repeated:
        typer.echo("A run that several tables share is counted once here, and in each of them below.", err=True)
    return True


def run_missing(
    missing: "list[StudyRun]", out: Path, results: Path, shared: "SharedData", device: str, parallel: int,
    processes: int, limit_minutes: float | None, quiet: bool,
) -> bool:  # fmt: skip
    """Execute the missing runs within the time limit. Returns whether one of them failed."""
    from holdfast.cli.progress import ProgressDisplay
    from holdfast.core.errors import HoldfastError
    from holdfast.train.data.decode import report_decoding
    from holdfast.train.devices import resolve_device
    from papers.stationary.execute import execute_runs, planned_run
    from papers.sweeps.failures import failure_lines
    from papers.sweeps.gpu_capacity import PeakMemory, sweep_capacity
    from papers.sweeps.run_threads import INTERRUPTED

    where: torch.device = resolve_device(device)
    _refuse_without_data(missing, shared.root)
    planned = [planned_run(run, where) for run in missing]
    try:
        with ProgressDisplay(quiet=quiet, runs=len(planned)) as display, report_decoding(display.decoding):
            capacity = sweep_capacity(planned, shared, where, min(parallel, len(planned)), processes, quiet)
            watch = PeakMemory(where, display.watch)
            found = execute_runs(
                missing, out, results, shared=shared, device=where, parallel=capacity.parallel, processes=processes,
                limit_minutes=limit_minutes, watch=watch,
            )  # fmt: skip
    except KeyboardInterrupt:
        typer.echo("holdfast: interrupted; finished runs are kept, run the same command to resume", err=True)
        raise typer.Exit(130) from None
    if not quiet:
        watch.print(capacity.predicted)
    unfinished = {name: str(error) for name, error in found.items() if isinstance(error, HoldfastError)}
    failed = {name: reason for name, reason in unfinished.items() if reason != INTERRUPTED}
    for line in failure_lines(failed):
        typer.echo(line, err=True)
    typer.echo(_outcome(len(planned), len(unfinished), len(failed)), err=True)
    return bool(failed)


def _refuse_without_data(missing: "list[StudyRun]", root: Path | None) -> None:
    """Refuse a missing data root once, before any run starts, and what a record needs after its run has ended.

    Runs check for their own data set.
    """
    from holdfast.core.errors import HoldfastError
    from holdfast.train.data import DATASETS, data_root
    from holdfast.train.data.root import require_data_root
    from papers.stationary.bridge_scores import SECOND_TEST
    from papers.stationary.readings import OTHER_IMAGES

    needed = [name for run in missing if (name := str(run.recipe["data"]["train"]["name"])) not in DRAWN_SETS]
    if needed:
        require_data_root(data_root(root), *dict.fromkeys(needed))
    if any("bridged" in run.measures and run.recipe["data"]["train"]["name"] == "cifar100" for run in missing):
        for name in (str(OTHER_IMAGES["name"]), str(SECOND_TEST["name"])):
            if DATASETS[name].find(data_root(root)) is None:
                looked_for = " or ".join(DATASETS[name].files)
                raise HoldfastError(f"{data_root(root)}: has no {looked_for}, which the scores of these runs need")


def _outcome(runs: int, unfinished: int, failed: int) -> str:
    """One sentence. The same command resumes stopped runs; failed runs would fail again."""
    done, stopped = runs - unfinished, unfinished - failed
    share = f"{done} of {counted(runs, 'missing run')} {are(done if runs > 1 else 1)} done"
    which = "the stopped ones" if failed else "the others"
    return f"{share}{f'; run the same command to resume {which}' if stopped else ''}."


def show_plan(missing: "list[StudyRun]", pages: "Mapping[str, ResultPage]", json: bool) -> None:
    """The missing runs, and their minutes for each page. A run that several pages need counts for the first."""
    from papers.stationary.formatting import plain
    from papers.stationary.result_page import Table
    from papers.stationary.study_runs import predicted_minutes

    first_page = {run.path: name for name in reversed(list(pages)) for run in pages[name].runs()}
    rows = [
        {"run": run.path.with_suffix("").as_posix(), "page": first_page[run.path], "steps": run.steps,
         "minutes": predicted_minutes(run.recipe), "command": run.command}
        for run in missing
    ]  # fmt: skip
    if json:
        print_json(rows)
        return
    columns = (("steps", ","), ("minutes", ".1f"))
    shown = [[str(r["run"]), *("–" if r[key] is None else format(r[key], how) for key, how in columns)] for r in rows]
    typer.echo(plain(Table("Missing", ["run", "steps", "minutes"], shown, right=(1, 2))))
    by_page = [[row for row in rows if row["page"] == name] for name in pages]
    parts = [[str(part[0]["page"]), str(len(part)), _minutes(part)] for part in by_page if part]
    if len(parts) > 1:
        typer.echo(plain(Table("Missing by page", ["page", "runs", "minutes"], parts, right=(1, 2))))
    steps = [run.steps for run in missing if run.steps is not None]
    total = f", {counted(sum(steps), 'step')}" if steps else ""
    if 0 < len(steps) < len(missing):
        total += f" and those of {len(missing) - len(steps)} that cannot be counted"
    minutes = [float(r["minutes"]) for r in rows if r["minutes"] is not None]
    timed = f", about {counted(round(sum(minutes)), 'minute')} of one H200" if minutes else ""
    others = len(rows) - len(minutes)
    what = f"the network of {others} was" if others == 1 else f"the networks of {others} were"
    untimed = f"; {what} not timed" if others else ""
    typer.echo(f"{counted(len(missing), 'run')}{total}{timed}{untimed}")


def _minutes(rows: list[dict[str, Any]]) -> str:
    """The sum; a dash if a network was not timed."""
    minutes = [row["minutes"] for row in rows]
    return "–" if None in minutes else f"{sum(minutes):.1f}"


def show(
    pages: "Mapping[str, ResultPage]", results: "Results", selection: "Selection", *, json: bool, as_markdown: bool
) -> None:
    from papers.stationary.formatting import markdown, plain

    if json:
        print_json([row for page in pages.values() for row in page.rows(results, selection)])
        return
    for page in pages.values():
        tables = page.tables(results, selection)
        if as_markdown:
            typer.echo(markdown(page.about, tables), nl=False)
            continue
        for table in tables:
            typer.echo(f"{plain(table, _columns())}\n")


def _columns() -> int | None:
    """Width of the terminal; None if the output is not a terminal and COLUMNS is not set."""
    known = sys.stdout.isatty() or os.environ.get("COLUMNS")
    return shutil.get_terminal_size().columns if known else None


def write(
    pages: "Mapping[str, ResultPage]", results: "Results", selection: "Selection", docs: Path | None, html: Path | None
) -> None:
    """Write the Markdown pages and the HTML page."""
    from holdfast.core.storage import write_text
    from papers.stationary.html_page import render_html

    if docs:
        _write_docs(pages, results, selection, docs)
    if html:
        write_text(html, render_html(pages, results, selection))
        typer.echo(f"{html}: written", err=True)
    if selection.narrowed and any(page.figures(results) for page in pages.values()):
        typer.echo("Pictures are left out: they show everything, and only a part was selected.", err=True)


def _write_docs(pages: "Mapping[str, ResultPage]", results: "Results", selection: "Selection", docs: Path) -> None:
    from holdfast.core.storage import write_text
    from papers.stationary.formatting import markdown

    pictures = 0
    for name, page in pages.items():
        figures = page.pictures(results, selection)
        write_text(docs / "results" / f"{name}.md", markdown(page.about, page.tables(results, selection), figures))
        for figure in figures:
            figure.draw(figure.data, docs / "figures" / f"{figure.name}.png")
        pictures += len(figures)
    drawn = f" and {counted(pictures, 'picture')} in {docs / 'figures'}" if pictures else ""
    typer.echo(f"{counted(len(pages), 'page')} written in {docs / 'results'}{drawn}", err=True)


def show_pictures(pages: "Mapping[str, ResultPage]", results: "Results", selection: "Selection") -> None:
    """Without a page to write: draw figures without runs into the current folder, or name the options."""
    from papers.stationary.pages import DRAWINGS

    if not set(pages) <= set(DRAWINGS):
        if any(page.pictures(results, selection) for page in pages.values()):
            typer.echo("Pictures: --html FILE or --docs DIR writes them, with these tables.", err=True)
        return
    for page in pages.values():
        for figure in page.figures(results):
            path = Path(f"{figure.name}.png")
            figure.draw(figure.data, path)
            typer.echo(f"{path.absolute()}: {figure.caption}")
