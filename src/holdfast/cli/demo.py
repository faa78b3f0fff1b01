"""``holdfast demo``: real texts, two models, and whether the second one is better than staying."""

import shlex
from pathlib import Path
from typing import Any

import typer

from holdfast.cli.options import JSON_OPTION
from holdfast.cli.show import print_json, print_table, program, say

TEXTS, TRAINING = Path("runs/demo"), Path("runs/demo-train")
RECORD = "demo.json"
_ROWS = {
    "keep": "keep the old model",
    "swap": "swap the query model",
    "bridge": "bridge",
    "tested": "two-stage@50",
    "re-embed": "re-embed everything",
}
"""Rows of ``compare`` that the table shows, by name; the tested way has the name of its settings."""


def demo(
    out: Path | None = typer.Option(
        None, "--out", "-o", help="Where its files go.", show_default=f"{TEXTS}, or {TRAINING} with --train"
    ),
    train: bool = typer.Option(
        False, "--train", help="Train two versions of an image model instead; needs the extra train, takes 60 to 90 s."
    ),
    json: bool = JSON_OPTION,
) -> None:
    """Replace the model of a text index, and measure every way to serve the new one.

    The index holds docstrings of Python's standard library; their first paragraphs are the queries. The old model is
    TF-IDF with an SVD, the new one a small pre-trained model (extra demo). No network is needed. The files that it
    leaves are ready for compare, check, bridge and gallery.

    Example: holdfast demo
    """
    if train:
        from holdfast.cli.demo_training import training_demo

        training_demo(out or TRAINING, json=json)
        return
    folder = out or TEXTS
    record = text_demo(folder)
    if json:
        print_json(record)
    else:
        _print(record, folder)


def text_demo(folder: Path) -> dict[str, Any]:
    """Write texts, judgements and the vectors of both models to ``folder``, compare, and return the record."""
    import numpy as np

    from holdfast.checks import compare
    from holdfast.cli.demo_texts import NEW_NAME, OLD_NAME, NewModel, OldModel, standard_library
    from holdfast.core.errors import HoldfastError
    from holdfast.core.storage import replacing, write_json
    from holdfast.reports import compare_report, write_report

    if folder.exists() and any(folder.iterdir()) and not (folder / RECORD).exists():
        raise HoldfastError(f"{folder}: is not empty and not of a demo; choose another --out")
    new_model = NewModel()  # first: it may not be installed
    texts = standard_library()
    items, queries = list(texts.items.values()), list(texts.queries.values())
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / RECORD, {"complete": False})
    texts.write(folder)
    for name, model in (("old", OldModel(items)), ("new", new_model)):
        with replacing(folder / f"{name}.npz") as temporary, temporary.open("wb") as file:
            np.savez(
                file,
                features=model.embed(items),
                ids=list(texts.items),
                queries=model.embed(queries),
                query_ids=list(texts.queries),
            )
    comparison = compare(folder / "old.npz", folder / "new.npz", relevance=folder / "qrels.tsv")
    record = {**comparison.as_json(), "old_model": OLD_NAME, "new_model": NEW_NAME, "complete": True}
    write_report(compare_report(record), folder / "compare.html")
    write_json(folder / RECORD, record)
    return record


def _print(record: dict[str, Any], folder: Path) -> None:
    from holdfast.reports.compare_report import compare_headline, compare_rows

    say(
        f"An index of {record['items']:,} docstrings of Python's standard library, and {record['judged']:,} queries: "
        "the first paragraphs, which ask for the rest of their docstring. Old model: "
        f"{record['old_model']}. New model: {record['new_model']}."
    )
    rows = []
    for way, cells in zip(record["ways"], compare_rows(record), strict=True):
        kind = "tested" if way["name"] == record["tested"] else way["name"]
        if kind in _ROWS:
            score, gain, _, now, per_query = cells[1:6]
            rows.append([_ROWS[kind], *((score, gain, now, per_query) if score else ("–", "impossible", "", ""))])
    print_table(["way", "score", "gain over keeping", "now", "per query"], rows, right=range(1, 5))
    say(
        "Score: nDCG@10 in per cent, 100 if every right docstring is found first. Now, per query: items that the new "
        "model embeds. Swap: the models' vectors have other sizes. Two-stage: the new model scores the old one's best "
        "50, and what it embeds for that is kept."
    )
    say(compare_headline(record))
    say(f"All ways: {folder / 'compare.html'}. The same by a command, and others to try on these files:")
    old, new, judgements = (shlex.quote(str(folder / name)) for name in ("old.npz", "new.npz", "qrels.tsv"))
    for command in (
        f"compare {old} {new} --relevance {judgements}",
        f"bridge --old {old} --new {new} --out {shlex.quote(str(folder / 'bridge'))}",
        f"gallery create {shlex.quote(str(folder / 'gallery'))} --vectors {old}",
    ):
        typer.echo(f"    {program()} {command}")
