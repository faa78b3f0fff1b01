"""Pictures of a check: intervals on one axis, classes that change, and where the scores of pairs lie."""

import math
from collections.abc import Sequence
from typing import Any

from holdfast.reports.curves import Line, chart
from holdfast.reports.tables import text

_WIDTH, _LEFT, _RIGHT, _ROW = 640, 236, 24, 34


def interval_plot(rows: Sequence[tuple[str, dict[str, float]]], label: str, mark: float | None = None) -> str:
    """A dot with its interval per row, in per cent on a common axis; ``mark`` draws a line across at that value."""
    ends = [100 * found[key] for _, found in rows for key in ("low", "high", "value")]
    ends += [100 * mark] if mark is not None else []
    low, high, step = _axis(min(ends), max(ends))
    height = _ROW * len(rows) + 34

    def px(value: float) -> float:
        return _LEFT + (100 * value - low) / (high - low) * (_WIDTH - _LEFT - _RIGHT)

    parts = []
    for i in range(round((high - low) / step) + 1):
        at = px((low + i * step) / 100)
        parts.append(f'<line class="grid" x1="{at:.1f}" x2="{at:.1f}" y1="4" y2="{height - 28}"/>')
        parts.append(f'<text class="x" x="{at:.1f}" y="{height - 10}">{low + i * step:g}</text>')
    if mark is not None:
        parts.append(f'<line class="goal" x1="{px(mark):.1f}" x2="{px(mark):.1f}" y1="0" y2="{height - 28}"/>')
    for i, (name, found) in enumerate(rows):
        y = _ROW * i + _ROW / 2 + 2
        told = f"{name}: {100 * found['value']:.2f} ({100 * found['low']:.2f} to {100 * found['high']:.2f})"
        parts.append(
            f'<g class="span c{i}"><title>{text(told)}</title>'
            f'<text class="row" x="0" y="{y + 4:.1f}">{text(name)}</text>'
            f'<line x1="{px(found["low"]):.1f}" x2="{px(found["high"]):.1f}" y1="{y:.1f}" y2="{y:.1f}"/>'
            f'<circle cx="{px(found["value"]):.1f}" cy="{y:.1f}" r="5"/></g>'
        )
    return (
        f'<figure class="spans"><figcaption>{text(label)}</figcaption><div class="scroll" tabindex="0" role="region" '
        f'aria-label="{text(label)}"><svg viewBox="0 0 {_WIDTH} {height}" role="img">{"".join(parts)}</svg>'
        "</div></figure>"
    )


def class_bars(entries: Sequence[dict[str, Any]], label: str) -> str:
    """Old and new score of each class as two bars, one under the other."""
    rows = "".join(
        f'<tr><th scope="row">{text(entry["class"])}</th><td>{_bar(entry["old"], "c0")}{_bar(entry["new"], "c1")}</td>'
        f"<td>{100 * entry['old']:.1f}<br>{100 * entry['new']:.1f}</td><td>{entry['queries']}</td>"
        f"<td>{entry['change_in_queries']:+.4g}</td></tr>"
        for entry in entries
    )
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{text(label)}"><table class="classes"><thead><tr>'
        '<th scope="col">Class</th>'
        '<th scope="col"><span class="c0">old</span> and <span class="c1">new</span> queries</th>'
        '<th scope="col">%</th><th scope="col">Queries</th><th scope="col">Change, queries</th></tr></thead>'
        f"<tbody>{rows}</tbody></table></div>"
    )


def score_histogram(histogram: dict[str, list[float]]) -> str:
    """Where right and wrong pairs lie under old and new queries."""
    x = [100 * value for value in histogram["cosine"]]
    kinds = ("old wrong", "new wrong", "old right", "new right")
    slots = {"old wrong": 0, "new wrong": 1, "old right": 5, "new right": 4}
    lines = [Line(kind, slots[kind], x, [100 * share for share in histogram[kind]]) for kind in kinds]
    return chart(lines, "Share of pairs at each cosine, %", "cosine x 100", markers=False)


def _bar(value: float, colour: str) -> str:
    return f'<i class="bar {colour}" style="width:{100 * value:.1f}%"></i>'


def _axis(low: float, high: float) -> tuple[float, float, float]:
    """Round ends around the values, and the step between ticks."""
    rough = max(high - low, 0.05) / 5
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * lead for lead in (1, 2, 5, 10) if power * lead >= rough * (1 - 1e-9))
    bottom, top = step * math.floor(low / step), step * math.ceil(high / step)
    return bottom, max(top, bottom + step), step
