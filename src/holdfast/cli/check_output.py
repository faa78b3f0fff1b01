"""What the verbs of checks print and write, and the options that they share."""

import os
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from holdfast.cli.progress import ProgressDisplay
from holdfast.cli.show import print_json, print_table, say
from holdfast.cli.verdict_exit import exit_on_failure
from holdfast.core.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.reports import Report
    from holdfast.vectors.search import Progress

RELEVANCE_OPTION = typer.Option(
    None, "--relevance", help="Which items are right: BEIR, TREC, CSV or parquet of query id, item id[, grade]."
)
KNOWN_ITEMS_OPTION = typer.Option(
    None, "--known-items", help="Instead of query files: .npz with old, new and item, the right item's id."
)
SCORE_OPTION = typer.Option(
    None,
    "--score",
    help="nDCG@K, MRR@K, recall@K, hit@K, P@K or mAP.",
    show_default="nDCG@10 with --relevance, else hit@1",
)
MAX_LOSS_OPTION = typer.Option(
    None,
    "--max-loss",
    help="The accepted loss, as a fraction of 1; 0 asks for a gain.",
    show_default="0.01, a point",
)
MIN_AGREEMENT_OPTION = typer.Option(
    None,
    "--min-agreement",
    help="Without judgements: smallest share of a re-embedding's hits, such as 0.9. It does not say what people find.",
)
PAGE_OPTION = typer.Option([], "--page", help="Write a report: FILE.html, or FILE.md for a pull request. Give several.")
_LISTED = 5
"""How many lost queries, classes or undecided pairs are printed."""
_WIDTH = 80


def device_of_environment() -> Any:
    """Where the search runs: the environment variable HOLDFAST_DEVICE, else the processor."""
    name = os.environ.get("HOLDFAST_DEVICE") or "cpu"
    if name == "cpu":
        return name
    from holdfast.train.devices import resolve_device

    return resolve_device(name)


def load_bridge(folder: Path) -> Any:
    from holdfast.bridges import Bridge

    return Bridge.load(folder)


ColumnNames = tuple[str | None, str | None, str | None]
"""The values of --id, --vector and --label."""


def named_columns(source: Path | None, columns: ColumnNames, noun: str) -> Any:
    """A file as vectors from the columns of these names; a file without named columns, and None, as they are."""
    if source is None or not any(columns):
        return source
    from holdfast.vectors.feature_files import read_features
    from holdfast.vectors.vector_tables import Columns

    return read_features(source, noun, Columns(*columns))


def query_files(
    old: Path | None, new: Path | None, known_items: Path | None, columns: ColumnNames
) -> tuple[Any, Any, Any]:
    """The queries of both models (None if not given) and, of known items, the id of the right one of each."""
    if known_items is None:
        return named_columns(old, columns, "query"), named_columns(new, columns, "query"), None
    if old is not None or new is not None:
        raise HoldfastError("--known-items has the queries of both models; leave out --queries-old and --queries-new")
    from holdfast.checks.known_items import read_known_items

    return read_known_items(known_items)


@contextmanager
def judging(verb: str, pages: Sequence[Path], *, json: bool) -> Iterator["Progress"]:
    """Run a check: pages are refused before anything is computed, and hold the reason if nothing could be judged."""

    def refuse(reason: str) -> None:
        from holdfast.reports import refusal_report, write_report

        for page in pages:
            try:
                write_report(refusal_report(reason, f"holdfast {verb}"), page)
            except (HoldfastError, OSError):
                continue  # the page itself may be what is wrong

    with exit_on_failure("compare" if verb == "compare" else "check", json=json, refuse=refuse):
        if pages:
            from holdfast.reports.report import check_page_file

            for page in pages:
                check_page_file(page)
        with ProgressDisplay(verb) as progress:
            yield progress


def show_result(result: Any, report: "Report", pages: Sequence[Path], *, json: bool) -> None:
    """Print the result, write the pages, and exit with the result's status."""
    if json:
        print_json(result.as_json())
    else:
        print_report(report)
    if pages:  # after the answer is printed, so that it is not lost if a page cannot be written
        from holdfast.reports import write_report

        for page in pages:
            write_report(report, page)
            if not json:
                typer.echo(f"Page: {page.resolve()}")
    raise typer.Exit(result.exit_code)


def print_report(report: "Report") -> None:
    """Print the answers, the evidence, notes, and what the numbers do not cover."""
    from holdfast.reports.report import Listing, Table

    for sentence in (report.headline, *report.lead):
        say(sentence)
    for part in report.parts:
        if isinstance(part, Table):
            rows = [list(row) for row in part.rows[: _LISTED if part.folded else None]]
            if part.narrow and _width([part.heads, *rows]) > _WIDTH:
                say(part.narrow)
                continue
            if part.folded:
                rows = [[row[0][:40], *row[1:]] for row in rows]
            print_table(part.heads, rows, right=range(1, len(part.heads)))
        elif isinstance(part, Listing):
            typer.echo(f"{part.title}:")
            for sentence in part.lines[:_LISTED]:
                lines = textwrap.wrap(sentence, 74, max_lines=3, placeholder=" ...")  # ids are often long paths
                typer.echo("  " + "\n    ".join(lines))
            if len(part.lines) > _LISTED:
                typer.echo(f"  ... and {len(part.lines) - _LISTED:,} more: --json lists them all")
        else:
            say(part)
    for sentence in (*(f"Note: {note}" for note in report.notes), *report.basis):
        say(sentence)


def _width(rows: Sequence[Sequence[str]]) -> int:
    return sum(2 + max(map(len, column)) for column in zip(*rows))
