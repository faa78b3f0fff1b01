"""Tables of the scores and settings of runs."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.core.wording import decimal, per_cent
from papers.run_pages.html import DASH, plain_table, scroll_box, text
from papers.run_pages.records import RunRecord, flatten


def run_labels(runs: Sequence[RunRecord]) -> list[str]:
    """One display name per run; the folder is added if two runs would have the same name."""
    names = [run.name for run in runs]
    unique = [
        f"{name} ({run.folder.resolve().name})" if names.count(name) > 1 else name for name, run in zip(names, runs)
    ]
    return [f"{name} #{i + 1}" if unique.count(name) > 1 else name for i, name in enumerate(unique)]


def methods_table(
    runs: Sequence[RunRecord], protocols: Sequence[str], rank: bool, *, labels: Sequence[str] = (), AC: str = "AC"
) -> str:
    """AC, AA and ACA of every run under every protocol.

    rank: print the best value of a column in bold, unless all values are equal.
    labels: names of the rows; default ``run_labels``.
    AC: heading of the column of AC.
    """
    best = {
        (name, metric): _best([_metric(run, name, metric) for run in runs])
        for name in protocols
        for metric in ("AC", "AA", "ACA")
    }
    groups = "".join(f'<th scope="colgroup" colspan="3">{text(name.capitalize())} protocol</th>' for name in protocols)
    names = "".join(
        f'<th scope="col" class="first">{text(AC)}</th><th scope="col">AA&nbsp;%</th><th scope="col">ACA&nbsp;%</th>'
        for _ in protocols
    )
    rows = []
    for run, label in zip(runs, labels or run_labels(runs)):
        cells = []
        for name in protocols:
            for metric in ("AC", "AA", "ACA"):
                value = _metric(run, name, metric)
                shown = decimal(value) if metric == "AC" else per_cent(value, 2)
                if rank and value == best[name, metric]:
                    shown = f"<strong>{shown}</strong>"
                if metric == "AC" and name in run.protocols and run.protocols[name].pairs:
                    record = run.protocols[name]
                    shown += f' <small title="pairs kept">{int(record.compatible.sum())}/{record.pairs}</small>'
                first = ' class="first"' if metric == "AC" else ""
                cells.append(f"<td{first}>{shown}</td>")
        rows.append(f'<tr><th scope="row">{text(label)}</th>{"".join(cells)}</tr>')
    return scroll_box(
        "Scores of every method",
        f'<table class="scores"><thead><tr><th rowspan="2" scope="col">Method</th>{groups}</tr><tr>{names}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table>",
    )


def settings_tables(trees: Sequence[Mapping[str, Any]], names: Sequence[str], label: str) -> str:
    """A table of settings that differ, one column per run, and a collapsed table of those that all runs share."""
    leaves = [flatten(tree) for tree in trees]
    keys = list(dict.fromkeys(key for leaf in leaves for key in leaf))
    if not keys:
        return '<p class="quiet">Nothing was recorded.</p>'
    shared = [key for key in keys if all(key in leaf and leaf[key] == leaves[0].get(key) for leaf in leaves)]
    differing = [key for key in keys if key not in shared]
    parts = []
    if differing:
        rows = "".join(
            f'<tr class="differs"><th scope="row">{text(key)}</th>'
            + "".join(f"<td>{_setting(leaf[key]) if key in leaf else DASH}</td>" for leaf in leaves)
            + "</tr>"
            for key in differing
        )
        parts.append(plain_table(f"{label} that differ", ["Differs", *map(text, names)], rows))
    if shared:
        rows = "".join(
            f'<tr><th scope="row">{text(key)}</th><td>{_setting(leaves[0][key])}</td></tr>' for key in shared
        )
        box = plain_table(f"{label} in common", ["Name", "Value"], rows)
        if len(trees) == 1:
            parts.append(box)
        else:
            parts.append(f"<details><summary>In common to all runs ({len(shared)})</summary>{box}</details>")
    return "".join(parts)


def _best(values: Sequence[float]) -> float | None:
    """The highest value, or None if all values are equal."""
    known = [value for value in values if not math.isnan(value)]
    return max(known) if known and min(known) < max(known) else None


def _metric(run: RunRecord, protocol: str, metric: str) -> float:
    return float(getattr(run.protocols[protocol], metric)) if protocol in run.protocols else math.nan


def _setting(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return text(f"{value:g}")
    if isinstance(value, list):
        return text(", ".join(str(item) for item in value))
    return DASH if value is None else text(value)
