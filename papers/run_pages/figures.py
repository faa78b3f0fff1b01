"""Figures of the HTML pages, as inline SVG or tables: line charts, compatibility matrices, intervals, bars."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from papers.run_pages.html import scroll_box, text

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


def heat_table(label: str, size: int, heads: str, rows: str) -> str:
    """The table of a matrix over ``size`` models. heads: HTML of the columns' heads. rows: HTML of all rows."""
    return scroll_box(
        label,
        f'<table class="heat"><thead><tr><td></td><th class="axis" colspan="{size}">gallery of model</th></tr>'
        f'<tr><th class="axis corner">query<br>model</th>{heads}</tr></thead><tbody>{rows}</tbody></table>',
    )
