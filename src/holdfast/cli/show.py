"""What verbs print on stdout: JSON for programs, text and tables of 80 columns for people."""

import json
import textwrap
from collections.abc import Sequence
from typing import Any

import typer

from holdfast.wording import per_cent


def print_json(value: Any) -> None:
    """Strict JSON on stdout; NaN becomes null."""
    from holdfast.storage import without_nan

    typer.echo(json.dumps(without_nan(value), indent=2, allow_nan=False, ensure_ascii=False))


def say(sentence: str) -> None:
    """Print text wrapped to 80 columns; long words such as paths are not broken."""
    typer.echo("\n".join(textwrap.wrap(sentence, 78, break_long_words=False, break_on_hyphens=False)))


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[int] = ()) -> None:
    """Print a plain table. Columns in ``right`` are right-aligned; the last column wraps at the width of the screen."""
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
            overflow="fold" if last else "ellipsis",  # a path must stay complete
        )
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    Console().print(table)


def fraction(score: float | None) -> str:
    return "–" if score is None or score != score else f"{score:.3f}"


def scores_row(name: str, protocol: dict[str, Any]) -> list[str]:
    """A table row: name, AC as a fraction, AA and ACA in per cent."""
    return [name, fraction(protocol["AC"]), per_cent(protocol["AA"]), per_cent(protocol["ACA"])]


def print_mixed(mixed: dict[str, Any]) -> None:
    """Print the accuracy on the mixed gallery and on the re-embedded one, and the share of each version."""
    say(
        f"Mixed gallery, newest model: accuracy {per_cent(mixed['accuracy'][-1])} %; "
        f"re-embedded: {per_cent(mixed['reindexed'][-1])} %"
    )
    print_table(
        ["embedded by model", "% of gallery", "% of first places", "offset"],
        [
            [
                str(version["model"]),
                per_cent(version["share_of_gallery"]),
                per_cent(version["share_of_hits"]),
                _signed(version["score_offset"]),
            ]
            for version in mixed["versions"]
        ],
        right=range(4),
    )
    say("Offset: how much higher the items score as stored than re-embedded, with queries of their class.")


def _signed(offset: float | None) -> str:
    return "–" if offset is None or offset != offset else f"{offset:+.4f}"
