"""Figure 6: AA after each of 31 tasks, with two replacements and with none."""

from holdfast.reproduction.cells import Cell
from holdfast.reproduction.exhibit import Exhibit, Figure, Row, Selection, Table
from holdfast.reproduction.iam import LONG, LONG_TASKS, MAIN, iam_cell, pretrained, with_ours
from holdfast.reproduction.iam_pictures import after_each_task, draw_after_each_task
from holdfast.reproduction.layout import MISSING, method_name, score, still_missing
from holdfast.reproduction.results import Results, row

REPLACED_AT = (11, 21)
TITLES = {"replaced": "Two replacements", "none": "No replacement"}


def _of(study: str) -> list[Cell]:
    return [iam_cell(study, method, LONG_TASKS, stage=LONG) for method in with_ours(MAIN)]


def _cells() -> list[Cell]:
    return [cell for study in TITLES for cell in _of(study)]


def _rows(results: Results, selection: Selection) -> list[Row]:
    found = []
    for cell in selection.of(_cells()):
        record = results.record(cell)
        up_to = None if record is None else record["protocols"]["template"]["AA_tau"]
        found.append({**row([cell], results, paper=None), "study": cell.study, "AA_tau": up_to})
    return found


def _tables(results: Results, selection: Selection) -> list[Table]:
    every = _rows(results, selection)
    marks = [*(task for at in REPLACED_AT for task in (at - 1, at)), LONG_TASKS]
    lines = []
    for r in every:
        known = [score("AA", r["AA_tau"][task - 1]) for task in marks] if r["AA_tau"] else [MISSING] + [""] * 4
        lines.append([TITLES[r["study"]], method_name(r["method"]), *known])
    header = ["", "method", *(f"AA_{task} %" for task in marks)]
    notes = (
        "AA of the models up to a task: before and at each replacement (tasks 11 and 21), and at the end. The paper has"
        " curves without numbers.",
        pretrained(),
        *still_missing(every),
    )
    return [Table("CIFAR100R/10, 31 tasks: AA over time", header, lines, right=range(2, 7), notes=notes)]


def _figures(results: Results) -> list[Figure]:
    panels = [
        after_each_task(title, results, _of(study), REPLACED_AT if study == "replaced" else ())
        for study, title in TITLES.items()
    ]
    panels = [panel for panel in panels if panel["lines"]]
    caption = "AA up to each task, CIFAR100R/10, 31 tasks, seed 0; dotted: a model trained elsewhere comes in."
    return [Figure("fig6", caption, panels, draw_after_each_task)] if panels else []


FIG6 = Exhibit("Figure 6: AA over 31 tasks, with replacements and without", _cells, _rows, _tables, _figures)
