"""What verbs print on stdout: JSON for programs, text and tables of 80 columns for people."""

import io
import json
import os
import shutil
import stat
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer

from holdfast.core.wording import decimal, per_cent

quiet = False
"""Whether no progress is drawn: the option -q, which is the program's own."""
LEAST_WIDTH = 20
"""Characters that are left to the wrapped column of a table."""


def print_json(value: Any) -> None:
    """Strict JSON on stdout; NaN becomes null."""
    from holdfast.core.storage import without_nan

    ascii_only = not _takes_unicode(sys.stdout)
    typer.echo(json.dumps(without_nan(value), indent=2, allow_nan=False, ensure_ascii=ascii_only))


def _takes_unicode(stream: Any) -> bool:
    return "utf" in (getattr(stream, "encoding", None) or "utf-8").lower()


def replace_unknown_characters() -> None:
    """Print "?" for characters that the terminal's encoding does not have, instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        if not _takes_unicode(stream) and hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")


class _Pipe(io.FileIO):
    """A pipe that is written to without an error after its reader has ended, such as ``head``."""

    def write(self, part: Any) -> int:
        try:
            return super().write(part)
        except BrokenPipeError:
            with open(os.devnull, "wb") as nowhere:
                os.dup2(nowhere.fileno(), self.fileno())
            return super().write(part)


def outlive_readers() -> None:
    """Complete the verb, with its own exit status, also if what it prints is no longer read."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        try:
            piped = stat.S_ISFIFO(os.fstat(stream.fileno()).st_mode)
        except (AttributeError, OSError, ValueError):  # no stream, or one in memory
            continue
        if piped:
            pipe = io.BufferedWriter(_Pipe(stream.fileno(), "wb", closefd=False))
            text = io.TextIOWrapper(pipe, stream.encoding, stream.errors, line_buffering=stream.line_buffering)
            setattr(sys, name, text)


def program() -> str:
    """The name of this program, or its path if the shell would not find it (``make demo``)."""
    called = Path(sys.argv[0])
    if shutil.which("holdfast") or called.name != "holdfast":
        return "holdfast"
    return os.path.relpath(called)


def say(sentence: str) -> None:
    """Print text wrapped to 80 columns; long words such as paths are not broken."""
    typer.echo("\n".join(textwrap.wrap(sentence, 78, break_long_words=False, break_on_hyphens=False)))


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[int] = ()) -> None:
    """Print a plain table. Columns in ``right`` are right-aligned.

    If the table is wider than the screen, the last column is wrapped, or the first if the last has numbers. Numbers are
    never cut: a table of many numbers is wider than the screen.
    """
    from rich import box
    from rich.cells import cell_len
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False)
    wrapped = 0 if len(header) - 1 in right else len(header) - 1
    for i, name in enumerate(header):
        # "fold": a path must stay complete
        table.add_column(name, justify="right" if i in right else "left", no_wrap=i != wrapped, overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    unlimited = Console(width=10_000, file=io.StringIO())
    unlimited.print(table)
    whole = max(cell_len(line) for line in unlimited.file.getvalue().splitlines())  # type: ignore[attr-defined]
    longest = max(cell_len(row[wrapped]) for row in [header, *rows])
    console = Console()
    needed = whole - longest + min(longest, LEAST_WIDTH)
    Console(width=max(needed, console.width)).print(table)


def scores_row(name: str, protocol: dict[str, Any]) -> list[str]:
    """A table row: name, AC as a fraction, AA and ACA in per cent."""
    return [name, decimal(protocol["AC"], 3), per_cent(protocol["AA"]), per_cent(protocol["ACA"])]
