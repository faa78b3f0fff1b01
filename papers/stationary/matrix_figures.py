"""Figures 4 and 7: compatibility matrices at 7 tasks, without and with two replacements.

Both show four methods and ours. Figure 4 also shows the tuned settings, there with FAN, the strongest other method by
ACA without a rotation at 7 tasks.
"""

from collections.abc import Sequence
from typing import Any

from papers.stationary.cifar_runs import OURS
from papers.stationary.formatting import compatible_pairs, method_name, missing_note
from papers.stationary.iam_runs import REPLACED_AT, SHORT_TASKS, deviation_notes, iam_run, with_ours
from papers.stationary.plots import draw_matrices
from papers.stationary.result_page import EVERYTHING, Figure, ResultPage, Row, Selection, Table
from papers.stationary.results import Results, rows_with_matrix
from papers.stationary.study_runs import StudyRun
from papers.stationary.table2 import PAPER, WITHOUT, table2_run

METHODS = ("cvs", "bct", "simplex_fd", "simplex_hoc")
TASKS = 7
SETS = {"paper": "the paper's settings", "tuned": "settings chosen on the validation set"}


def _fig4_runs() -> list[StudyRun]:
    paper = [table2_run(method, PAPER, TASKS) for method in METHODS]
    return [*paper, *(table2_run(method, WITHOUT, TASKS) for method in ("fan", *METHODS, OURS))]


def _fig4_rows(results: Results, selection: Selection) -> list[Row]:
    return rows_with_matrix(selection.of(_fig4_runs()), results)


def _fig4_tables(results: Results, selection: Selection) -> list[Table]:
    lines = [[r["set"], method_name(r["method"]), *compatible_pairs(r)] for r in _fig4_rows(results, selection)]
    header = ["set", "method", "compatible pairs", "AC", "AA %", "ACA %"]
    return [Table(f"Compatibility matrices, CIFAR100/10, {TASKS} tasks, seed 0", header, lines, right=(2, 3, 4, 5))]


def _panels(rows: list[Row], replaced: Sequence[int] = ()) -> list[dict[str, Any]]:
    """Panels of ``draw_matrices``, one for each row that has a matrix."""
    return [
        {"title": method_name(r["method"]), "matrix": r["matrix"], "replaced": list(replaced)}
        for r in rows
        if r["matrix"]
    ]


def _fig4_figures(results: Results) -> list[Figure]:
    """One picture for each set with at least two runs; the two sets are not mixed."""
    made = []
    rows = _fig4_rows(results, EVERYTHING)
    for set_name, title in SETS.items():
        panels = _panels([r for r in rows if r["set"] == set_name])
        if len(panels) > 1:
            caption = (
                f"Compatibility matrices, CIFAR100/10, {TASKS} tasks, seed 0: {title}. Red: no better than the old"
                " model on its own gallery."
            )
            made.append(Figure(f"fig4-{set_name}", caption, panels, draw_matrices))
    return made


FIG4 = ResultPage("Figure 4: compatibility matrices at 7 tasks", _fig4_runs, _fig4_rows, _fig4_tables, _fig4_figures)


def _fig7_runs() -> list[StudyRun]:
    return [iam_run("replaced", method, SHORT_TASKS) for method in with_ours(METHODS)]


def _fig7_rows(results: Results, selection: Selection) -> list[Row]:
    return rows_with_matrix(selection.of(_fig7_runs()), results)


def _fig7_tables(results: Results, selection: Selection) -> list[Table]:
    every = _fig7_rows(results, selection)
    lines = [[method_name(r["method"]), *compatible_pairs(r)] for r in every]
    header = ["method", "compatible pairs", "AC", "AA %", "ACA %"]
    notes = (
        "Models 3 and 5 are replacements.",
        *deviation_notes(results, selection.of(_fig7_runs())),
        *missing_note(every),
    )
    title = f"Compatibility matrices, CIFAR100R/10, {SHORT_TASKS} tasks, two replacements, seed 0"
    return [Table(title, header, lines, right=(1, 2, 3, 4), notes=notes)]


def _fig7_figures(results: Results) -> list[Figure]:
    replaced = REPLACED_AT[SHORT_TASKS]
    panels = _panels(_fig7_rows(results, EVERYTHING), replaced)
    caption = (
        f"Compatibility matrices, CIFAR100R/10, {SHORT_TASKS} tasks, two replacements, seed 0. Boxed indices: the first"
        f" models after a replacement ({' and '.join(map(str, replaced))}). Red: no better than the old model on its"
        " own gallery."
    )
    return [Figure("fig7", caption, panels, draw_matrices)] if panels else []


FIG7 = ResultPage(
    "Figure 7: compatibility matrices across two replacements", _fig7_runs, _fig7_rows, _fig7_tables, _fig7_figures
)
