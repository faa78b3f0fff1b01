"""``holdfast report``: one self-contained page from one or more runs."""

from pathlib import Path

import typer

from holdfast.cli.options import JSON_OPTION
from holdfast.cli.show import print_json


def report(
    runs: list[Path] = typer.Argument(..., help="Run folders to compare."),
    out: Path = typer.Option(Path("report.html"), "--out", "-o", help="The page to write."),
    title: str | None = typer.Option(None, "--title", help="The title of the page."),
    json: bool = JSON_OPTION,
) -> None:
    """Write one HTML page that compares runs.

    It has their tables, matrices, curves and settings, and loads nothing from the network.
    """
    from holdfast.reports import write_report

    write_report(runs, out, title=title)
    if json:
        print_json({"report": str(out), "runs": [str(run) for run in runs]})
    else:
        typer.echo(f"Report: {out.resolve()}")
