"""The part of the page about a gallery of mixed versions."""

from collections.abc import Sequence
from typing import Any

from holdfast.reports.curves import Line, chart
from holdfast.reports.records import RunRecord, number
from holdfast.reports.tables import per_cent, text

_EXPLAINED = (
    "Items arrive over time and each is embedded once, by the model current when it arrived; the newest model's queries"
    " search all of them together. Embedded anew is what the same search would give had the whole gallery been"
    " re-indexed with the newest model. A version whose items take a far smaller share of first places than of the"
    " gallery is being buried; the offset is how much higher its items score as stored than they would embedded anew."
)


def mixed_section(runs: Sequence[RunRecord], names: Sequence[str]) -> str:
    """Accuracy over time as a chart, and a table of versions for each run; empty where no run was judged this way."""
    shown = [(slot, run.mixed, name) for slot, (run, name) in enumerate(zip(runs, names)) if run.mixed]
    if not shown:
        return ""
    lines = []
    for slot, mixed, name in shown:
        for key, label in (("accuracy", name), ("reindexed", f"{name}, anew")):
            values = [100 * number(value) for value in _list(mixed.get(key))]
            own = slot if key == "accuracy" else slot + len(runs)
            lines.append(Line(label, own, [float(t) for t in range(1, len(values) + 1)], values))
    drawn = chart(lines, "Mixed gallery: accuracy, % (after each task)", "task", from_zero=False)
    tables = "".join(_versions(mixed, name) for _, mixed, name in shown)
    return (
        f'<h2>A gallery of mixed versions</h2><p class="note">{_EXPLAINED}</p><div class="charts">{drawn}</div>{tables}'
    )


def _versions(mixed: dict[str, Any], name: str) -> str:
    rows = "".join(
        f"<tr><td>{text(version.get('model', ''))}</td>"
        f"<td>{per_cent(number(version.get('share_of_gallery')))}</td>"
        f"<td>{per_cent(number(version.get('share_of_hits')))}</td>"
        f"<td>{_signed(version.get('score_offset'))}</td><td>{_signed(version.get('score_offset_others'))}</td></tr>"
        for version in _list(mixed.get("versions"))
        if isinstance(version, dict)
    )
    heads = ("Embedded by model", "Share of gallery %", "Share of first places %", "Offset", "Offset, other classes")
    head = "".join(f'<th scope="col">{title}</th>' for title in heads)
    return (
        f"<details><summary>Versions in the gallery of {text(name)}</summary>"
        f'<div class="scroll" tabindex="0" role="region" aria-label="Versions in the gallery of {text(name)}">'
        f'<table class="settings"><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div></details>'
    )


def _signed(value: Any) -> str:
    offset = number(value)
    return "–" if offset != offset else f"{offset:+.4f}"


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
