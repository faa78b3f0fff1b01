"""Page ``goals``: goals of the tuned set and their margins; natural order, means over the finished seeds."""

from dataclasses import dataclass, replace
from typing import Literal

from papers.stationary import table2
from papers.stationary.cifar_runs import OURS, PAPER_METHODS
from papers.stationary.formatting import MISSING, method_name, score
from papers.stationary.result_page import ResultPage, Row, Selection, Table, printed_in_paper
from papers.stationary.results import Results
from papers.stationary.study_runs import StudyRun


@dataclass(frozen=True)
class Goal:
    """A score that a method should reach.

    method: name of the method.
    tasks: number of tasks.
    score: AC, AA or ACA.
    least: a number in [0, 1], or the score of the best of the paper's other methods ("ahead": strictly above it).
    short: allowed distance below the best other method.
    aim: a hope beyond the goals.
    """

    method: str
    tasks: int
    score: str
    least: float | Literal["best other", "ahead of others"]
    short: float = 0.0
    aim: bool = False


_PRINTED = printed_in_paper("table2")["simplex_hoc"]
GOALS = (
    *(Goal("simplex_hoc", tasks, name, "ahead of others") for tasks in (7, 16, 31) for name in ("AC", "ACA")),
    *(Goal("simplex_hoc", tasks, "ACA", _PRINTED[str(tasks)][2] / 100) for tasks in (7, 16, 31)),
    Goal(OURS, 2, "AC", 1.0),
    Goal(OURS, 2, "AA", "best other", short=0.01),
    Goal(OURS, 7, "AC", 0.9),
    Goal(OURS, 7, "AA", 0.482),
    Goal(OURS, 7, "ACA", 0.46),
    Goal(OURS, 16, "AC", 0.9),
    Goal(OURS, 16, "AA", 0.47),
    Goal(OURS, 16, "ACA", 0.432),
    Goal(OURS, 31, "ACA", 0.3),
    Goal(OURS, 31, "AA", "best other"),
    *(Goal(OURS, tasks, "AC", 0.95, aim=True) for tasks in (7, 16, 31)),
    *(Goal(OURS, tasks, "AA", "best other", aim=True) for tasks in (7, 16)),
)


SET, ORDER = "tuned", "natural"
HOW_THEY_CAME = (
    "The goals were set before these runs, from the paper's numbers (ACA of d-Simplex-HOC at least the paper's) and"
    " from the pilot's first sketch of our own method (such as AA at 2 tasks at most a point below the best other)."
)
AIMS = "(aim): a hope beyond the goals."


def _runs() -> list[StudyRun]:
    return [run for run in table2.runs() if (run.set_name, run.order) == (SET, ORDER)]


def _rows(results: Results, selection: Selection) -> list[Row]:
    """The goals of the selected methods, compared with all other methods; selected seeds apply to both."""
    every = replace(selection, methods=None)
    rows = table2.rows(results, every)
    measured = {(row["method"], row["tasks"]): row for row in rows if (row["set"], row["order"]) == (SET, ORDER)}
    return [
        judged(goal, measured)
        for goal in GOALS
        if (goal.method, goal.tasks) in measured and (selection.methods is None or goal.method in selection.methods)
    ]


def judged(goal: Goal, measured: dict[tuple[str, int], Row]) -> Row:
    """A row with ``needed``, ``found``, ``margin`` (found - needed) and ``met``; None while a deciding run is missing.

    A missing rival can only raise ``needed``, so a goal that is missed already counts as not met. ``seeds`` and
    ``files`` belong to ``found``; ``rivals`` are the files of the methods that ``needed`` is the best of.
    """
    own = measured.get((goal.method, goal.tasks), {})
    found = own.get(goal.score)
    needed, some_missing = _needed(goal, measured)
    margin = None if found is None or needed is None else found - needed
    strictly = goal.least == "ahead of others"
    met = None if margin is None else margin > 0 if strictly else margin >= 0
    if some_missing and met is not False:
        needed = margin = met = None
    return {
        "method": goal.method,
        "tasks": goal.tasks,
        "score": goal.score,
        "goal": goal.least if isinstance(goal.least, str) else "at least",
        "aim": goal.aim,
        "needed": needed,
        "found": found,
        "margin": margin,
        "met": met,
        "so_far": some_missing and met is False,
        "short": goal.short,
        "set": SET,
        "order": ORDER,
        "seeds": own.get("seeds", []),
        "missing": own.get("missing", []),
        "files": own.get("files", []),
        "rivals": [] if needed is None else [file for row in _rivals(goal, measured) for file in row.get("files", [])],
    }


def _needed(goal: Goal, measured: dict[tuple[str, int], Row]) -> tuple[float | None, bool]:
    """The needed score as far as known, and whether a rival that could raise it is missing."""
    if isinstance(goal.least, float):
        return goal.least, False
    scores = [rival.get(goal.score) for rival in _rivals(goal, measured)]
    known = [score for score in scores if score is not None]
    return (max(known) - goal.short if known else None), len(known) < len(scores)


def _rivals(goal: Goal, measured: dict[tuple[str, int], Row]) -> list[Row]:
    """Rows of the paper's other methods, if they decide the goal."""
    if isinstance(goal.least, float):
        return []
    return [measured.get((method, goal.tasks), {}) for method in PAPER_METHODS if method != goal.method]


def _tables(results: Results, selection: Selection) -> list[Table]:
    lines = []
    rows = _rows(results, selection)
    for row in rows:
        verdict = MISSING if row["met"] is None else "met" if row["met"] else "not met"
        verdict += " (so far)" if row["so_far"] else ""
        shown = [score(row["score"], row[key]) for key in ("needed", "found", "margin")]
        name = method_name(row["method"]) + (" (aim)" if row["aim"] else "")
        goal = row["goal"] + (f" less {score(row['score'], row['short'])}" if row["short"] else "")
        lines.append([str(row["tasks"]), name, row["score"], goal, *shown, str(len(row["seeds"])), verdict])
    header = ["T", "method", "score", "goal", "needed", "found", "margin", "n", ""]
    note = (
        "AC as a fraction, AA and ACA in per cent. n: seeds behind found, which is their mean. The best other is the"
        " best of the paper's methods, tuned too. The runs are those of [table2](table2.md), which lists their commits."
    )
    if any(row["so_far"] for row in rows):
        note += " So far: compared with the finished runs; missing ones can only raise what is needed."
    notes = (note, HOW_THEY_CAME, *([AIMS] if any(row["aim"] for row in rows) else []))
    return [Table("Goals of the tuned set, natural order", header, lines, right=(0, 4, 5, 6, 7), notes=notes)]


GOALS_PAGE = ResultPage("Goals of the tuned set, and by how much they are met", _runs, _rows, _tables)
