"""Tables for a terminal: whole where there is room, else with cells over several lines, else in several parts."""

import re
import textwrap
from collections.abc import Sequence

from holdfast.reproduction.exhibit import Table

GAP = "  "


def plain(table: Table, width: int | None = None) -> str:
    """A table as text, at most ``width`` wide where one is given. Nothing is cut off: a longer word stands out."""
    lines = _wrapped(table.title, width)
    for columns in _parts(table, width):
        lines += ["", *_grid(table, columns, width)]
    return "\n".join([*lines, "", *(line for note in table.notes for line in _wrapped(note, width))])


def _parts(table: Table, width: int | None) -> list[list[int]]:
    """The columns of each part; every part begins with those that say whose row it is."""
    every = list(range(len(table.header)))
    if width is None or _total([_least(table, i) for i in every]) <= width:
        return [every]
    whose = every[: table.header.index("method") + 1] if "method" in table.header else every[:1]
    parts = [list(whose)]
    for i in every[len(whose) :]:
        if parts[-1] != whose and _total([_least(table, j) for j in (*parts[-1], i)]) > width:
            parts.append(list(whose))
        parts[-1].append(i)
    return parts


def _grid(table: Table, columns: Sequence[int], width: int | None) -> list[str]:
    widths = {i: max(len(line[i]) for line in (table.header, *table.rows)) for i in columns}
    least = {i: _least(table, i) for i in columns}
    while width is not None and _total(list(widths.values())) > width:
        wide = [i for i in columns if widths[i] > least[i]]
        if not wide:
            break
        widths[max(wide, key=lambda i: widths[i])] -= 1

    def shown(line: Sequence[str]) -> list[str]:
        cells = {i: _wrapped(line[i], widths[i]) if _can_break(line[i]) else [line[i]] for i in columns}
        height = max(map(len, cells.values()))
        filled = {i: [*cell, *[""] * (height - len(cell))] for i, cell in cells.items()}
        sides = {i: str.rjust if i in table.right else str.ljust for i in columns}
        return [GAP.join(sides[i](filled[i][n], widths[i]) for i in columns).rstrip() for n in range(height)]

    header, rows = shown(table.header), [line for row in table.rows for line in shown(row)]
    return [*header, "─" * max(map(len, (*header, *rows))), *rows]


def _least(table: Table, column: int) -> int:
    """How narrow a column can be: its longest word, or numbers that belong together."""
    cells = [line[column] for line in (table.header, *table.rows)]
    return max(max(map(len, cell.split()), default=0) if _can_break(cell) else len(cell) for cell in cells)


def _can_break(cell: str) -> bool:
    """Words can; the paper's three numbers, or "-0.1 to 0.2", are one thing."""
    return bool(re.search(r"[A-Za-z]", cell.replace(" to ", "")))


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + len(GAP) * (len(widths) - 1)


def _wrapped(text: str, width: int | None) -> list[str]:
    if width is None:
        return [text]
    return textwrap.wrap(text, max(width, 1), break_long_words=False, break_on_hyphens=False) or [""]
