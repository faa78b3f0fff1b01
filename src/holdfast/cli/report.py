"""``holdfast report``: one self-contained page about the versions of one model."""

from pathlib import Path
from typing import Any

import typer

from holdfast.cli.options import JSON_OPTION
from holdfast.cli.progress import StageProgress
from holdfast.cli.show import print_json, print_table, say


def report(
    folders: list[Path] = typer.Argument(..., help="Model folders of start and update.", metavar="FOLDERS"),
    out: Path = typer.Option(Path("report.html"), "--out", "-o", help="The page to write."),
    title: str | None = typer.Option(None, "--title", help="The title of the page."),
    device: str = typer.Option("auto", "--device", help="For model folders: cpu, cuda, cuda:N or auto."),
    quiet: bool = typer.Option(False, "--quiet", "-q", help="Show no progress."),
    json: bool = JSON_OPTION,
) -> None:
    """Write one page about the versions of a model, from its folders (holdfast start and update).

    It has each version's queries on each version's gallery, measured on the held-out images that the folders name, the
    verdicts of each update, and how often older items are shown. One folder stands for itself and the versions before
    it. The page loads nothing from the network.

    Example: holdfast report models/v1 models/v2 --out versions.html
    """
    from holdfast.core.storage import check_file_writable
    from holdfast.reports.versions_page import write_versions

    check_file_writable(out)
    with StageProgress("report", quiet=quiet or json) as progress:
        from holdfast.train.versions import report_versions

        record = report_versions(folders, device=device, progress=progress)
    write_versions(record, out, title)
    if json:
        print_json({"report": str(out), **record})
        return
    _print_versions(record)
    typer.echo(f"Report: {out.resolve()}")


def _print_versions(record: dict[str, Any]) -> None:
    from holdfast.core.wording import per_cent
    from holdfast.reports.check_text import headline, lead_sentences
    from holdfast.reports.versions_page import CHECK_HEADS, check_rows, exposure_rows, measured_sentence

    history = record["history"]
    say(headline(history))
    for sentence in lead_sentences(history):
        say(sentence)
    say(measured_sentence(record))
    for note in (*record["notes"], *history["notes"]):
        say(f"Note: {note}.")
    names = history["models"]
    rows = []
    for t, name in enumerate(names):
        cells = [history["matrix"][t][k] for k in range(t + 1)]
        scores = ["–" if cell is None else per_cent(cell["value"], 1) for cell in cells]
        verdicts = [verdict or "cannot be compared" for verdict in history["verdicts"][t][:t]]
        rows.append([name, *scores, *[""] * (len(names) - t - 1), ", ".join(verdicts)])
    say(f"{history['score']}, %: queries of a version (row) on the gallery of a version (column)")
    print_table(["version", *names, "verdicts, oldest first"], rows, right=range(len(names) + 1))
    if checks := check_rows(record):
        say("Checks made with each update:")
        print_table([CHECK_HEADS[0].lower(), "queries", "gain, points", "against keeping"], [
            [row[0], row[2], row[3], row[4]] for row in checks
        ])  # fmt: skip
    if exposures := exposure_rows(record):
        say("Expected exposure of older items (1 is fair):")
        heads = ["version", "older", "at 1", "at 10", "no bridge", "bridge"]
        print_table(heads, [[row[0], row[1], row[3], row[4], row[5], row[2]] for row in exposures])
