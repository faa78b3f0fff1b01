"""Numbers as people read them, and tables as Markdown.

Tables for a terminal: whole where there is room, else with cells over several lines, else in several parts.
"""

import re
import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.environment import BETWEEN_SITTINGS
from holdfast.reports import METHOD_NAMES
from holdfast.wording import are, counted
from papers.stationary.exhibit import Figure, Row, Table
from papers.stationary.results import SCORES

MISSING = "missing"
SEEDS_LEGEND = "n: seeds; mean±standard deviation where there are several. paper: its AC, AA % and ACA %."
LEGEND = f"T: tasks. {SEEDS_LEGEND}"
INSTANCE_LEGEND = (
    "AC, AA and ACA by template, as in the paper: the gallery averaged per class. by instance: the same three where"
    " each query looks for its nearest gallery image."
)
AGAIN = "the same again, by the code of the other rows"
SET_LEGEND = "set: whose settings a run has, or changes one of: the paper's, or those tuned on the validation set."
ROUNDING = (
    "The same recipe and seed can give another first model at another commit, where kernels round otherwise, and AC"
    " moves with it: judge AC and small differences over seeds."
)
MAPS = "FAN, our reconstruction of it, reads old galleries through maps: every stored vector passes one per update."


def method_name(method: str) -> str:
    return METHOD_NAMES.get(method, method)


def score(name: str, value: float | None, deviation: float | None = None) -> str:
    """AC as a fraction, AA and ACA in per cent, two decimals; ``mean±sd`` where there is one, a dash for None.

    An AC above zero that would read 0.00 is "<0.01", as the paper prints it: some pair is compatible.
    """
    if value is None:
        return "–"
    factor = 1 if name == "AC" else 100
    spread = "" if deviation is None else f"±{factor * deviation:.2f}"
    shown = f"{factor * value:.2f}"
    return ("<0.01" if name == "AC" and value > 0 and shown == "0.00" else shown) + spread


def scores(row: Mapping[str, Any]) -> list[str]:
    """AC, AA and ACA of a row; where nothing was run, the first says so."""
    if not row["seeds"]:
        return [MISSING, "", ""]
    return [score(name, row[name], row["sd"][name]) for name in SCORES]


def kept_pairs(row: Mapping[str, Any]) -> list[str]:
    """How many pairs of one run are compatible, then its scores; where nothing was run, the first says so."""
    if not row["seeds"]:
        return [MISSING, "", "", ""]
    pairs = row["tasks"] * (row["tasks"] - 1) // 2
    return [f"{round(row['AC'] * pairs)} of {pairs}", *scores(row)]


def by_instance(row: Mapping[str, Any]) -> str:
    """AC, AA and ACA where every gallery image is searched, in one cell; a dash where a run was not judged so."""
    found = row["instance"]
    return "–" if found["AC"] is None else " ".join(score(name, found[name]) for name in SCORES)


def paper_scores(row: Mapping[str, Any]) -> str:
    """The paper's three numbers in one cell."""
    return printed(row["paper"], SCORES)


def printed(paper: Mapping[str, Any] | None, names: Sequence[str] = ("AC", "AA")) -> str:
    """The paper's numbers in one cell, where it prints no ACA the other two; text such as "<0.01" as it is."""
    if paper is None:
        return "–"
    return " ".join(paper[name] if isinstance(paper[name], str) else score(name, paper[name]) for name in names)


def setting(value: Any) -> str:
    """One value of a table of settings; None is what no recipe decides."""
    if isinstance(value, list):
        return ", ".join(str(item) for item in value)
    return "given by the data and the network" if value is None else str(value)


def still_missing(rows: Sequence[Row]) -> tuple[str, ...]:
    """A note that counts the runs not done yet; none if all are."""
    count, done = sum(len(row["missing"]) for row in rows), sum(len(row["seeds"]) for row in rows)
    return (f"{count} of {counted(count + done, 'run')} {are(count)} still missing.",) if count else ()


def settings_table(title: str, rows: Sequence[Row], notes: Sequence[str]) -> Table:
    """The paper's settings beside what the recipes say; rows have ``setting``, ``paper`` and ``here``."""
    lines = [[row["setting"], setting(row["paper"]), setting(row["here"])] for row in rows]
    return Table(title, ["setting", "paper", "recipes"], lines, notes=tuple(notes))


def by_commit(rows: Sequence[Row]) -> tuple[str, ...]:
    """A note of the code that the runs of a table were made with; none if nothing was run."""
    runs = Counter(_short(commit) if commit else "an unknown one" for row in rows for commit in row["commits"])
    made = ", ".join(f"{count} at {commit}" for commit, count in runs.most_common())
    return (f"Runs by commit: {made}. {ROUNDING}",) if runs else ()


def _short(commit: str) -> str:
    """Seven digits, and the mark of uncommitted changes; of a run in several sittings those of each commit."""
    each = commit.split(BETWEEN_SITTINGS)
    return BETWEEN_SITTINGS.join(one[:7] + ("+" if one.endswith("+") else "") for one in each)


def through_maps(rows: Sequence[Row]) -> tuple[str, ...]:
    """What must be known of FAN's numbers, where there is a row of it."""
    return (MAPS,) if any(row["method"] == "fan" for row in rows) else ()


def markdown(title: str, tables: Sequence[Table], figures: Sequence[Figure] = ()) -> str:
    """A page of tables and figures; the figures lie in ``../figures``."""
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
