"""Figures of the HTML pages, as inline SVG or tables: line charts, compatibility matrices, intervals, bars."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.reports.html import scroll_box, text

WIDTH, HEIGHT = 480, 300
LEFT, RIGHT, TOP, BOTTOM = 44, 118, 16, 40
LABEL_GAP = 14
COLOURS = 8  # classes c0..c7 of the style sheet; with five markers, forty runs look different
Scale = Callable[[float], float]
MARKERS = ("circle", "square", "triangle", "diamond", "cross")


@dataclass(frozen=True)
class Line:
    """Points of one run.

    label: the name beside the end of the line.
    slot: chooses colour and marker; a run has the same one in every chart of a page.
    x, y: coordinates; points where y is NaN are left out.
    """

    label: str
    slot: int
    x: Sequence[float]
    y: Sequence[float]

    def known(self) -> list[tuple[float, float]]:
        return [(x, y) for x, y in zip(self.x, self.y) if not math.isnan(y)]


def chart(
    lines: Sequence[Line],
    heading: str,
    x_label: str,
    *,
    top: float | None = None,
    from_zero: bool = True,
    markers: bool = True,
) -> str:
    """An SVG line chart.

    top: the end of the y axis; by default a round number above the values.
    from_zero: start the y axis at 0; otherwise at a round number below the values, so that close lines are separated.
    markers: draw a marker at each point.
    """
    lines = [line for line in lines if line.known()]
    if not lines:
        return f'<figure class="chart"><figcaption>{text(heading)}</figcaption><p class="quiet">No values.</p></figure>'
    points = [point for line in lines for point in line.known()]
    smallest = 0.0 if from_zero else min(y for _, y in points)
    largest = top if top is not None else max(y for _, y in points)
    step = _round_step(max(largest - smallest, largest / 20) / 5)  # so that noise in a flat line is not magnified
    y_low = step * math.floor(smallest / step + 1e-9)
    y_top = max(y_low + step, step * math.ceil(largest / step - 1e-9))
    x_low, x_high = min(x for x, _ in points), max(x for x, _ in points)

    def px(x: float) -> float:
        return LEFT + (x - x_low) / ((x_high - x_low) or 1) * (WIDTH - LEFT - RIGHT)

    def py(y: float) -> float:
        return HEIGHT - BOTTOM - (y - y_low) / (y_top - y_low) * (HEIGHT - TOP - BOTTOM)

    parts = [_y_axis(step, y_low, y_top, py), _x_axis(x_low, x_high, px)]
    parts.append(f'<text class="name" x="{(LEFT + WIDTH - RIGHT) / 2:.0f}" y="{HEIGHT - 4}">{text(x_label)}</text>')
    for line in lines:
        placed = [(px(x), py(y)) for x, y in line.known()]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in placed)
        dots = "".join(_marker(line.slot, x, y) for x, y in placed) if markers else ""
        name = text(line.label)
        parts.append(f'<g class="line c{line.slot % COLOURS}"><title>{name}</title>')
        parts.append(f'<polyline points="{path}"/>{dots}</g>')
    parts.append(_end_labels([(line, px(line.known()[-1][0]), py(line.known()[-1][1])) for line in lines]))
    described = "; ".join(f"{line.label} ends at {line.known()[-1][1]:.3g}" for line in lines)
    return (
        f'<figure class="chart"><figcaption>{text(heading)}</figcaption>'
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{text(heading)}. {text(described)}">'
        f"{''.join(parts)}</svg></figure>"
    )


def _y_axis(step: float, low: float, high: float, py: Scale) -> str:
    ticks = [low + i * step for i in range(round((high - low) / step) + 1)]
    return "".join(
        f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{py(y):.1f}" y2="{py(y):.1f}"/>'
        f'<text class="y" x="{LEFT - 8}" y="{py(y) + 4:.1f}">{y:g}</text>'
        for y in ticks
    )


def _x_axis(low: float, high: float, px: Scale) -> str:
    step = max(1, math.ceil(_round_step((high - low) / 7)))
    # Ticks at round numbers, and at the first task.
    ticks = sorted({low, *(float(x) for x in range(step * math.ceil(low / step), int(high) + 1, step))})
    if len(ticks) > 1 and ticks[1] - ticks[0] < step / 2:
        ticks.pop(1)
    return "".join(f'<text class="x" x="{px(x):.1f}" y="{HEIGHT - BOTTOM + 18}">{x:g}</text>' for x in ticks)


def _end_labels(ends: Sequence[tuple[Line, float, float]]) -> str:
    """Names beside the line ends, moved apart so that none covers another, each joined to its line."""
    ordered = sorted(ends, key=lambda end: end[2])
    wanted: list[float] = []
    for _, _, y in ordered:
        wanted.append(max(y, wanted[-1] + LABEL_GAP) if wanted else y)
    parts, lowest = [], float(HEIGHT - BOTTOM)
    for (line, x, y), place in reversed(list(zip(ordered, wanted))):
        place = min(place, lowest)
        lowest = place - LABEL_GAP
        at = WIDTH - RIGHT + 16
        name = line.label if len(line.label) <= 17 else line.label[:16] + "…"
        parts.append(
            f'<g class="end c{line.slot % COLOURS}">'
            f'<line x1="{x + 5:.1f}" y1="{y:.1f}" x2="{at - 3}" y2="{place:.1f}"/>'
            f'<text x="{at}" y="{place + 4:.1f}"><title>{text(line.label)}</title>{text(name)}</text></g>'
        )
    return "".join(parts)


def _marker(slot: int, x: float, y: float) -> str:
    match MARKERS[slot % len(MARKERS)]:
        case "circle":
            return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.2"/>'
        case "square":
            return f'<rect x="{x - 3:.1f}" y="{y - 3:.1f}" width="6" height="6"/>'
        case "triangle":
            return f'<path d="M{x:.1f} {y - 4:.1f}l4 7h-8z"/>'
        case "diamond":
            return f'<path d="M{x:.1f} {y - 4.5:.1f}l4 4.5l-4 4.5l-4-4.5z"/>'
        case _:
            return f'<path class="open" d="M{x - 3:.1f} {y - 3:.1f}l6 6m0-6l-6 6"/>'


def _round_step(rough: float) -> float:
    """The smallest of 1, 2, 2.5, 5 times a power of ten that is at least ``rough``."""
    if rough <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(rough))
    return next(power * lead for lead in (1, 2, 2.5, 5, 10) if power * lead >= rough * (1 - 1e-9))


_INTERVAL_WIDTH, _INTERVAL_LEFT, _INTERVAL_RIGHT, _INTERVAL_ROW = 440, 12, 16, 40


def heat_table(label: str, size: int, heads: str, rows: str) -> str:
    """The table of a matrix over ``size`` models. heads: HTML of the columns' heads. rows: HTML of all rows."""
    return scroll_box(
        label,
        f'<table class="heat"><thead><tr><td></td><th class="axis" colspan="{size}">gallery of model</th></tr>'
        f'<tr><th class="axis corner">query<br>model</th>{heads}</tr></thead><tbody>{rows}</tbody></table>',
    )


def interval_plot(rows: Sequence[tuple[str, dict[str, Any]]], label: str, mark: float | None = None) -> str:
    """A dot with its interval per row, under its name, on a common axis in per cent.

    rows: (name, {"value", "low", "high"}), as shares of 1; those without a value are left out. An end that is None, or
        more than twice the largest value and 1, is cut off there: the interval is wider than the figure.
    mark: a value where a vertical line is drawn.
    """
    rows = [(name, found) for name, found in rows if found["value"] is not None]
    widest = 2 * max([1.0, *(found["value"] for _, found in rows)])
    spans = [_cut_off(found, widest) for _, found in rows]
    ends = [100 * end for span, (_, found) in zip(spans, rows, strict=True) for end in (*span, found["value"])]
    ends += [100 * mark] if mark is not None else []
    low, high, step = _axis(min(ends), max(ends))
    height = _INTERVAL_ROW * len(rows) + 36

    def px(value: float) -> float:
        return _INTERVAL_LEFT + (100 * value - low) / (high - low) * (
            _INTERVAL_WIDTH - _INTERVAL_LEFT - _INTERVAL_RIGHT
        )

    parts = []
    for i in range(round((high - low) / step) + 1):
        at = px((low + i * step) / 100)
        parts.append(f'<line class="grid" x1="{at:.1f}" x2="{at:.1f}" y1="4" y2="{height - 28}"/>')
        parts.append(f'<text class="x" x="{at:.1f}" y="{height - 10}">{low + i * step:g}</text>')
    if mark is not None:
        parts.append(f'<line class="goal" x1="{px(mark):.1f}" x2="{px(mark):.1f}" y1="0" y2="{height - 28}"/>')
    for i, (name, found) in enumerate(rows):
        y = _INTERVAL_ROW * i + 28  # the name is above the line, so that the figure can be narrow
        interval = " to ".join("any" if found[key] is None else f"{100 * found[key]:.2f}" for key in ("low", "high"))
        tooltip = f"{name}: {100 * found['value']:.2f} ({interval})"
        parts.append(
            f'<g class="span c{i}"><title>{text(tooltip)}</title>'
            f'<text class="row" x="0" y="{y - 12:.1f}">{text(name)}</text>'
            f'<line x1="{px(spans[i][0]):.1f}" x2="{px(spans[i][1]):.1f}" y1="{y:.1f}" y2="{y:.1f}"/>'
            f'<circle cx="{px(found["value"]):.1f}" cy="{y:.1f}" r="5"/></g>'
        )
    return (
        f'<figure class="spans"><figcaption>{text(label)}</figcaption>'
        + scroll_box(label, f'<svg viewBox="0 0 {_INTERVAL_WIDTH} {height}" role="img">{"".join(parts)}</svg>')
        + "</figure>"
    )


def _cut_off(found: dict[str, Any], widest: float) -> tuple[float, float]:
    """The ends of an interval, within -widest and widest."""
    low, high = (widest * side if found[key] is None else found[key] for key, side in (("low", -1), ("high", 1)))
    return max(low, -widest), min(high, widest)


def class_bars(entries: Sequence[dict[str, Any]], label: str) -> str:
    """Old and new score of each class as two bars, one under the other."""
    rows = "".join(
        f'<tr><th scope="row">{text(entry["class"])}</th><td>{_bar(entry["old"], "c0")}{_bar(entry["new"], "c1")}</td>'
        f"<td>{100 * entry['old']:.1f}<br>{100 * entry['new']:.1f}</td><td>{entry['queries']}</td>"
        f"<td>{entry['change_in_queries']:+.4g}</td></tr>"
        for entry in entries
    )
    return scroll_box(
        label,
        '<table class="classes"><thead><tr><th scope="col">Class</th>'
        '<th scope="col"><span class="c0">old</span> and <span class="c1">new</span> queries</th>'
        '<th scope="col">%</th><th scope="col">Queries</th><th scope="col">Change, queries</th></tr></thead>'
        f"<tbody>{rows}</tbody></table>",
    )


def score_histogram(histogram: dict[str, list[float]]) -> str:
    """Cosines of right and wrong pairs with old and with new queries."""
    x = [100 * value for value in histogram["cosine"]]
    kinds = ("old wrong", "new wrong", "old right", "new right")
    slots = {"old wrong": 0, "new wrong": 1, "old right": 5, "new right": 4}
    lines = [Line(kind, slots[kind], x, [100 * share for share in histogram[kind]]) for kind in kinds]
    return chart(lines, "Share of pairs at each cosine, %", "cosine x 100", markers=False)


def _bar(value: float, colour: str) -> str:
    return f'<i class="bar {colour}" style="width:{100 * value:.1f}%"></i>'


def _axis(low: float, high: float) -> tuple[float, float, float]:
    """Round ends of an axis around the values, and the step between its ticks."""
    step = _round_step(max(high - low, 0.05) / 5)
    bottom, top = step * math.floor(low / step), step * math.ceil(high / step)
    return bottom, max(top, bottom + step), step
