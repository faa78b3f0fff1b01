"""What verbs print: JSON for programs, tables of 80 columns for people."""

import json
import textwrap
from collections.abc import Sequence
from typing import Any

import typer

JSON_OPTION = typer.Option(False, "--json", help="Print JSON instead of text.")


def print_json(value: Any) -> None:
    """Strict JSON on stdout; NaN becomes null."""
    from holdfast.storage import without_nan

    typer.echo(json.dumps(without_nan(value), indent=2, allow_nan=False, ensure_ascii=False))


def say(sentence: str) -> None:
    """Text on stdout, broken into lines that fit 80 columns; a path is never broken."""
    typer.echo("\n".join(textwrap.wrap(sentence, 78, break_long_words=False, break_on_hyphens=False)))


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[int] = ()) -> None:
    """A plain table; columns in ``right`` are aligned to the right. The last column wraps where the screen ends."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False)
    for i, name in enumerate(header):
        last = i == len(header) - 1
        table.add_column(
            name,
            justify="right" if i in right else "left",
            no_wrap=not last,
            overflow="fold" if last else "ellipsis",  # a path has no place to wrap at, and half of one is of no use
        )
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    Console().print(table)


def per_cent(score: float | None) -> str:
    return "–" if score is None or score != score else f"{100 * score:.2f}"


def fraction(score: float | None) -> str:
    return "–" if score is None or score != score else f"{score:.3f}"


def scores_row(name: str, protocol: dict[str, Any]) -> list[str]:
    """Name, AC as a fraction, AA and ACA in per cent: the three numbers of the paper's tables."""
    return [name, fraction(protocol["AC"]), per_cent(protocol["AA"]), per_cent(protocol["ACA"])]
