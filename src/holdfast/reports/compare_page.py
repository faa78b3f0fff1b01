"""A comparison of the ways to serve an upgrade, from its record: table rows, sentences, Markdown and an HTML page."""

from pathlib import Path
from typing import Any

from holdfast.core.storage import write_text
from holdfast.core.wording import counted, per_cent
from holdfast.reports.check_text import plain_markdown, table_markdown
from holdfast.reports.html import document, plain_table, text
from holdfast.reports.style import check_style

COLUMNS = (
    "way",
    "score %",
    "gain over keeping, points",
    "of re-embedding %",
    "embedded now",
    "per query",
    "added ms",
    "storage",
)
_STATUS = {"tested": " (tested)", "reference": "", "exploratory": ""}


def compare_headline(record: dict[str, Any]) -> str:
    """The verdict and its reason, in a sentence."""
    starts = {"recommended": "Recommended", "keep the old model": "Keep the old model", "not judged": "Not judged"}
    return f"{starts[record['verdict']]}: {record['reason']}."


def compare_rows(record: dict[str, Any]) -> list[list[str]]:
    """The rows of the table, as ``COLUMNS`` names them; a way that something is missing for says what it needs."""
    rows = []
    for way in record["ways"]:
        name = way["name"] + _STATUS[way["status"]]
        if way["score"] is None:
            rows.append([f"{name}: needs {way['needs']}", *[""] * 7])
            continue
        gain = "–"
        if way["gain"] is not None:
            low, high = (f"{100 * way['gain'][end]:+.1f}" for end in ("low", "high"))
            gain = f"{100 * way['gain']['value']:+.1f}" + f" ({low} to {high})"
        rows.append(
            [
                name + (f": needs {way['needs']}" if way["needs"] else ""),
                per_cent(way["score"]["value"], 1),
                gain,
                "–" if way["share"] is None else per_cent(way["share"], 0),
                f"{way['embedded_now']:,}",
                f"{way['embedded_per_query']:,}",
                f"{way['added_ms']:.1f}",
                f"{way['storage'] / 1e6:,.1f} MB",
            ]
        )
    return rows


def compare_sentences(record: dict[str, Any]) -> list[str]:
    """What the table rests on and how to read it."""
    if not record["ways"]:
        return []
    tested = record["tested"]
    sentences = [
        f"{record['score']} of {counted(record['judged'], 'judged query')} on {counted(record['items'], 'item')}; "
        f"intervals of {100 * record['confidence']:g} % over queries.",
        (f"One way was tested, {tested}; it is named by a rule that was fixed on other data. " if tested else "")
        + "All other rows are exploratory: the best of many rows looks better than it is, so test it on other queries.",
        "Embedded per query: at most, at first; none once the items' new vectors are kept. Added time: measured here, "
        "without the time of the models. Storage: vectors beside the old index, once all are kept.",
    ]
    if record["pairs"]:
        sentences.append(f"Bridges were fitted on {record['pairs']:,} items that both models embedded.")
    return sentences


def compare_markdown(record: dict[str, Any]) -> str:
    """A comparison as Markdown, for a pull request or a page of documentation."""
    parts = [f"### {plain_markdown(compare_headline(record))}"]
    if record["ways"]:
        parts.append(table_markdown(COLUMNS, compare_rows(record)))
    parts.append("\n".join(f"- {plain_markdown(line)}" for line in (*_notes(record), *compare_sentences(record))))
    return "\n\n".join(part for part in parts if part) + "\n"


def render_comparison(record: dict[str, Any]) -> str:
    """The page as HTML."""
    mood = {"recommended": "compatible", "keep the old model": "incompatible"}.get(record["verdict"], "not-shown")
    rows = "".join(
        "<tr>"
        + f'<th scope="row">{text(row[0])}</th>'
        + "".join(f"<td>{text(cell)}</td>" for cell in row[1:])
        + "</tr>"
        for row in compare_rows(record)
    )
    title = "Is the upgrade better than staying?"
    body = [
        f"<h1>{title}</h1>",
        f'<div class="headline {mood}"><p>{text(compare_headline(record))}</p></div>',
        "".join(f'<p class="warning">{text(note)}</p>' for note in _notes(record)),
        plain_table("Ways to serve the new model", [text(name) for name in COLUMNS], rows) if rows else "",
        "".join(f'<p class="note">{text(line)}</p>' for line in compare_sentences(record)),
    ]
    return document(title, check_style(), body, "Made with Holdfast: holdfast compare.")


def write_comparison(record: dict[str, Any], out: Path) -> None:
    """Write the page to ``out`` in one step."""
    write_text(Path(out), render_comparison(record))


def _notes(record: dict[str, Any]) -> list[str]:
    return [f"{note}." for note in record["notes"]]
