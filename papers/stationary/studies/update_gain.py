"""Page ``stride``: gain of one update at a given lambda, and other values of lambda at every number of tasks."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from papers.stationary import table8
from papers.stationary.cifar_runs import QUESTIONS, TASKS, paper_run
from papers.stationary.formatting import (
    LEGEND,
    MISSING,
    commit_note,
    method_name,
    missing_note,
    paper_scores,
    score,
    scores,
)
from papers.stationary.plots import look, new_figure, plain_axis, save
from papers.stationary.result_page import EVERYTHING, Figure, ResultPage, Row, Selection, Table, printed_in_paper
from papers.stationary.results import Results, row
from papers.stationary.study_runs import StudyRun, classes_seen

METHOD, COMPARED = "simplex_hoc", "er"
PRINTED = 0.1
"""The lambda of the paper's Table 1, for every number of tasks."""

LAMBDAS = {2: (PRINTED, 0.3, 0.6), 7: (PRINTED, 0.2, 0.3), 16: (0.05, PRINTED, 0.25), 31: (0.05, PRINTED)}
EVERYWHERE = 40
"""A number of classes at which a task ends with 7, 16 and 31 tasks."""


def lambda_run(tasks: int, value: float) -> StudyRun:
    """d-Simplex-HOC with the paper's settings except for lambda; at 16 tasks it is a run of Table 8."""
    if value == PRINTED:
        return paper_run(METHOD, tasks)
    if tasks == table8.TASKS:
        return table8.ablation_run("lambda", value)
    settings = (f"method.lambda={value}",)
    return paper_run(METHOD, tasks, study="questions", change=f"lambda-{value:g}", settings=settings, stage=QUESTIONS)


def _listed() -> list[tuple[float | None, StudyRun]]:
    of_lambda: list[tuple[float | None, StudyRun]] = [
        (value, lambda_run(tasks, value)) for tasks, values in LAMBDAS.items() for value in values
    ]
    return [*of_lambda, *((None, paper_run(COMPARED, tasks)) for tasks in TASKS)]


def _runs() -> list[StudyRun]:
    return [run for _, run in _listed()]


def _rows(results: Results, selection: Selection) -> list[Row]:
    """Rows like those of Table 2, with ``lambda`` (None for ER) and, per model, ``classes`` seen and ``self_tests``."""
    found = []
    for value, run in _listed():
        if selection.of([run]):
            one = row([run], results, paper=printed_in_paper("table2")[run.method][str(run.tasks)])
            found.append(
                {**one, "lambda": value, "classes": classes_seen(run.recipe), "self_tests": results.self_tests(run)}
            )
    return found


def _tables(results: Results, selection: Selection) -> list[Table]:
    rows = _rows(results, selection)
    return [_gains([r for r in rows if r["lambda"] in (PRINTED, None)]), _lambdas([r for r in rows if r["lambda"]])]


def _gains(rows: Sequence[Row]) -> Table:
    def shown(r: Row, model: int | None) -> str:
        return "–" if model is None else MISSING if r["self_tests"] is None else score("AA", r["self_tests"][model])

    lines = []
    for r in rows:
        seen = r["classes"]
        at = seen.index(EVERYWHERE) if EVERYWHERE in seen else None
        counts = [str(r["tasks"] - 1), str(seen[1] - seen[0])]
        lines.append([method_name(r["method"]), *counts, *(shown(r, model) for model in (0, 1, at, -1))])
    header = ["method", "updates", "classes each", "model 1 %", "model 2 %", f"at {EVERYWHERE} classes %", "last %"]
    note = "Top-1 of a model on its own gallery, by template; a dash where no task ends with so many classes."
    title = f"Gain of an update: CIFAR100/10, the paper's settings (λ {PRINTED:g}), natural order, seed 0"
    return Table(title, header, lines, right=range(1, 7), notes=(note, *commit_note(rows), *missing_note(rows)))


def _lambdas(rows: Sequence[Row]) -> Table:
    def named(r: Row) -> str:
        return f"{r['lambda']:g}" + (" (paper's)" if r["lambda"] == PRINTED else "")

    lines = [[str(r["tasks"]), named(r), *scores(r), str(len(r["seeds"])), paper_scores(r)] for r in rows]
    header = ["T", "λ", "AC", "AA %", "ACA %", "n", "paper, λ 0.1"]
    title = f"{method_name(METHOD)} with other λ: CIFAR100/10, the paper's settings otherwise, seed 0"
    return Table(title, header, lines, right=(0, 2, 3, 4, 5), notes=(LEGEND, *commit_note(rows), *missing_note(rows)))


def _figures(results: Results) -> list[Figure]:
    panels: dict[str, dict[str, list[list[float]]]] = {}
    for r in _rows(results, EVERYTHING):
        if r["lambda"] in (PRINTED, None) and r["self_tests"]:
            title = method_name(r["method"]) + (f", λ {r['lambda']:g}" if r["lambda"] else "")
            updates = "1 update" if r["tasks"] == 2 else f"{r['tasks'] - 1} updates"
            panels.setdefault(title, {})[updates] = [r["classes"], r["self_tests"]]
    caption = (
        "Top-1 of each model on its own gallery against the classes it has seen, for the same hundred classes in few"
        " updates or many; natural order, seed 0, by template."
    )
    return [Figure("stride", caption, panels, draw_update_gain)] if panels else []


def draw_update_gain(panels: Mapping[str, Mapping[str, Sequence[Sequence[float]]]], path: Path) -> None:
    """Self-tests in [0, 1] against classes seen: a panel per method, a line per number of updates."""
    figure = new_figure(8.2, 3.4)
    axes: Any = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for axis, (title, lines) in zip(axes, panels.items()):
        for i, (name, (classes, values)) in enumerate(lines.items()):
            axis.plot(classes, [100 * value for value in values], label=name, linewidth=1.6, markersize=4, **look(i))
        plain_axis(axis, "classes seen", "")
        axis.set_title(title, fontsize=9)
    axes[0].set_ylabel("self-test, %")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside right center", frameon=False, fontsize=8)
    save(figure, path, panels)


UPDATE_GAIN = ResultPage("Gain of one update at a given λ, and other λ", _runs, _rows, _tables, _figures)
