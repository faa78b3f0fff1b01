"""Scores and notes as text, and tables as Markdown (``markdown``) or for a terminal (``plain``).

A table that is too wide for the terminal gets cells of several lines, then several parts.
"""

import re
import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.core.environment import short_commit
from holdfast.core.wording import are, counted
from papers.run_pages import METHOD_NAMES
from papers.stationary.result_page import Figure, Row, Table
from papers.stationary.results import SCORES

MISSING, DIVERGED = "missing", "diverged"
SEEDS_LEGEND = "n: seeds; mean±standard deviation where there are several. paper: its AC, AA % and ACA %."
LEGEND = f"T: tasks. {SEEDS_LEGEND}"
INSTANCE_LEGEND = (
    "AC, AA and ACA by template, as in the authors' code: the gallery is one mean vector per class. by instance: the"
    " same three with single gallery images."
)
AGAIN = "the same, repeated with the code of the other rows"
SET_LEGEND = "set: settings of a run, or those it changes one of: the paper's, or those tuned on the validation set."
ROUNDING = (
    "The same recipe and seed can give a different first model at another commit, because kernels round differently,"
    " and AC changes with it. Compare AC and small differences over several seeds."
)
MAPS = (
    "FAN (our reconstruction) searches old galleries through maps: each update passes every stored vector through one."
)


def method_name(method: str) -> str:
    return METHOD_NAMES.get(method, method)


def score(name: str, value: float | None, deviation: float | None = None) -> str:
    """AC as a fraction, AA and ACA in per cent, with two decimals; ``mean±sd`` with a deviation, a dash for None.

    An AC above zero that would read 0.00 is "<0.01", as in the paper: some pair is compatible.
    """
    if value is None:
        return "–"
    factor = 1 if name == "AC" else 100
    spread = "" if deviation is None else f"±{factor * deviation:.2f}"
    shown = f"{factor * value:.2f}"
    return ("<0.01" if name == "AC" and value > 0 and shown == "0.00" else shown) + spread


def scores(row: Mapping[str, Any]) -> list[str]:
    """AC, AA and ACA of a row; why there are none and two empty cells if no run has scores."""
    if not row["seeds"]:
        return [unscored(row), "", ""]
    return [score(name, row[name], row["sd"][name]) for name in SCORES]


def compatible_pairs(row: Mapping[str, Any]) -> list[str]:
    """Number of compatible pairs of one run, then its scores; why there are none and empty cells if it has none."""
    if not row["seeds"]:
        return [unscored(row), "", "", ""]
    pairs = row["tasks"] * (row["tasks"] - 1) // 2
    return [f"{round(row['AC'] * pairs)} of {pairs}", *scores(row)]


def unscored(row: Mapping[str, Any]) -> str:
    """Why a row has no scores: every run that was tried diverged, or none was tried."""
    return DIVERGED if row["diverged"] else MISSING


def by_instance(row: Mapping[str, Any]) -> str:
    """AC, AA and ACA by instance, in one cell; a dash if a run was not evaluated by instance."""
    found = row["instance"]
    return "–" if found["AC"] is None else " ".join(score(name, found[name]) for name in SCORES)


def paper_scores(row: Mapping[str, Any]) -> str:
    """The paper's three numbers in one cell."""
    return printed(row["paper"], SCORES)


def printed(paper: Mapping[str, Any] | None, names: Sequence[str] = ("AC", "AA")) -> str:
    """The paper's numbers in one cell. Text such as "<0.01" is not changed."""
    if paper is None:
        return "–"
    return " ".join(paper[name] if isinstance(paper[name], str) else score(name, paper[name]) for name in names)


def setting(value: Any) -> str:
    """One value of a table of settings. None: not a setting of the recipes."""
    if isinstance(value, list):
        return ", ".join(str(item) for item in value)
    return "given by the data and the network" if value is None else str(value)


def missing_note(rows: Sequence[Row]) -> tuple[str, ...]:
    """A note with the number of missing runs; none if all were run."""
    count, done = sum(len(row["missing"]) for row in rows), sum(len(row["seeds"]) for row in rows)
    return (f"{count} of {counted(count + done, 'run')} {are(count)} still missing.",) if count else ()


def diverged_note(rows: Sequence[Row]) -> tuple[str, ...]:
    """A note that explains "diverged", if a row has such a run."""
    return (
        ("diverged: a loss or a weight became NaN or infinite, so the run has no scores.",)
        if any(row["diverged"] for row in rows)
        else ()
    )


def settings_table(title: str, rows: Sequence[Row], notes: Sequence[str]) -> Table:
    """The paper's settings beside those of the recipes; rows have ``setting``, ``paper`` and ``here``."""
    lines = [[row["setting"], setting(row["paper"]), setting(row["here"])] for row in rows]
    return Table(title, ["setting", "paper", "recipes"], lines, notes=tuple(notes))


def commit_note(rows: Sequence[Row]) -> tuple[str, ...]:
    """A note with the commits that the runs of a table were made at; none if nothing was run."""
    runs = Counter(short_commit(commit) for row in rows for commit in row["commits"])
    made = ", ".join(f"{count} at {commit}" for commit, count in runs.most_common())
    return (f"Runs by commit: {made}. {ROUNDING}",) if runs else ()


def fan_note(rows: Sequence[Row]) -> tuple[str, ...]:
    """A note on FAN's stored vectors, if there is a row of FAN."""
    return (MAPS,) if any(row["method"] == "fan" for row in rows) else ()


def markdown(title: str, tables: Sequence[Table], figures: Sequence[Figure] = ()) -> str:
    """A page of tables and figures; the pictures are in ``../figures``."""
    parts = [f"# {title}"]
    for table in tables:
        marks = ["--:" if i in table.right else "---" for i in range(len(table.header))]
        lines = [_line(table.header), _line(marks), *(_line(row) for row in table.rows)]
        parts += [f"## {table.title}", "\n".join(lines), *table.notes]
    parts += [f"![{figure.caption}](../figures/{figure.name}.png)\n\n{figure.caption}" for figure in figures]
    return "\n\n".join(parts) + "\n"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


GAP = "  "


def plain(table: Table, width: int | None = None) -> str:
    """A table as text, at most ``width`` columns wide if given. Nothing is cut off: a longer word exceeds the width."""
    lines = _wrapped(table.title, width)
    for columns in _parts(table, width):
        lines += ["", *_grid(table, columns, width)]
    return "\n".join([*lines, "", *(line for note in table.notes for line in _wrapped(note, width))])


def _parts(table: Table, width: int | None) -> list[list[int]]:
    """The columns of each part. Every part begins with the columns that name the row."""
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
    """The smallest width of a column: its longest word, or its longest group of numbers."""
    cells = [line[column] for line in (table.header, *table.rows)]
    return max(max(map(len, cell.split()), default=0) if _can_break(cell) else len(cell) for cell in cells)


def _can_break(cell: str) -> bool:
    """Whether a cell may be wrapped: text may, a group of numbers or a range such as "-0.1 to 0.2" may not."""
    return bool(re.search(r"[A-Za-z]", cell.replace(" to ", "")))


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + len(GAP) * (len(widths) - 1)


def _wrapped(text: str, width: int | None) -> list[str]:
    if width is None:
        return [text]
    return textwrap.wrap(text, max(width, 1), break_long_words=False, break_on_hyphens=False) or [""]
