"""Page ``bridged``: every method with the settings that page ``search`` chose, without a map and with rotated queries.

Each method has two settings: those with the highest ACA on the validation set, and those with the highest ACA of
rotated queries. All rotated scores are those of the network's own feature (``bridge_scores``).
"""

import functools
import math
import operator
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from papers.stationary.cifar_runs import OURS, REST, TASKS, TUNED
from papers.stationary.formatting import commit_note, fan_note, method_name, missing_note, score, scores, unscored
from papers.stationary.readings import GALLERY_PAIRS, OTHER_PAIRS, PLAIN
from papers.stationary.result_page import ResultPage, Row, Selection, Table
from papers.stationary.results import SCORES, Results, grouped_by_seed, row
from papers.stationary.studies.bridged_tries import METHODS, name_of_change
from papers.stationary.study_runs import StudyRun
from papers.stationary.table8 import COMPACT

WITHOUT, WITH = "ACA", "ACA with rotation"
"""What settings were chosen by, as page ``search`` names it."""

CHOSEN: dict[str, dict[str, tuple[str, ...]]] = {
    "er": {WITHOUT: (), WITH: ()},
    "fan": dict.fromkeys((WITHOUT, WITH), ("method.features_weight=5.0", "method.logits_weight=5.0")),
    "bct": dict.fromkeys((WITHOUT, WITH), ("method.weight=0.3",)),
    "lce": dict.fromkeys((WITHOUT, WITH), ("method.softmax=linear", "method.align=1.0")),
    "advbct": {
        WITHOUT: ("method.tau=0.5", "method.limit=10.0"),
        WITH: ("method.limit=10.0", "method.adversary=0.1"),
    },
    "cvs": dict.fromkeys((WITHOUT, WITH), ("method.coherence=30.0", "train.draw=mixed")),
    "simplex_fd": {WITHOUT: ("method.on=all", "method.base=50.0"), WITH: ()},
    "simplex_hoc": {WITHOUT: ("method.lambda=0.2",), WITH: ("method.lambda=0.3",)},
    "distillation": {WITHOUT: (), WITH: ()},
    OURS: {
        WITHOUT: ("method.lambda_scale=0.5",),
        WITH: ("method.lambda_scale=0.85", "method.length=16.0", "method.slots=1000", COMPACT),
    },
}
"""Method -> score -> the settings that page ``search`` chose by it."""

MORE_SEEDS = (1, 2)
SEVERAL_AT_31 = ("er", "fan", "cvs", "simplex_hoc", "distillation", OURS)
"""Methods that have three seeds at 31 tasks. At 7 and 16 tasks all have."""

OTHER_ORDER = ("simplex_hoc", OURS)
"""Methods that are also run in iCaRL's class order, at 7 and 16 tasks."""


def _run(method: str, by: str, tasks: int, seed: int = 0, order: str = "natural") -> StudyRun:
    settings = CHOSEN[method][by]
    return StudyRun(
        "bridged",
        f"cifar100-10/{method}",
        method,
        tasks,
        order,
        seed,
        change=name_of_change(settings),
        settings=settings,
        stage=TUNED if seed == 0 else REST,
        set_name="tuned",
        measures=("bridged",),
    )


def _seeds(method: str, tasks: int) -> tuple[int, ...]:
    several = tasks in (7, 16) or (tasks == 31 and method in SEVERAL_AT_31)
    return (0, *MORE_SEEDS) if several else (0,)


def _runs_by(by: str) -> list[StudyRun]:
    """In the natural order. The two lists share the runs of methods for which both scores chose the same settings."""
    return [_run(method, by, tasks, seed) for tasks in TASKS for method in METHODS for seed in _seeds(method, tasks)]


def _runs_in_other_order() -> list[StudyRun]:
    return [_run(method, WITHOUT, tasks, order="icarl") for tasks in (7, 16) for method in OTHER_ORDER]


def _runs() -> list[StudyRun]:
    every = [*_runs_by(WITHOUT), *_runs_by(WITH), *_runs_in_other_order()]
    return list({run.path: run for run in every}.values())


def _rows_of(runs: Sequence[StudyRun], by: str, results: Results) -> list[Row]:
    """Rows with ``chosen_by`` and ``bridged``: the ``bridged`` of each finished run, by seed."""
    found = []
    for group in grouped_by_seed(runs):
        records = {run.seed: record for run in group if (record := results.record(run)) is not None}
        bridged = {seed: record["bridged"] for seed, record in records.items()}
        matrices = [record["protocols"]["template"]["matrix"] for record in records.values()]
        line = row(group, results, paper=None)
        found.append({**line, "chosen_by": by, "bridged": bridged, "tests": [_tests(matrix) for matrix in matrices]})
    return found


def _tests(matrix: Sequence[Sequence[float | None]]) -> dict[str, float]:
    """Means of the self-tests and of the cross-tests of a matrix."""
    cells = [(t, k, value) for t, line in enumerate(matrix) for k, value in enumerate(line) if value is not None]
    return {
        "self": statistics.fmean(value for t, k, value in cells if t == k),
        "cross": statistics.fmean(value for t, k, value in cells if k < t),
    }


def _rows(results: Results, selection: Selection) -> list[Row]:
    plain = _rows_of(selection.of([*_runs_by(WITHOUT), *_runs_in_other_order()]), WITHOUT, results)
    return [*plain, *_rows_of(selection.of(_runs_by(WITH)), WITH, results)]


def _tables(results: Results, selection: Selection) -> list[Table]:
    every = _rows(results, selection)
    plain = [line for line in every if line["chosen_by"] == WITHOUT]
    rotated = [line for line in every if line["chosen_by"] == WITH]
    natural, other = ([line for line in plain if line["order"] == order] for order in ("natural", "icarl"))
    made = [
        _plain_table("Without rotation, natural class order", natural),
        _plain_table("Without rotation, iCaRL's class order", other),
        _rotated_table(rotated, results),
        _pairs_table(rotated),
        _second_table(rotated),
        _difference_table(rotated),
        _goals_table(natural, other, rotated),
    ]
    return [table for table in made if table.rows]


TRAINING = "Our own method has 40 epochs and two passes of each image, the others 70 epochs and one."


def _plain_table(title: str, rows: Sequence[Row]) -> Table:
    lines = []
    for line in rows:
        tests = ["", "", ""]
        if line["seeds"]:
            means = [statistics.fmean(one[name] for one in line["tests"]) for name in ("self", "cross")]
            tests = [*(score("AA", mean) for mean in means), _cell(line["instance"])]
        lines.append([*_head(line), *scores(line), *tests])
    notes = (
        "Settings with the highest ACA on the validation set. AC, AA and ACA by template, with the feature that the"
        " recipe names. self, cross: means of the self-tests and of the cross-tests. n: seeds; mean±standard deviation"
        " where there are several.",
        TRAINING,
        *fan_note(rows),
        *commit_note(rows),
        *missing_note(rows),
    )
    header = ["T", "method", "n", "AC", "AA %", "ACA %", "self %", "cross %", "by instance"]
    return Table(title, header, lines, right=(0, 2, 3, 4, 5, 6, 7), notes=notes)


def _rotated_table(rows: Sequence[Row], results: Results) -> Table:
    lines = []
    for line in rows:
        cells = [
            _several(line, name, protocol)
            for name in (GALLERY_PAIRS, OTHER_PAIRS)
            for protocol in ("template", "instance")
        ]
        tests = [_mean(line, GALLERY_PAIRS, "template", name) for name in ("self", "cross")]
        lines.append([*_head(line), *_or_missing(line, [*cells[:2], *tests, *cells[2:]])])
    notes = (
        "Settings with the highest ACA of rotated queries on the validation set. Each cell: AC-R, AA % and ACA %. Every"
        " query on an older gallery is turned by a matrix fitted without labels on 1,000 gallery images (A), or on"
        " 1,000 images of 20 TinyImageNet classes (B). All methods are read from their network's own feature. self,"
        " cross: means of the self-tests and of the cross-tests of A.",
        TRAINING,
        *commit_note(rows),
        *missing_note(rows),
        f"GPU minutes of all runs of this page: {results.minutes(_runs()):.1f}.",
    )
    header = ["T", "method", "n", "A", "A by instance", "self %", "cross %", "B", "B by instance"]
    return Table("With rotated queries, natural class order", header, lines, right=(0, 2, 5, 6), notes=notes)


def _pairs_table(rows: Sequence[Row]) -> Table:
    """What depends on the pairs: the draw, their number, their images in the gallery, and embedding them again."""
    counts = ("100", "200", "500", "1000", "2000", "5000")
    lines = []
    for line in rows:
        if line["tasks"] == 2 or not line["seeds"]:
            continue
        spread = _spread_of_draws(line)
        by_count = [_mean(line, "counts", count, "AA") for count in counts]
        without = _several(line, "without_pairs", GALLERY_PAIRS, "instance")
        again = _several(line, "reembedded", "instance")
        both = "–"
        if all("map_and_rotation" in one for one in line["bridged"].values()):
            both = _several(line, "map_and_rotation", "template")
        lines.append([*_head(line), spread, *by_count, without, again, both])
    notes = (
        "draws: standard deviation of AA over five draws of the 1,000 pairs, in points, the mean of the seeds. Numbers"
        " in a heading: AA % with so many pairs. without pairs: AC-R, AA % and ACA % by instance on the gallery without"
        " the images of the pairs. re-embedded: AC, AA % and ACA % by instance without a rotation, with the 1,000"
        " images embedded by the new model. map and rotation: for methods with learned maps, both, by template.",
    )
    header = ["T", "method", "n", "draws", *counts, "without pairs", "re-embedded", "map and rotation"]
    return Table("Rotated queries: the pairs of protocol A", header, lines, right=(0, 2, *range(3, 10)), notes=notes)


def _spread_of_draws(line: Row) -> str:
    spreads = [statistics.stdev(draw["AA"] for draw in one["draws"][GALLERY_PAIRS]) for one in line["bridged"].values()]
    return f"{100 * statistics.fmean(spreads):.2f}"


def _second_table(rows: Sequence[Row]) -> Table:
    lines = []
    for line in rows:
        if line["seeds"]:
            cells = [
                _several(line, "second_test", name, protocol)
                for name in (PLAIN, GALLERY_PAIRS, OTHER_PAIRS)
                for protocol in ("template", "instance")
            ]
            lines.append([*_head(line), *cells])
    notes = (
        "The same models on 20 classes of miniImageNet at 32 x 32, which no setting was chosen by. Each cell: AC (AC-R"
        " with a rotation), AA % and ACA %. plain: without a rotation, with the maps that a method learned (FAN), from"
        " the network's own feature.",
    )
    header = ["T", "method", "n", "plain", "plain by instance", "A", "A by instance", "B", "B by instance"]
    return Table("A second test: miniImageNet", header, lines, right=(0, 2), notes=notes)


T_975 = {2: 12.706, 3: 4.303}
"""Quantiles of Student's t for a 95 % interval of the mean of two and three differences."""


def _difference_table(rows: Sequence[Row]) -> Table:
    """AA of ours less that of each other method, paired by seed, with rotated queries."""
    lines = []
    for line in rows:
        own = next((one for one in rows if one["method"] == OURS and one["tasks"] == line["tasks"]), None)
        if own is None or line["method"] == OURS:
            continue
        cells = [_difference(own, line, name) for name in (GALLERY_PAIRS, OTHER_PAIRS)]
        if any(cells):
            shared = len(set(own["seeds"]) & set(line["seeds"]))
            lines.append([str(line["tasks"]), method_name(line["method"]), str(shared), *cells])
    notes = (
        "Points of AA by template with rotated queries, ours less the other method, paired by seed; 95 % interval by"
        " Student's t where there are several seeds.",
    )
    header = ["T", "method", "n", "A", "B"]
    return Table("Our own method less each other method", header, lines, right=(0, 2), notes=notes)


def _difference(own: Row, other: Row, name: str) -> str:
    shared = sorted(set(own["bridged"]) & set(other["bridged"]))
    found = [
        own["bridged"][seed][name]["template"]["AA"] - other["bridged"][seed][name]["template"]["AA"] for seed in shared
    ]
    if not found:
        return ""
    mean = statistics.fmean(found)
    if len(found) < 2:
        return f"{100 * mean:+.2f}"
    half = T_975[len(found)] * statistics.stdev(found) / math.sqrt(len(found))
    return f"{100 * mean:+.2f} ({100 * (mean - half):+.2f} to {100 * (mean + half):+.2f})"


@dataclass(frozen=True)
class Goal:
    """A score that our own method should reach, as the mean over its seeds.

    tasks: number of tasks.
    score: AC or AA.
    least: a number in [0, 1], or None for the best of the other methods, or of d-Simplex-HOC in iCaRL's order.
    where: keys in ``bridge_scores``; empty for the plain scores by template, with the feature that the recipe names.
    order: class order.
    """

    tasks: int
    score: str
    least: float | None
    where: tuple[str, ...] = ()
    order: str = "natural"

    @property
    def what(self) -> str:
        maps = {GALLERY_PAIRS: "rotation A", OTHER_PAIRS: "rotation B"}
        words = [maps.get(word, f"by {word}") for word in self.where] or ["without rotation, by template"]
        return ", ".join([*words, *(["iCaRL's order"] if self.order == "icarl" else [])])


GOALS = (
    *(
        Goal(tasks, name, least, (rotation, "template"))
        for tasks in (7, 16, 31)
        for rotation in (GALLERY_PAIRS, OTHER_PAIRS)
        for name, least in (("AC", 0.95), ("AA", None))
    ),
    *(Goal(tasks, "AC", least) for tasks, least in ((7, 0.95), (16, 0.92), (31, 0.75))),
    *(Goal(tasks, "AA", least) for tasks, least in ((7, 0.482), (16, 0.476), (31, 0.473))),
    *(Goal(tasks, "AC", least, (GALLERY_PAIRS, "instance")) for tasks, least in ((7, 0.95), (16, 0.95), (31, 0.6))),
    Goal(16, "AA", 0.44, (GALLERY_PAIRS, "instance")),
    *(Goal(tasks, "AC", None, order="icarl") for tasks in (7, 16)),
)
"""Set before the runs with a rotation. Without one the scores of our own method were known from the tuned set. AA
without a rotation: that of the paper's d-Simplex-HOC."""


def _goals_table(natural: Sequence[Row], other: Sequence[Row], rotated: Sequence[Row]) -> Table:
    lines = []
    for goal in GOALS:
        rows = other if goal.order == "icarl" else rotated if goal.where else natural
        found = {
            line["method"]: _found(line, goal)
            for line in rows
            if line["tasks"] == goal.tasks and line["seeds"] and not line["missing"]
        }
        rivals = [method for method in (OTHER_ORDER if goal.order == "icarl" else METHODS) if method != OURS]
        if OURS not in found or (goal.least is None and not found.keys() >= set(rivals)):
            continue  # a goal is judged when all runs that decide it are there
        needed = max(found[method] for method in rivals) if goal.least is None else goal.least
        own = found[OURS]
        shown = [score(goal.score, value) for value in (needed, own, own - needed)]
        lines.append([str(goal.tasks), goal.what, goal.score, *shown, "met" if own >= needed else "not met"])
    notes = (
        "Goals of our own method, set before the runs with a rotation; its scores without one were known. needed: a"
        " number, or the highest of the other methods with the same rotation (of d-Simplex-HOC in iCaRL's order). AC"
        " with a rotation is AC-R. AA in per cent.",
    )
    header = ["T", "where", "score", "needed", "found", "margin", ""]
    return Table("Goals", header, lines, right=(0, 3, 4, 5), notes=notes)


def _found(line: Row, goal: Goal) -> float:
    if not goal.where:
        return float(line[goal.score])
    keys = (*goal.where, goal.score)
    return statistics.fmean(functools.reduce(operator.getitem, keys, one) for one in line["bridged"].values())


def _head(line: Row) -> list[str]:
    return [str(line["tasks"]), method_name(line["method"]), str(len(line["seeds"]))]


def _or_missing(line: Row, cells: list[str]) -> list[str]:
    return cells if line["seeds"] else [unscored(line), *[""] * (len(cells) - 1)]


def _cell(found: Mapping[str, Any]) -> str:
    return " ".join(score(name, found[name]) for name in SCORES)


def _several(line: Row, *keys: str) -> str:
    """AC, AA and ACA in one cell, each the mean over the seeds. keys: where they are in ``bridge_scores``."""
    found = [functools.reduce(operator.getitem, keys, one) for one in line["bridged"].values()]
    return _cell({name: statistics.fmean(one[name] for one in found) for name in SCORES}) if found else ""


def _mean(line: Row, *keys: str) -> str:
    """One number in per cent, the mean over the seeds."""
    found = [functools.reduce(operator.getitem, keys, one) for one in line["bridged"].values()]
    return score("AA", statistics.fmean(found)) if found else ""


BRIDGED_TABLE = ResultPage("Table 2 with chosen settings and rotated queries", _runs, _rows, _tables)
