"""Table 7 and Figure 9: ResNet-18 replaced by SENet-18 and that by RegNetY-400MF, CIFAR100R/10, 31 tasks."""

from typing import Any

from papers.stationary.cells import Cell
from papers.stationary.cifar_cells import PAPER_METHODS
from papers.stationary.exhibit import Exhibit, Figure, Row, Selection, Table, papers
from papers.stationary.iam_cells import ARCHITECTURES, LAST, LONG_TASKS, REPLACED_AT, iam_cell, pretrained, with_ours
from papers.stationary.layout import MISSING, method_name, printed, score, still_missing
from papers.stationary.pictures import after_each_task, draw_after_each_task
from papers.stationary.results import Results, row
from papers.stationary.table6 import as_scores, held_against

FIRST = ("er", "simplex_fd", "simplex_hoc")
"""Run first; the others, whose dashes are those of ER, come last."""

REPLACED = REPLACED_AT[LONG_TASKS]


def _cells() -> list[Cell]:
    return [
        iam_cell("architectures", method, LONG_TASKS, stage=ARCHITECTURES if method in with_ours(FIRST) else LAST)
        for method in with_ours(PAPER_METHODS)
    ]


def _rows(results: Results, selection: Selection) -> list[Row]:
    found = []
    for cell in selection.of(_cells()):
        record = results.record(cell)
        up_to = None if record is None else [_at(record, task) for task in (*REPLACED, LONG_TASKS)]
        paper = papers("table7").get(cell.method)
        as_printed = paper and [as_scores(pair) for pair in paper]
        found.append({**row([cell], results, paper=None), "up_to": up_to, "paper": as_printed})
    return found


def _at(record: dict[str, Any], task: int) -> dict[str, Any]:
    """AC and AA of the first ``task`` models; None where a pair of them cannot be compared."""
    scores = record["protocols"]["template"]
    return {"AC": scores["AC_tau"][task - 1], "AA": scores["AA_tau"][task - 1]}


def _tables(results: Results, selection: Selection) -> list[Table]:
    every = _rows(results, selection)
    lines = []
    for r in every:
        ours = [MISSING] + [""] * 5
        if r["up_to"]:
            ours = [score(name, pair[name]) for pair in r["up_to"] for name in ("AC", "AA")]
        lines.append([method_name(r["method"]), *ours, *(printed(r["paper"] and r["paper"][i]) for i in range(3))])
    ends = (*REPLACED, LONG_TASKS)
    ours_to = [f"{name} to {task}" for task in ends for name in ("AC", "AA %")]
    header = ["method", *ours_to, *(f"paper to {task}" for task in ends)]
    notes = (
        "At tasks 11 and 21 a model of another architecture is brought in; AC and AA % of all models up to there, and"
        " of all 31. The features of ResNet-18 and SENet-18 have 512 numbers, those of RegNetY-400MF 384; 1023 on the"
        " simplex. Models of unequal size cannot be compared: such a pair is not compatible in AC, and AA is a dash.",
        *held_against(results, selection.of(_cells())),
        pretrained(results, "architectures"),
        *still_missing(every),
    )
    return [Table("CIFAR100R/10, 31 tasks, three architectures", header, lines, right=range(1, 7), notes=notes)]


def _curve_tables(results: Results, selection: Selection) -> list[Table]:
    every = _rows(results, selection)
    lines = [
        [method_name(r["method"]), *(score("AA", pair["AA"]) for pair in r["up_to"])]
        if r["up_to"]
        else [method_name(r["method"]), MISSING, "", ""]
        for r in every
    ]
    header = ["method", *(f"AA_{task} %" for task in (*REPLACED, LONG_TASKS))]
    notes = (pretrained(results, "architectures"), *still_missing(every))
    return [Table("AA up to a task, three architectures", header, lines, right=(1, 2, 3), notes=notes)]


def _figures(results: Results) -> list[Figure]:
    panel = after_each_task("Three architectures", results, _cells(), REPLACED)
    if not panel["lines"]:
        return []
    caption = (
        "AA up to each task, CIFAR100R/10, 31 tasks, seed 0; at tasks 11 and 21 a model of another architecture comes"
        " in."
    )
    return [Figure("fig9", caption, [panel], draw_after_each_task)]


TABLE7 = Exhibit("Table 7: replacements by other architectures", _cells, _rows, _tables)
FIG9 = Exhibit("Figure 9: AA over tasks with three architectures", _cells, _rows, _curve_tables, _figures)
