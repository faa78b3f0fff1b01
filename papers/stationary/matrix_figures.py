"""Figure 4: compatibility matrices at 7 tasks of four methods and, tuned, of the strongest rival and of ours.

Figure 7: compatibility matrices at 7 tasks with two replacements, of four methods and of ours.
"""

from papers.stationary.cells import Cell
from papers.stationary.cifar_cells import OUR_OWN, OURS, known, paper_cell, tuned_cell
from papers.stationary.exhibit import EVERYTHING, Exhibit, Figure, Row, Selection, Table
from papers.stationary.iam_cells import SHORT_TASKS, iam_cell, pretrained, with_ours
from papers.stationary.layout import kept_pairs, method_name, still_missing
from papers.stationary.pictures import draw_matrices
from papers.stationary.results import Results, rows_with_matrix
from papers.stationary.table2 import RIVAL, TITLES

METHODS = ("cvs", "bct", "simplex_fd", "simplex_hoc")
TASKS = 7


def _fig4_cells() -> list[Cell]:
    paper = [paper_cell(method, TASKS) for method in METHODS]
    tuned = [tuned_cell(method, TASKS) for method in (RIVAL, *METHODS)]
    return [*paper, *tuned, *(tuned_cell(method, TASKS, stage=OUR_OWN) for method in known((OURS,)))]


def _fig4_rows(results: Results, selection: Selection) -> list[Row]:
    return rows_with_matrix(selection.of(_fig4_cells()), results)


def _fig4_tables(results: Results, selection: Selection) -> list[Table]:
    lines = [[r["set"], method_name(r["method"]), *kept_pairs(r)] for r in _fig4_rows(results, selection)]
    header = ["set", "method", "compatible pairs", "AC", "AA %", "ACA %"]
    return [Table(f"Compatibility matrices, CIFAR100/10, {TASKS} tasks, seed 0", header, lines, right=(2, 3, 4, 5))]


def _fig4_figures(results: Results) -> list[Figure]:
    """One picture for each set with at least two runs: settings of the two are never mixed."""
    made = []
    rows = [r for r in _fig4_rows(results, EVERYTHING) if r["matrix"]]
    for set_name, title in TITLES.items():
        panels = [[method_name(r["method"]), r["matrix"]] for r in rows if r["set"] == set_name]
        if len(panels) > 1:
            caption = (
                f"Compatibility matrices, CIFAR100/10, {TASKS} tasks, seed 0: {title}. Red: no better than the old"
                " model on its own gallery."
            )
            made.append(Figure(f"fig4-{set_name}", caption, panels, draw_matrices))
    return made


FIG4 = Exhibit("Figure 4: compatibility matrices at 7 tasks", _fig4_cells, _fig4_rows, _fig4_tables, _fig4_figures)


def _fig7_cells() -> list[Cell]:
    return [iam_cell("replaced", method, SHORT_TASKS) for method in with_ours(METHODS)]


def _fig7_rows(results: Results, selection: Selection) -> list[Row]:
    return rows_with_matrix(selection.of(_fig7_cells()), results)


def _fig7_tables(results: Results, selection: Selection) -> list[Table]:
    every = _fig7_rows(results, selection)
    lines = [[method_name(r["method"]), *kept_pairs(r)] for r in every]
    header = ["method", "compatible pairs", "AC", "AA %", "ACA %"]
    notes = ("Models 3 and 5 are replacements.", pretrained(results), *still_missing(every))
    title = f"Compatibility matrices, CIFAR100R/10, {SHORT_TASKS} tasks, two replacements, seed 0"
    return [Table(title, header, lines, right=(1, 2, 3, 4), notes=notes)]


def _fig7_figures(results: Results) -> list[Figure]:
    panels = [[method_name(r["method"]), r["matrix"]] for r in _fig7_rows(results, EVERYTHING) if r["matrix"]]
    caption = (
        f"Compatibility matrices, CIFAR100R/10, {SHORT_TASKS} tasks, models 3 and 5 replaced, seed 0. Red: no better"
        " than the old model on its own gallery."
    )
    return [Figure("fig7", caption, panels, draw_matrices)] if panels else []


FIG7 = Exhibit(
    "Figure 7: compatibility matrices across two replacements", _fig7_cells, _fig7_rows, _fig7_tables, _fig7_figures
)
