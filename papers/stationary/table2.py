"""Table 2: ten methods on CIFAR100/10 with 2, 7, 16 and 31 tasks, without and with rotated queries.

Each method has up to three settings: the paper's, those with the highest ACA on the validation set, and those with the
highest ACA of rotated queries there (page ``search``). All rotated scores are those of the network's own feature
(``bridge_scores``).
"""

import functools
import math
import operator
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from holdfast.core.wording import counted
from papers.stationary.cifar_runs import FIRST_SEED, ICARL, OURS, REST, SEEDS, TASKS, TUNED
from papers.stationary.formatting import (
    commit_note,
    fan_note,
    method_name,
    missing_note,
    paper_scores,
    score,
    scores,
    unscored,
)
from papers.stationary.plots import DASHED, draw_over_tasks
from papers.stationary.ranking import ranking_table
from papers.stationary.readings import GALLERY_PAIRS, OTHER_PAIRS, PLAIN
from papers.stationary.result_page import Figure, ResultPage, Row, Selection, Table, printed_in_paper
from papers.stationary.results import SCORES, Results, grouped_by_seed, row
from papers.stationary.studies.validation_tries import METHODS, name_of_change
from papers.stationary.study_runs import StudyRun
from papers.stationary.table2_goals import OTHER_ORDER, goals_table
from papers.stationary.table8 import COMPACT

PAPER, WITHOUT, WITH = "paper", "ACA", "ACA with rotation"
"""Where settings come from: the paper, or the score they were chosen by, as page ``search`` names it."""

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

BOTH_EXECUTORS = ("er", "simplex_hoc")
"""Methods that are also run with torch's kernels, at 7 tasks and three seeds."""


def settings_of(method: str, source: str) -> tuple[str, ...]:
    """The settings that are changed in the recipe, which has the paper's.

    Our own method is not in the paper; beside the paper's settings it has those with the highest ACA.
    """
    if source == PAPER:
        return CHOSEN[method][WITHOUT] if method == OURS else ()
    return CHOSEN[method][source]


def table2_run(method: str, source: str, tasks: int, seed: int = 0, order: str = "natural") -> StudyRun:
    """A run of this table. source: PAPER, WITHOUT or WITH."""
    settings = settings_of(method, source)
    first = FIRST_SEED if source == PAPER else TUNED
    return StudyRun(
        "table2",
        f"cifar100-10/{method}",
        method,
        tasks,
        order,
        seed,
        change=name_of_change(settings),
        settings=settings,
        stage=ICARL if order == "icarl" else SEEDS if seed else first,
        set_name="paper" if source == PAPER else "tuned",
        measures=("bridged",),
    )


def _seeds(method: str, tasks: int) -> tuple[int, ...]:
    several = tasks in (7, 16) or (tasks == 31 and method in SEVERAL_AT_31)
    return (0, *MORE_SEEDS) if several else (0,)


def _runs_of(source: str) -> list[StudyRun]:
    """In the natural order. The lists share the runs of methods that have the same settings in both."""
    return [
        table2_run(method, source, tasks, seed)
        for tasks in TASKS
        for method in METHODS
        for seed in _seeds(method, tasks)
    ]


def _runs_in_other_order(source: str) -> list[StudyRun]:
    return [table2_run(method, source, tasks, order="icarl") for tasks in (7, 16) for method in OTHER_ORDER]


def _runs_with_graph() -> list[tuple[StudyRun, StudyRun]]:
    """Pairs of runs: with the fused kernels, and with torch's kernels in a CUDA graph."""
    pairs = []
    for method in BOTH_EXECUTORS:
        for seed in (0, *MORE_SEEDS):
            fused = table2_run(method, PAPER, 7, seed)
            settings = (*fused.settings, "train.executor=graph")
            graph = replace(fused, change=f"{fused.change}-graph", settings=settings, stage=REST, measures=())
            pairs.append((fused, graph))
    return pairs


def _runs() -> list[StudyRun]:
    """All runs. One that the paper's and the chosen settings share is in the list of each, with the same path."""
    every = [run for source in (PAPER, WITHOUT, WITH) for run in _runs_of(source)]
    every += [run for source in (PAPER, WITHOUT) for run in _runs_in_other_order(source)]
    return [*every, *(graph for _, graph in _runs_with_graph())]


def _rows_of(runs: Sequence[StudyRun], source: str, results: Results) -> list[Row]:
    """Rows with ``source`` and ``bridged``: the ``bridged`` of each finished run, by seed."""
    printed = printed_in_paper("table2")
    found = []
    for group in grouped_by_seed(runs):
        records = {run.seed: record for run in group if (record := results.record(run)) is not None}
        bridged = {seed: record["bridged"] for seed, record in records.items()}
        matrices = [record["protocols"]["template"]["matrix"] for record in records.values()]
        first = group[0]
        line = row(group, results, paper=printed.get(first.method, {}).get(str(first.tasks)))
        found.append({**line, "source": source, "bridged": bridged, "tests": [_tests(matrix) for matrix in matrices]})
    return found


def _tests(matrix: Sequence[Sequence[float | None]]) -> dict[str, float]:
    """Means of the self-tests and of the cross-tests of a matrix."""
    cells = [(t, k, value) for t, line in enumerate(matrix) for k, value in enumerate(line) if value is not None]
    return {
        "self": statistics.fmean(value for t, k, value in cells if t == k),
        "cross": statistics.fmean(value for t, k, value in cells if k < t),
    }


def _rows(results: Results, selection: Selection) -> list[Row]:
    found = []
    for source in (PAPER, WITHOUT, WITH):
        runs = _runs_of(source) + ([] if source == WITH else _runs_in_other_order(source))
        found += _rows_of(selection.of(runs), source, results)
    return found


def _tables(results: Results, selection: Selection) -> list[Table]:
    every = _rows(results, selection)

    def chosen(source: str, order: str = "natural") -> list[Row]:
        return [line for line in every if line["source"] == source and line["order"] == order]

    natural, other, rotated = chosen(WITHOUT), chosen(WITHOUT, "icarl"), chosen(WITH)
    made = [
        _plain_table(f"The paper's settings, {NATURAL}", chosen(PAPER), FROM_PAPER),
        *ranking_table(results, selection.of(_runs_of(PAPER)), printed_in_paper("table2")),
        _plain_table(f"The paper's settings, {OTHER}", chosen(PAPER, "icarl"), FROM_PAPER),
        _rotated_table(f"The paper's settings with rotated queries, {NATURAL}", chosen(PAPER), FROM_PAPER),
        _plain_table(f"Chosen settings, {NATURAL}", natural, BY_ACA),
        _plain_table(f"Chosen settings, {OTHER}", other, BY_ACA),
        _rotated_table(f"Chosen settings with rotated queries, {NATURAL}", rotated, BY_ROTATED_ACA),
        _pairs_table(rotated),
        _second_table(rotated),
        _difference_table(rotated),
        _executor_table(results, selection),
        goals_table(natural, other, rotated),
    ]
    tables = [table for table in made if table.rows]
    runs = selection.of(_runs())
    count = len({run.path for run in runs})
    done = count - len(results.missing(runs))
    minutes = f"GPU minutes of {done} of {counted(count, 'run')}: {results.minutes(runs):.1f}."
    return [*tables[:-1], replace(tables[-1], notes=(*tables[-1].notes, minutes))] if tables else []


NATURAL, OTHER = "natural class order", "iCaRL's class order"
FROM_PAPER = (
    "The paper's settings. Distillation and our own method are not in the paper; ours has the settings with the highest"
    " ACA on the validation set."
)
BY_ACA = "Settings with the highest ACA on the validation set."
BY_ROTATED_ACA = "Settings with the highest ACA of rotated queries on the validation set."
TRAINING = "Our own method has 40 epochs and two passes of each image, the others 70 epochs and one."


NEAR = {"AC": 0.1, "AA": 0.02, "ACA": 0.04}
"""How far each score of a reproduced row may be from the paper's."""


def near_the_paper(line: Row) -> bool:
    """Whether all three scores are near the paper's; False without scores or without a row in the paper."""
    if not line["seeds"] or line["paper"] is None:
        return False
    return all(abs(line[name] - line["paper"][name]) <= limit for name, limit in NEAR.items())


def _plain_table(title: str, rows: Sequence[Row], settings: str) -> Table:
    lines, of_paper = [], settings == FROM_PAPER
    for line in rows:
        tests = ["", "", ""]
        if line["seeds"]:
            means = [statistics.fmean(one[name] for one in line["tests"]) for name in ("self", "cross")]
            tests = [*(score("AA", mean) for mean in means), _cell(line["instance"])]
        paper = f"{'≈ ' if of_paper and near_the_paper(line) else ''}{paper_scores(line)}"
        lines.append([*_head(line), *scores(line), paper, *tests])
    near = ", after ≈ if all three are near: AC within 0.1, AA within 2 points and ACA within 4" if of_paper else ""
    notes = (
        f"{settings} AC, AA and ACA by template, with the feature that the recipe names. paper: its AC, AA % and ACA %"
        f"{near}. self, cross: means of the self-tests and of the cross-tests. n: seeds; mean±standard deviation where"
        " there are several.",
        TRAINING,
        *fan_note(rows),
        *commit_note(rows),
        *missing_note(rows),
    )
    header = ["T", "method", "n", "AC", "AA %", "ACA %", "paper", "self %", "cross %", "by instance"]
    return Table(title, header, lines, right=(0, 2, 3, 4, 5, 7, 8), notes=notes)


def _rotated_table(title: str, rows: Sequence[Row], settings: str) -> Table:
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
        f"{settings} Each cell: AC-R, AA % and ACA %. Every query on an older gallery is turned by a matrix fitted"
        " without labels on 1,000 gallery images (A), or on 1,000 images of 20 TinyImageNet classes (B). All methods"
        " are read from their network's own feature. self, cross: means of the self-tests and of the cross-tests of A.",
        TRAINING,
        *commit_note(rows),
        *missing_note(rows),
    )
    header = ["T", "method", "n", "A", "A by instance", "self %", "cross %", "B", "B by instance"]
    return Table(title, header, lines, right=(0, 2, 5, 6), notes=notes)


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
    return _interval("AA", found)


def _interval(name: str, differences: Sequence[float]) -> str:
    """The mean difference of a score and, for several, its 95 % interval; empty if there is none."""
    if not differences:
        return ""
    factor = 1 if name == "AC" else 100
    mean = statistics.fmean(differences)
    if len(differences) < 2:
        return f"{factor * mean:+.2f}"
    half = T_975[len(differences)] * statistics.stdev(differences) / math.sqrt(len(differences))
    return f"{factor * mean:+.2f} ({factor * (mean - half):+.2f} to {factor * (mean + half):+.2f})"


def _executor_table(results: Results, selection: Selection) -> Table:
    """Scores with the fused kernels less those with torch's kernels, paired by seed."""
    lines = []
    for method in BOTH_EXECUTORS:
        pairs = [pair for pair in _runs_with_graph() if pair[0].method == method and selection.of(list(pair))]
        found = [
            (fused["protocols"]["template"], graph["protocols"]["template"])
            for fused, graph in (tuple(map(results.record, pair)) for pair in pairs)
            if fused is not None and graph is not None
        ]
        differences = {name: [fused[name] - graph[name] for fused, graph in found] for name in SCORES}
        cells = [_interval(name, differences[name]) for name in SCORES] if found else ["missing", "", ""]
        if pairs:
            lines.append(["7", method_name(method), str(len(found)), *cells])
    notes = (
        "Scores by template of the paper's settings with the fused kernels, which all other tables of this page use,"
        " less those with torch's kernels in a CUDA graph; paired by seed, 95 % interval by Student's t.",
    )
    header = ["T", "method", "n", "AC", "AA", "ACA"]
    return Table("Fused kernels less torch's kernels", header, lines, right=(0, 2), notes=notes)


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


def _figures(results: Results) -> list[Figure]:
    """AC, AA and ACA against the number of tasks, means over seeds, without a rotation."""
    made = []
    for source, set_name, settings in ((PAPER, "paper", "the paper's settings"), (WITHOUT, "tuned", "chosen settings")):
        every = _rows_of(_runs_of(source), source, results)
        drawn = {found["method"] for found in every if found["seeds"]}
        lines: dict[str, dict[str, list[float | None]]] = {}
        for found in (one for one in every if one["method"] in drawn):  # a missing run leaves a gap
            line = lines.setdefault(method_name(found["method"]), {"tasks": [], **{name: [] for name in SCORES}})
            for key in ("tasks", *SCORES):
                line[key].append(found[key])
        if len(lines) > 1:  # a single line shows nothing beyond the table
            caption = (
                f"AC, AA and ACA against the number of tasks: {settings}, natural class order, without a rotation;"
                f" {DASHED}."
            )
            absent = [method_name(method) for method in METHODS if method not in drawn]
            caption += f" Not drawn because not run: {', '.join(absent)}." if absent else ""
            made.append(Figure(f"over-tasks-{set_name}", caption, lines, draw_over_tasks))
    return made


TABLE2 = ResultPage(
    "Table 2: CIFAR100/10, 2 to 31 tasks, without and with rotated queries", _runs, _rows, _tables, _figures
)
