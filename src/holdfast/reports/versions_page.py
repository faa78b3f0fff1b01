"""The self-contained HTML page about the versions of one model, and the same as sentences and table rows."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from holdfast.core.storage import write_text
from holdfast.core.wording import counted, decimal, per_cent
from holdfast.reports.check_page import headline_style, history_body
from holdfast.reports.check_text import (
    NOT_COVERED,
    basis_sentence,
    gain_with_interval,
    headline,
    lead_sentences,
)
from holdfast.reports.html import DASH, document, in_columns, plain_table, text
from holdfast.reports.style import check_style

VERSION_HEADS = ("Version", "Folder", "Method", "Classes", "Trained on", "Own gallery %")
CHECK_HEADS = ("Version", "Compared with", "Queries of", "Gain, points", "Against keeping", "Loss accepted")
EXPOSURE_HEADS = ("New version", "Items of version", "Bridge", "Exposure at 1", "Exposure at 10", "Without bridge")
EXPOSURE_NOTE = (
    "Expected exposure of items that an older version embedded, in a gallery of both versions: their share of the "
    "first places, divided by their share after a full re-embedding. 1 is fair; below 1 they are shown too rarely."
)
CHECK_NOTE = "Each version was checked against the one before it when it was made, on the images held out then."


def write_versions(record: dict[str, Any], out: Path, title: str | None = None) -> None:
    """Write the page about the record of ``report_versions`` to ``out`` in one step."""
    write_text(Path(out), render_versions(record, title))


def render_versions(record: dict[str, Any], title: str | None = None) -> str:
    """The whole page as HTML."""
    history = record["history"]
    title = title or "Versions of one model: which may search which gallery?"
    mood = headline_style(history)
    body = [
        f"<h1>{text(title)}</h1>",
        f'<div class="headline {mood}"><p>{text(headline(history))}</p>'
        + "".join(f'<p class="note">{text(sentence)}</p>' for sentence in lead_sentences(history))
        + "</div>",
        "".join(f'<p class="warning">{text(note)}.</p>' for note in (*record["notes"], *history["notes"])),
        f"<p>{text(measured_sentence(record))}</p>",
        in_columns(
            f"{history_body(history)}<h2>Versions</h2>"
            f"{_table('Versions', VERSION_HEADS, version_rows(record))}"
            "<h2>Checks made with each version</h2>"
            f'<p class="note">{text(CHECK_NOTE)}</p>{_table("Checks", CHECK_HEADS, check_rows(record))}'
            "<h2>How often older items are shown</h2>"
            f'<p class="note">{text(EXPOSURE_NOTE)}</p>{_table("Exposure", EXPOSURE_HEADS, exposure_rows(record))}'
            "<h2>What this does and does not say</h2>"
            f'<p>{text(NOT_COVERED)}</p><p class="note">{text(basis_sentence(history))}</p>'
        ),
    ]
    return document(title, check_style(), body, "Made with Holdfast: holdfast report.")


def measured_sentence(record: dict[str, Any]) -> str:
    """What the matrix was measured on."""
    history, noun = record["history"], _noun(record["versions"][-1].get("data", {}))
    return (
        f"Measured on {counted(record['held_out'], noun)} that no version was trained on: "
        f"{counted(history['queries'], 'query')}, a half of each class, on a gallery of "
        f"{counted(history['gallery'], noun)}. Classes that a version did not know are among them."
    )


def _noun(data: dict[str, Any]) -> str:
    """What a version was trained on: "image" or "vector"."""
    return str(data.get("of", "images")).removesuffix("s")


def version_rows(record: dict[str, Any]) -> list[list[str]]:
    """One row for each version, oldest first, with the columns ``VERSION_HEADS``."""
    own = [record["history"]["matrix"][place][place] for place in range(len(record["versions"]))]
    rows = []
    for version, score in zip(record["versions"], own):
        data = version.get("data", {})
        trained = counted(data["images"], _noun(data)) if "images" in data else DASH
        if data.get("replayed"):
            trained += f" + {data['replayed']:,} replayed"
        rows.append(
            [
                str(version["number"]),
                version["name"],
                str(version.get("method", DASH)),
                f"{version['classes']:,}",
                trained,
                DASH if score is None else per_cent(score["value"], 1),
            ]
        )
    return rows


def check_rows(record: dict[str, Any]) -> list[list[str]]:
    """One row for each check that an update made, with the columns ``CHECK_HEADS``."""
    rows = []
    for version in record["versions"]:
        for found in version.get("evidence", ()):
            loss = found.get("loss") or {}
            question = f"{loss['question'][0].lower()}{loss['question'][1:]}: {loss['answer']}" if loss else DASH
            gain = gain_with_interval(found["gain"]) if found.get("gain") else DASH
            queries = f"{found.get('which', 'all classes')}, {found['queries']:,}"
            rows.append([str(version["number"]), str(found["name"]), queries, gain, found["verdict"], question])
    return rows


def exposure_rows(record: dict[str, Any]) -> list[list[str]]:
    """One row for each version and each older one, with the columns ``EXPOSURE_HEADS``."""
    rows = []
    for version in record["versions"]:
        for old in version.get("old_items", ()):
            start = [str(version["number"]), str(old["version"])]
            if "not_measured" in old:
                rows.append([*start, f"not measured: {old['not_measured']}", DASH, DASH, DASH])
                continue
            used, without = (old.get(key) or {} for key in ("exposure", "exposure_without"))
            bare = ", ".join(decimal(without.get(places)) for places in ("1", "10") if without)
            rows.append([*start, old["kind"], decimal(used.get("1")), decimal(used.get("10")), bare or DASH])
    return rows


def _table(label: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    if not rows:
        return '<p class="quiet">Nothing was recorded.</p>'
    body = "".join("<tr>" + "".join(f"<td>{text(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return plain_table(label, [text(name) for name in heads], body)
