"""What the verbs of checks print and write, and the options that they share."""

import os
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from holdfast.cli.show import print_json, print_table, say
from holdfast.core.errors import HoldfastError
from holdfast.core.wording import decimal, per_cent

if TYPE_CHECKING:
    from holdfast.checks import CheckResult, HistoryResult, MixedResult

RELEVANCE_OPTION = typer.Option(
    None, "--relevance", help="Which items are right: CSV, TSV or parquet of query id, gallery id[, grade]."
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
HTML_OPTION = typer.Option(None, "--html", help="Write one self-contained page to this file.")
MARKDOWN_OPTION = typer.Option(False, "--markdown", help="Print Markdown for a pull-request comment.")
_LISTED = 5
"""How many lost queries, classes or undecided pairs are printed."""


def device_of_environment() -> Any:
    """Where the search runs: the environment variable HOLDFAST_DEVICE, else the processor."""
    name = os.environ.get("HOLDFAST_DEVICE") or "cpu"
    if name == "cpu":
        return name
    from holdfast.train.devices import resolve_device

    return resolve_device(name)


def refusal(markdown: bool) -> Callable[[str], None]:
    """Prints the reason why nothing was judged as Markdown, for a pull request; prints nothing otherwise."""

    def refuse(reason: str) -> None:
        if markdown:
            from holdfast.reports import refusal_markdown

            typer.echo(refusal_markdown(reason), nl=False)

    return refuse


def refuse_output(html: Path | None, *, markdown: bool, json: bool) -> None:
    """Refuse, before anything is computed, a page that cannot be written and two forms on one stdout."""
    if html is not None:
        from holdfast.core.storage import check_file_writable

        check_file_writable(html)
    if json and markdown:
        raise HoldfastError("--json and --markdown both print to stdout; choose one")


def show_result(
    result: "CheckResult | HistoryResult | MixedResult", html: Path | None, *, markdown: bool, json: bool
) -> None:
    """Print the result in the form that was asked for, write the page, and exit with the result's status."""
    record = result.as_json()
    if json:
        print_json(record)
    elif markdown:
        from holdfast.reports import check_markdown

        typer.echo(check_markdown(record), nl=False)
    else:
        _print_check(record, html)
    if html is not None:  # after the answer is printed, so that it is not lost if the page cannot be written
        from holdfast.reports import write_check

        write_check(record, html)
    raise typer.Exit(result.exit_code)


def _print_check(record: dict[str, Any], html: Path | None) -> None:
    """Print the answers, the share of re-embedding kept, the tests, the evidence, notes, and what is not covered."""
    from holdfast.reports.check_text import basis_sentence, headline, lead_sentences, not_covered

    for sentence in (headline(record), *lead_sentences(record)):
        say(sentence)
    {"history": _print_history, "mixed": _print_mixed, "check": _print_pair}[record["kind"]](record)
    for note in record["notes"]:
        say(f"Note: {note}.")
    say(basis_sentence(record))
    if caveat := not_covered(record):
        say(caveat)
    if html is not None:
        typer.echo(f"Page: {html.resolve()}")


def _print_pair(record: dict[str, Any]) -> None:
    from holdfast.reports.check_text import class_table, evidence_sentences, gain_sentence, lost_query, score_table

    if sentence := gain_sentence(record):
        say(sentence)
    heads, rows = score_table(record)
    if rows:
        print_table(heads, rows, right=(1, 2))
    lost = (record.get("changes") or {}).get("lost_queries", [])
    evidence = evidence_sentences(record)
    first, others = (evidence[:1], evidence[1:]) if lost else ([], evidence)
    for sentence in first:
        say(sentence)
    for entry in lost[:_LISTED]:
        lines = textwrap.wrap(lost_query(entry), 74, max_lines=3, placeholder=" ...")  # ids are often long paths
        typer.echo("  " + "\n    ".join(lines))
    if len(lost) > _LISTED:
        typer.echo(f"  ... and {len(lost) - _LISTED:,} more: --json lists them all")
    for sentence in others:
        say(sentence)
    heads, losing = class_table(record, _LISTED)
    if losing:
        print_table(heads, [[name[:40], *numbers] for name, *numbers in losing], right=(1, 2, 3))


def _print_mixed(record: dict[str, Any]) -> None:
    from holdfast.reports.check_text import (
        EXPOSURE_MEANING,
        VERSION_COLUMNS,
        score_table,
        version_rows,
        version_sentences,
    )

    heads, rows = score_table(record)
    print_table(heads, rows, right=(1, 2))
    print_table(VERSION_COLUMNS, version_rows(record), right=range(1, len(VERSION_COLUMNS)))
    say(EXPOSURE_MEANING)
    for sentence in version_sentences(record):
        say(sentence)


def _print_history(record: dict[str, Any]) -> None:
    from holdfast.reports.check_text import points

    marks = {"better": "+", "worse": "-", "not shown": "?", None: " "}
    models = record["models"]
    header = ["query model", *models]
    rows = [[name, *(_cell(record, t, k, marks) for k in range(len(models)))] for t, name in enumerate(models)]
    width = sum(2 + max(len(row[i]) for row in (header, *rows)) for i in range(len(header)))
    if width > 80:
        say(f"{len(models)} models are too many for a table here: --html and --json give all cells.")
    else:
        print_table(header, rows, right=range(1, len(header)))
        typer.echo(f"{record['score']}, %, on the gallery of each model (columns).")
        typer.echo("+ better than keeping   ? not shown   - worse   – cannot be compared")
    say(", ".join(f"{name} {decimal(record[name], 3)}" for name in ("AC", "AA", "ACA")) + ".")
    cells = [verdict for row in record["verdicts"] for verdict in row if verdict]
    say(", ".join(f"{cells.count(name)} {name}" for name in ("better", "not shown", "worse")) + ".")
    for cell in record["uncertain"][:_LISTED]:
        gain = cell["gain"]
        typer.echo(
            f"  not decided: model {cell['query_model']} on gallery {cell['gallery_model']}: "
            f"{points(gain['value'])} ({points(gain['low'])} to {points(gain['high'])}) points"
        )
    if len(record["uncertain"]) > _LISTED:
        typer.echo(f"  ... and {len(record['uncertain']) - _LISTED} more: --json lists them all")


def _cell(record: dict[str, Any], t: int, k: int, marks: dict[Any, str]) -> str:
    found = record["matrix"][t][k]
    if found is None:
        return "–  " if k < t else ""
    return f"{per_cent(found['value'], 1)} {marks[record['verdicts'][t][k]]}"
