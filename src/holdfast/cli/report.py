"""``holdfast report``: one self-contained page from runs, or from the versions of one model."""

from pathlib import Path
from typing import Any

import typer

from holdfast.cli.options import JSON_OPTION
from holdfast.cli.progress import StageProgress
from holdfast.cli.show import print_json, print_table, say


def report(
    folders: list[Path] = typer.Argument(
        ..., help="Run folders to compare; or model folders of start and update.", metavar="FOLDERS"
    ),
    out: Path = typer.Option(Path("report.html"), "--out", "-o", help="The page to write."),
    title: str | None = typer.Option(None, "--title", help="The title of the page."),
    device: str = typer.Option("auto", "--device", help="For model folders: cpu, cuda, cuda:N or auto."),
    quiet: bool = typer.Option(False, "--quiet", "-q", help="Show no progress."),
    json: bool = JSON_OPTION,
) -> None:
    """Write one page that compares runs, or versions of a model.

    Of runs it has tables, matrices, curves and settings. Of model folders (holdfast start and update) it has each
    version's queries on each version's gallery, measured on the held-out images that the folders name, the verdicts of
    each update, and how often older items are shown. One model folder stands for itself and the versions before it.
    The page loads nothing from the network.

    Example: holdfast report runs/a runs/b --out compare.html
    """
    from holdfast.core.errors import HoldfastError
    from holdfast.core.storage import check_file_writable

    check_file_writable(out)
    models = [folder for folder in folders if _is_model(folder)]
    if models and len(models) < len(folders):
        other = next(folder for folder in folders if folder not in models)
        raise HoldfastError(f"{other}: not a model folder as {models[0]} is; give only runs or only model folders")
    if models:
        _report_versions(folders, out, title, device, quiet=quiet or json, json=json)
        return
    from holdfast.reports import write_report

    write_report(folders, out, title=title)
    if json:
        print_json({"report": str(out), "runs": [str(run) for run in folders]})
    else:
        typer.echo(f"Report: {out.resolve()}")


def _is_model(folder: Path) -> bool:
    """Whether it is a finished version of ``start`` or ``update``; their request and seal are in the folder."""
    return all((folder / name).is_file() for name in ("update.json", "seal.json", "config.json"))


def _report_versions(
    folders: list[Path], out: Path, title: str | None, device: str, *, quiet: bool, json: bool
) -> None:
    from holdfast.reports.versions_page import write_versions

    with StageProgress("report", quiet=quiet) as progress:
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
