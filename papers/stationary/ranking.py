"""Whether the paper's ranking of the methods holds: a table with a line for each number of tasks and score."""

import itertools
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from papers.stationary.formatting import method_name
from papers.stationary.result_page import Table
from papers.stationary.results import Results, grouped_by_seed
from papers.stationary.study_runs import StudyRun

RANKED = ("AC", "AA")
BELOW_A_HUNDREDTH = 0.005
"""The AC that stands for "<0.01" in the paper."""

Curves = dict[str, list[float | None]]
"""AC and AA of the first 1, 2, ... models of a run, by name of the score."""


def mean_curves(results: Results, runs: Sequence[StudyRun]) -> dict[str, Curves]:
    """AC and AA after each task, by method, as means over the finished seeds. ``runs`` have one number of tasks."""
    found = {}
    for group in grouped_by_seed(runs):
        records = [record for run in group if (record := results.record(run)) is not None]
        if records:
            templates = [record["protocols"]["template"] for record in records]
            found[group[0].method] = {
                name: [_mean(values) for values in zip(*(one[f"{name}_tau"] for one in templates))] for name in RANKED
            }
    return found


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if len(known) == len(values) else None


def ranking_table(
    results: Results, runs: Sequence[StudyRun], paper: Mapping[str, Any], ends: Sequence[int] = ()
) -> list[Table]:
    """The comparison of both rankings; no table if there are no two methods to compare.

    paper: method -> number of tasks, as text -> AC and AA as the paper prints them, perhaps followed by ACA.
    ends: numbers of tasks after which the methods are compared; by default the number of tasks of each run.
    """
    lines = []
    for tasks in sorted({run.tasks for run in runs}):
        here = mean_curves(results, [run for run in runs if run.tasks == tasks])
        for end in ends or [tasks]:
            printed = {
                method: [as_number(value) for value in by_tasks[str(end)][: len(RANKED)]]
                for method, by_tasks in paper.items()
                if method in here and str(end) in by_tasks
            }
            for i, name in enumerate(RANKED):
                theirs = {method: value for method, values in printed.items() if (value := values[i]) is not None}
                all_curves = {method: here[method][name][:end] for method in theirs}
                curves = {method: curve for method, curve in all_curves.items() if curve[-1] is not None}
                if len(curves) > 1:
                    compared = _compared(curves, {method: theirs[method] for method in curves})
                    lines.append([str(end), name, str(len(curves)), *compared])
    of_the_first = " of the first T tasks" if ends else ""
    notes = (
        f"AC and AA{of_the_first} by template, means over the seeds. pairs in its order: a of b, where b pairs of"
        " methods have different scores in the paper and a of them have the same order here. A pair with equal scores"
        " here is counted in b only. since task: from that task on the other order holds after every task.",
    )
    header = ["T", "score", "methods", "first", "first in the paper", "pairs in its order", "not in its order"]
    return [Table("The paper's ranking", header, lines, right=(0, 2), notes=notes)] if lines else []


def as_number(printed: float | str) -> float | None:
    """A score as the paper prints it; None for a dash."""
    if isinstance(printed, str):
        return BELOW_A_HUNDREDTH if printed == "<0.01" else None
    return printed


@dataclass(frozen=True)
class Inversion:
    """Two methods in another order than in the paper, and the task from which on they are."""

    behind: str
    ahead: str
    since: int

    def other(self, method: str) -> str:
        return self.ahead if method == self.behind else self.behind


def _compared(curves: Mapping[str, Sequence[float | None]], paper: Mapping[str, float]) -> list[str]:
    """Cells of one score: first here, first in the paper, number of pairs in the paper's order, and the others."""
    last = {method: curve[-1] or 0.0 for method, curve in curves.items()}
    apart, same, inverted = 0, 0, []
    for pair in itertools.combinations(paper, 2):
        ahead, behind = sorted(pair, key=lambda method: -paper[method])
        if paper[ahead] == paper[behind]:
            continue
        apart += 1
        same += last[ahead] > last[behind]
        if last[ahead] < last[behind]:
            inverted.append(Inversion(behind=ahead, ahead=behind, since=_since(curves[behind], curves[ahead])))
    return [_first(last), _first(paper), f"{same} of {apart}" if apart else "–", _named(inverted)]


def _first(scores: Mapping[str, float]) -> str:
    """The method with the highest score; "all" if every method has it."""
    highest = [method for method, value in scores.items() if value == max(scores.values())]
    return "all" if len(highest) == len(scores) else ", ".join(map(method_name, highest))


def _since(ahead: Sequence[float | None], behind: Sequence[float | None]) -> int:
    """The first task from which on ``ahead`` is above ``behind`` after every task."""
    since = len(ahead)
    while since > 1 and (ahead[since - 2] or 0.0) > (behind[since - 2] or 0.0):
        since -= 1
    return since


def _named(inverted: Sequence[Inversion]) -> str:
    """The pairs in another order, by the methods with most of them; a dash if there are none."""
    left = list(inverted)
    parts: list[str] = []
    while left:
        behind, ahead = [pair.behind for pair in left], [pair.ahead for pair in left]
        most = max(dict.fromkeys(behind + ahead), key=lambda method: max(behind.count(method), ahead.count(method)))
        is_behind = behind.count(most) >= ahead.count(most)
        own = [pair for pair in left if most == (pair.behind if is_behind else pair.ahead)]
        parts.append(f"{method_name(most)} is {'behind' if is_behind else 'ahead of'} {', '.join(_by_task(own, most))}")
        left = [pair for pair in left if pair not in own]
    return "; ".join(parts) or "–"


def _by_task(pairs: Sequence[Inversion], method: str) -> Iterator[str]:
    """The other methods of the pairs, such as "ER and FAN since task 2", by task."""
    for since in sorted({pair.since for pair in pairs}):
        *names, last = [method_name(pair.other(method)) for pair in pairs if pair.since == since]
        yield f"{', '.join(names)}{' and ' if names else ''}{last} since task {since}"
