"""Figure 7: compatibility matrices at 7 tasks with two replacements, of four methods and of ours."""

from holdfast.reproduction.cells import Cell
from holdfast.reproduction.exhibit import EVERYTHING, Exhibit, Figure, Row, Selection, Table
from holdfast.reproduction.iam import SHORT_TASKS, iam_cell, pretrained, with_ours
from holdfast.reproduction.layout import kept_pairs, method_name, still_missing
from holdfast.reproduction.pictures import draw_matrices
from holdfast.reproduction.results import Results, rows_with_matrix

METHODS = ("cvs", "bct", "simplex_fd", "simplex_hoc")


def _cells() -> list[Cell]:
    return [iam_cell("replaced", method, SHORT_TASKS) for method in with_ours(METHODS)]


def _rows(results: Results, selection: Selection) -> list[Row]:
    return rows_with_matrix(selection.of(_cells()), results)


def _tables(results: Results, selection: Selection) -> list[Table]:
    every = _rows(results, selection)
    lines = [[method_name(r["method"]), *kept_pairs(r)] for r in every]
    header = ["method", "compatible pairs", "AC", "AA %", "ACA %"]
    notes = ("Models 3 and 5 are replacements.", pretrained(results), *still_missing(every))
    title = f"Compatibility matrices, CIFAR100R/10, {SHORT_TASKS} tasks, two replacements, seed 0"
    return [Table(title, header, lines, right=(1, 2, 3, 4), notes=notes)]


def _figures(results: Results) -> list[Figure]:
    panels = [[method_name(r["method"]), r["matrix"]] for r in _rows(results, EVERYTHING) if r["matrix"]]
    caption = (
        f"Compatibility matrices, CIFAR100R/10, {SHORT_TASKS} tasks, models 3 and 5 replaced, seed 0. Red: no better"
        " than the old model on its own gallery."
    )
    return [Figure("fig7", caption, panels, draw_matrices)] if panels else []


FIG7 = Exhibit("Figure 7: compatibility matrices across two replacements", _cells, _rows, _tables, _figures)
