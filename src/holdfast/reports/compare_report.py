"""A comparison of the ways to serve an upgrade, as a report."""

from typing import Any

from holdfast.core.wording import counted, per_cent
from holdfast.reports.report import Report, Table

COLUMNS = ("way", "score %", "gain over keeping", "of re-emb. %", "now", "per query", "ms", "storage")
_STARTS = {"recommended": "Recommended", "keep the old model": "Keep the old model", "not judged": "Not judged"}
_MOODS = {"recommended": "yes", "keep the old model": "no"}


def compare_headline(record: dict[str, Any]) -> str:
    """The verdict and its reason, in a sentence."""
    return f"{_STARTS[record['verdict']]}: {record['reason']}."


def compare_rows(record: dict[str, Any]) -> list[list[str]]:
    """The rows of the table, as ``COLUMNS`` names them; a way that something is missing for says what it needs."""
    rows = []
    for way in record["ways"]:
        name = way["name"] + (" (tested)" if way["status"] == "tested" else "")
        name += f": needs {way['needs']}" if way["needs"] else ""
        if way["score"] is None:
            rows.append([name, *[""] * (len(COLUMNS) - 1)])
            continue
        gain = "–"
        if way["gain"] is not None:
            value, low, high = (f"{100 * way['gain'][end]:+.1f}" for end in ("value", "low", "high"))
            gain = f"{value} ({low} to {high})"
        cells = [per_cent(way["score"]["value"], 1), gain, "–" if way["share"] is None else per_cent(way["share"], 0)]
        cells += [f"{way['embedded_now']:,}", f"{way['embedded_per_query']:,}", f"{way['added_ms']:.1f}"]
        rows.append([name, *cells, f"{way['storage'] / 1e6:,.1f} MB"])
    return rows


def compare_report(record: dict[str, Any]) -> Report:
    """The report of a comparison's record (``as_json``)."""
    return Report(
        title="Is the upgrade better than staying?",
        headline=compare_headline(record),
        mood=_MOODS.get(record["verdict"], "open"),
        made_by="holdfast compare",
        parts=[Table(COLUMNS, compare_rows(record), _tested(record))] if record["ways"] else [],
        notes=[f"{note}." for note in record["notes"]],
        basis=_basis(record) if record["ways"] else [],
    )


def _tested(record: dict[str, Any]) -> list[int]:
    return [number for number, way in enumerate(record["ways"]) if way["status"] == "tested"]


def _basis(record: dict[str, Any]) -> list[str]:
    """What the table rests on and how to read it."""
    tested = record["tested"]
    sentences = [
        f"{record['score']} of {counted(record['judged'], 'judged query')} on {counted(record['items'], 'item')}; "
        f"gains in points, intervals of {100 * record['confidence']:g} % over queries.",
        (f"One way was tested, {tested}; it is named by a rule that was fixed on other data. " if tested else "")
        + "All other rows are exploratory: the best of many rows looks better than it is, so test it on other queries.",
        "Now, per query: items that the new model embeds before the first search, and at most per search, at first; "
        "none once their new vectors are kept. ms: added per query, measured here, without the time of the models. "
        "Storage: vectors beside the old index, once all are kept.",
    ]
    if record["pairs"]:
        sentences.append(f"Bridges were fitted on {record['pairs']:,} items that both models embedded.")
    return sentences
