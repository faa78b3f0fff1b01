"""The front of AC and AA as the plasticity dial turns: lambda of d-Simplex-HOC, the scale of lambda's rule in ours."""

from dataclasses import replace

from papers.stationary import table8
from papers.stationary.cells import Cell
from papers.stationary.cifar_cells import OURS, REST, known, tuned_cell
from papers.stationary.exhibit import EVERYTHING, Exhibit, Figure, Row, Selection, Table
from papers.stationary.layout import SET_LEGEND, by_commit, method_name, scores, still_missing
from papers.stationary.pictures import IN_THE_PAPER, draw_front
from papers.stationary.results import Results, row

DIAL = "lambda_scale"
VALUES = (0.2, 0.35, 0.5, 0.68, 0.85, 1.0)
"""Of our own method's dial; that of its tuned recipe is a run of Table 2."""


def _ours() -> list[tuple[float, Cell]]:
    if not known((OURS,)):
        return []
    own = tuned_cell(OURS, table8.TASKS)
    chosen = float(own.recipe["method"][DIAL])
    found = [(chosen, own)]
    for value in (value for value in VALUES if value != chosen):
        changed = (f"method.{DIAL}={value}",)
        cell = replace(own, study="ablation", change=f"{DIAL}-{value:g}", settings=changed, stage=REST)
        found.append((value, cell))
    return sorted(found, key=lambda pair: pair[0])


def _cells() -> list[Cell]:
    return [*_lambda_cells(), *(cell for _, cell in _ours())]


def _lambda_cells() -> list[Cell]:
    return [cell for cell in table8.cells() if cell.study == "paper" or cell.change.startswith("lambda-")]


def _rows(results: Results, selection: Selection) -> list[Row]:
    found = [one for one in table8.rows(results, selection) if one["axis"] == "lambda"]
    for value, cell in _ours():
        if selection.of([cell]):
            found.append({**row([cell], results, paper=None), "axis": DIAL, "value": value})
    return found


def _tables(results: Results, selection: Selection) -> list[Table]:
    rows = _rows(results, selection)
    lines = [[method_name(r["method"]), r["set"], r["axis"], f"{r['value']:g}", *scores(r)] for r in rows]
    header = ["method", "set", "dial", "value", "AC", "AA %", "ACA %"]
    title = f"More plasticity, less compatibility: CIFAR100/10, {table8.TASKS} tasks"
    return [Table(title, header, lines, right=(3, 4, 5, 6), notes=(SET_LEGEND, *by_commit(rows), *still_missing(rows)))]


def _figures(results: Results) -> list[Figure]:
    """Drawn once two points of a line were run; the paper's own numbers are a line too."""
    lines: dict[str, list[list[float]]] = {}
    for r in _rows(results, EVERYTHING):
        if r["seeds"]:
            lines.setdefault(method_name(r["method"]), []).append([r["value"], r["AC"], r["AA"]])
    if not any(len(points) > 1 for points in lines.values()):
        return []
    printed = [r for r in _rows(results, EVERYTHING) if r["paper"]]
    name = method_name("simplex_hoc") + IN_THE_PAPER
    lines[name] = [[r["value"], r["paper"]["AC"], r["paper"]["AA"]] for r in printed]
    caption = (
        f"AC against AA as the dial turns (the number at a point: λ, or the scale of λ's rule); {table8.TASKS} tasks."
    )
    return [Figure("front", caption, lines, draw_front)]


FRONT = Exhibit("AC against AA over lambda, 16 tasks", _cells, _rows, _tables, _figures)
