"""What ``holdfast reproduce`` prints, and the pages and pictures it writes."""

import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from holdfast.cli.show import print_json
from holdfast.wording import counted

if TYPE_CHECKING:
    from holdfast.reproduction import Exhibit, Results, Selection


def show(
    exhibits: "Mapping[str, Exhibit]", results: "Results", selection: "Selection", *, json: bool, as_markdown: bool
) -> None:
    from holdfast.reproduction.layout import markdown
    from holdfast.reproduction.terminal import plain

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
    from holdfast.reproduction.page import render_page
    from holdfast.storage import write_text

    if docs:
        _write_docs(exhibits, results, selection, docs)
    if html:
        write_text(html, render_page(exhibits, results, selection))
        typer.echo(f"{html}: written", err=True)
    if selection.narrowed and any(exhibit.figures(results) for exhibit in exhibits.values()):
        typer.echo("Pictures are left out: they show everything, and only a part was chosen.", err=True)


def _write_docs(exhibits: "Mapping[str, Exhibit]", results: "Results", selection: "Selection", docs: Path) -> None:
    from holdfast.reproduction.layout import markdown
    from holdfast.storage import write_text

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
    from holdfast.reproduction.drawn import DRAWN

    if not set(exhibits) <= set(DRAWN):
        if any(exhibit.pictures(results, selection) for exhibit in exhibits.values()):
            typer.echo("Pictures: --html FILE or --docs DIR writes them, with these tables.", err=True)
        return
    for exhibit in exhibits.values():
        for figure in exhibit.figures(results):
            path = Path(f"{figure.name}.png")
            figure.draw(figure.data, path)
            typer.echo(f"{path.absolute()}: {figure.caption}")
