"""What ``holdfast check`` prints for people, in 80 columns."""

import textwrap
from pathlib import Path
from typing import Any

import typer

from holdfast.cli.show import print_table
from holdfast.reports.check_words import (
    NOT_COVERED,
    basis,
    evidence,
    gain_sentence,
    headline,
    level,
    losing_classes,
    lost_query,
    per_cent,
    points,
    test_rows,
)

_LISTED = 5


def print_check(record: dict[str, Any], html: Path | None) -> None:
    """The verdict, the tests, the evidence, what was odd about the input, and what is not covered."""
    _say(headline(record))
    if record["kind"] == "history":
        _print_history(record)
    else:
        _print_pair(record)
    for note in record["notes"]:
        _say(f"Note: {note}.")
    _say(basis(record))
    _say(NOT_COVERED)
    if html is not None:
        typer.echo(f"Page: {html.resolve()}")


def _print_pair(record: dict[str, Any]) -> None:
    if sentence := gain_sentence(record):
        _say(sentence)
    rows = [
        [name, per_cent(found["value"]), f"{per_cent(found['low'])} to {per_cent(found['high'])}"]
        for name, found in test_rows(record)
    ]
    if gain := record.get("gain"):
        rows.append(["gain, points", points(gain["value"]), f"{points(gain['low'])} to {points(gain['high'])}"])
    if rows:
        print_table(
            [f"{record['score']}, {record['protocol']} protocol", "%", f"{level(record)} interval"], rows, right=(1, 2)
        )
    lost = (record.get("changes") or {}).get("lost_queries", [])
    first, others = (evidence(record)[:1], evidence(record)[1:]) if lost else ([], evidence(record))
    for sentence in first:
        _say(sentence)
    for entry in lost[:_LISTED]:
        told = textwrap.wrap(lost_query(entry), 74, max_lines=3, placeholder=" ...")  # ids are often long paths
        typer.echo("  " + "\n    ".join(told))
    if len(lost) > _LISTED:
        typer.echo(f"  ... and {len(lost) - _LISTED:,} more: --json lists them all")
    for sentence in others:
        _say(sentence)
    losing = losing_classes(record, _LISTED)
    if losing:
        print_table(
            ["classes that lose most", "queries", "old %", "new %"],
            [[str(e["class"])[:40], str(e["queries"]), per_cent(e["old"]), per_cent(e["new"])] for e in losing],
            right=(1, 2, 3),
        )


def _print_history(record: dict[str, Any]) -> None:
    marks = {"compatible": "+", "incompatible": "-", "not shown": "?", None: " "}
    models = record["models"]
    header = ["query model", *models]
    rows = [[name, *(_cell(record, t, k, marks) for k in range(len(models)))] for t, name in enumerate(models)]
    width = sum(2 + max(len(row[i]) for row in (header, *rows)) for i in range(len(header)))
    if width > 80:
        _say(f"{len(models)} models are too many for a table here: --html and --json give all cells.")
    else:
        print_table(header, rows, right=range(1, len(header)))
        typer.echo(f"{record['score']}, %, on the gallery of each model (columns).")
        typer.echo("+ compatible   ? not shown   - incompatible   – cannot be compared")
    summary = [
        [
            name,
            *(("–" if record[name][key] is None else f"{record[name][key]:.3f}") for key in ("value", "low", "high")),
        ]
        for name in ("AC", "AA", "ACA")
    ]
    print_table(["", "value", "low", "high"], summary, right=(1, 2, 3))
    cells = [verdict for row in record["verdicts"] for verdict in row if verdict]
    _say(", ".join(f"{cells.count(name)} {name}" for name in ("compatible", "not shown", "incompatible")) + ".")
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


def _say(sentence: str) -> None:
    typer.echo("\n".join(textwrap.wrap(sentence, 78)))
