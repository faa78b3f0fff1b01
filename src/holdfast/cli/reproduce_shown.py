"""What ``holdfast reproduce`` prints, and the pages and pictures it writes."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from holdfast.cli.show import print_json

if TYPE_CHECKING:
    from holdfast.reproduction import Exhibit, Results, Selection


def show(
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


def write(
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
