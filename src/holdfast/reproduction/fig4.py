"""Figure 4: compatibility matrices at 7 tasks of four methods and, tuned, of the strongest rival and of ours."""

from holdfast.reproduction.cells import Cell
from holdfast.reproduction.cifar import OUR_OWN, OURS, known, paper_cell, tuned_cell
from holdfast.reproduction.exhibit import EVERYTHING, Exhibit, Figure, Row, Selection, Table
from holdfast.reproduction.layout import kept_pairs, method_name
from holdfast.reproduction.pictures import draw_matrices
from holdfast.reproduction.results import Results, rows_with_matrix
from holdfast.reproduction.table2 import RIVAL, TITLES

METHODS = ("cvs", "bct", "simplex_fd", "simplex_hoc")
TASKS = 7


def _cells() -> list[Cell]:
    paper = [paper_cell(method, TASKS) for method in METHODS]
    tuned = [tuned_cell(method, TASKS) for method in (RIVAL, *METHODS)]
    return [*paper, *tuned, *(tuned_cell(method, TASKS, stage=OUR_OWN) for method in known((OURS,)))]


def _rows(results: Results, selection: Selection) -> list[Row]:
    return rows_with_matrix(selection.of(_cells()), results)


def _tables(results: Results, selection: Selection) -> list[Table]:
    lines = [[r["set"], method_name(r["method"]), *kept_pairs(r)] for r in _rows(results, selection)]
    header = ["set", "method", "compatible pairs", "AC", "AA %", "ACA %"]
    return [Table(f"Compatibility matrices, CIFAR100/10, {TASKS} tasks, seed 0", header, lines, right=(2, 3, 4, 5))]


def _figures(results: Results) -> list[Figure]:
    """One picture for each set with at least two runs: settings of the two are never mixed."""
    made = []
    rows = [r for r in _rows(results, EVERYTHING) if r["matrix"]]
    for set_name, title in TITLES.items():
        panels = [[method_name(r["method"]), r["matrix"]] for r in rows if r["set"] == set_name]
        if len(panels) > 1:
            caption = (
                f"Compatibility matrices, CIFAR100/10, {TASKS} tasks, seed 0: {title}. Red: no better than the old"
                " model on its own gallery."
            )
            made.append(Figure(f"fig4-{set_name}", caption, panels, draw_matrices))
    return made


FIG4 = Exhibit("Figure 4: compatibility matrices at 7 tasks", _cells, _rows, _tables, _figures)
