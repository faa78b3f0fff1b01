"""Page ``front``: AC against AA for several values of lambda (d-Simplex-HOC) and of lambda's scale (ours)."""

from dataclasses import replace

from papers.stationary import table8
from papers.stationary.cifar_runs import REST, own_run
from papers.stationary.formatting import SET_LEGEND, commit_note, method_name, missing_note, scores
from papers.stationary.plots import IN_THE_PAPER, draw_tradeoff
from papers.stationary.result_page import EVERYTHING, Figure, ResultPage, Row, Selection, Table
from papers.stationary.results import Results, row
from papers.stationary.study_runs import StudyRun

SCALE = "lambda_scale"
VALUES = (0.2, 0.35, 0.5, 0.68, 0.85, 1.0)
"""Values for our own method. The value of its tuned recipe has a run of study ``tuned``."""


def _ours() -> list[tuple[float, StudyRun]]:
    own = own_run(table8.TASKS)
    chosen = float(own.recipe["method"][SCALE])
    found = [(chosen, own)]
    for value in (value for value in VALUES if value != chosen):
        changed = (f"method.{SCALE}={value}",)
        run = replace(own, study="ablation", change=f"{SCALE}-{value:g}", settings=changed, stage=REST)
        found.append((value, run))
    return sorted(found, key=lambda pair: pair[0])


def _runs() -> list[StudyRun]:
    return [*_lambda_runs(), *(run for _, run in _ours())]


def _lambda_runs() -> list[StudyRun]:
    return [run for run in table8.runs() if run.study == "paper" or run.change.startswith("lambda-")]


def _rows(results: Results, selection: Selection) -> list[Row]:
    found = [one for one in table8.rows(results, selection) if one["axis"] == "lambda"]
    for value, run in _ours():
        if selection.of([run]):
            found.append({**row([run], results, paper=None), "axis": SCALE, "value": value})
    return found


def _tables(results: Results, selection: Selection) -> list[Table]:
    rows = _rows(results, selection)
    lines = [[method_name(r["method"]), r["set"], r["axis"], f"{r['value']:g}", *scores(r)] for r in rows]
    header = ["method", "set", "setting", "value", "AC", "AA %", "ACA %"]
    title = f"More plasticity, less compatibility: CIFAR100/10, {table8.TASKS} tasks"
    return [
        Table(title, header, lines, right=(3, 4, 5, 6), notes=(SET_LEGEND, *commit_note(rows), *missing_note(rows)))
    ]


def _figures(results: Results) -> list[Figure]:
    """One figure, as soon as a line has two points. The paper's numbers are a line too."""
    lines: dict[str, list[list[float]]] = {}
    for r in _rows(results, EVERYTHING):
        if r["seeds"]:
            lines.setdefault(method_name(r["method"]), []).append([r["value"], r["AC"], r["AA"]])
    if not any(len(points) > 1 for points in lines.values()):
        return []
    printed = [r for r in _rows(results, EVERYTHING) if r["paper"]]
    name = method_name("simplex_hoc") + IN_THE_PAPER
    lines[name] = [[r["value"], r["paper"]["AC"], r["paper"]["AA"]] for r in printed]
    caption = f"AC against AA for several λ (the number at a point: λ, or the scale of λ's rule); {table8.TASKS} tasks."
    return [Figure("front", caption, lines, draw_tradeoff)]


LAMBDA_TRADEOFF = ResultPage("AC against AA for several λ, 16 tasks", _runs, _rows, _tables, _figures)
