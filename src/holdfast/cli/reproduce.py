"""``holdfast reproduce``: the paper's tables and figures, run where missing and shown beside the paper's numbers."""

from pathlib import Path

import typer

from holdfast.cli.number_lists import whole_numbers_if_any
from holdfast.cli.run import DATA_OPTION, DEVICE_OPTION, MODELS_OPTION, QUIET_OPTION
from holdfast.cli.show import JSON_OPTION
from holdfast.cli.sweep import PROCESSES_OPTION

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

    Example: holdfast reproduce table2 --set-name paper --seeds 0 --data ~/data --parallel 16 --limit-minutes 25
    """
    from holdfast.cli.reproduce_runs import run_missing, runs_here, show_plan, stay_missing
    from holdfast.cli.reproduce_shown import show, show_pictures, write
    from holdfast.errors import HoldfastError
    from holdfast.reproduction import Results, Selection
    from holdfast.reproduction.choice import matching
    from holdfast.reproduction.drawn import DRAWN
    from holdfast.reproduction.exhibits import chosen, in_order_of_work

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
        from holdfast.cli.decoding_lines import decoding_lines
        from holdfast.recipes.assemble import SharedData

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
