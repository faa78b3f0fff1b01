"""What verbs print: JSON for programs, tables of 80 columns for people.

Options that take several numbers.

What is printed of a gallery of mixed versions, in 80 columns.
"""

import json
import textwrap
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import typer

from holdfast.errors import HoldfastError

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


Number = TypeVar("Number", int, float)


def whole_numbers(option: str, words: str) -> list[int]:
    """Whole numbers separated by commas, at least one; anything else is refused by the option's name."""
    return at_least_one(option, words, int, "whole numbers")


def whole_numbers_if_any(option: str, words: str) -> list[int]:
    """The same, and none where nothing is given."""
    return _listed(option, words, int, "whole numbers")


def at_least_one(option: str, words: str, kind: Callable[[str], Number], called: str) -> list[Number]:
    numbers = _listed(option, words, kind, called)
    if not numbers:
        raise HoldfastError(f"{option} must name {called}, got {words!r}")
    return numbers


def _listed(option: str, words: str, kind: Callable[[str], Number], called: str) -> list[Number]:
    try:
        return [kind(word) for word in words.split(",") if word.strip()]
    except ValueError:
        raise HoldfastError(f"{option} must be {called} separated by commas, got {words!r}") from None


def print_mixed(mixed: dict[str, Any]) -> None:
    """The newest model's accuracy on the gallery as it grew and embedded anew, and what each version has of it."""
    say(
        f"Mixed gallery, newest model: accuracy {per_cent(mixed['accuracy'][-1])} %; "
        f"re-indexed: {per_cent(mixed['reindexed'][-1])} %"
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
    say("Offset: how much higher its items score as stored than embedded anew, with queries of their class.")


def _signed(offset: float | None) -> str:
    return "–" if offset is None or offset != offset else f"{offset:+.4f}"
