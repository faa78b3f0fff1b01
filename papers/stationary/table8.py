"""Table 8: d-Simplex-HOC at 16 tasks with other K, lambda and rho, around the paper's settings."""

from papers.stationary.cells import Cell
from papers.stationary.cifar_cells import ABLATION, paper_cell
from papers.stationary.exhibit import Exhibit, Row, Selection, Table, papers
from papers.stationary.layout import SEEDS_LEGEND, by_commit, paper_scores, scores, still_missing
from papers.stationary.results import Results, row

TASKS = 16
KEYS = {"K": "slots", "lambda": "lambda", "rho": "rho"}
CENTRE = {"K": 100, "lambda": 0.1, "rho": 5.0}
"""Where the three axes cross: the cell of Table 2, which is not run again."""

COMPACT = "evaluation.compact=true"
"""The same scores from 64 numbers per image; at K = 10,000 the full features of one run would take 38 GB."""


def _value(axis: str, text: str) -> float | int:
    return int(text) if axis == "K" else float(text)


def cell(axis: str, value: float) -> Cell:
    if value == CENTRE[axis]:
        return paper_cell("simplex_hoc", TASKS)
    settings = (f"method.{KEYS[axis]}={value}", *((COMPACT,) if axis == "K" else ()))
    change = f"{axis}-{value:g}"
    return paper_cell("simplex_hoc", TASKS, study="ablation", change=change, settings=settings, stage=ABLATION)


def cells() -> list[Cell]:
    return list(
        dict.fromkeys(cell(axis, _value(axis, text)) for axis, values in papers("table8").items() for text in values)
    )


def rows(results: Results, selection: Selection) -> list[Row]:
    found = []
    for axis, values in papers("table8").items():
        for text, printed in values.items():
            value = _value(axis, text)
            if selection.of([cell(axis, value)]):
                one = row([cell(axis, value)], results, paper=printed)
                found.append({**one, "axis": axis, "value": value})
    return found


def tables(results: Results, selection: Selection) -> list[Table]:
    axes: dict[str, list[Row]] = {}
    for one in rows(results, selection):
        axes.setdefault(one["axis"], []).append(one)
    return [
        Table(
            f"d-Simplex-HOC, CIFAR100/10, {TASKS} tasks: {axis}, around the paper set",
            [axis, "AC", "AA %", "ACA %", "n", "paper"],
            [
                [
                    f"{r['value']:g}" + (" (paper's)" if r["value"] == CENTRE[axis] else ""),
                    *scores(r),
                    str(len(r["seeds"])),
                    paper_scores(r),
                ]
                for r in of_axis
            ],
            right=(1, 2, 3, 4),
            notes=(SEEDS_LEGEND, *by_commit(of_axis), *still_missing(of_axis)),
        )
        for axis, of_axis in axes.items()
    ]


TABLE8 = Exhibit("Table 8: ablation of K, lambda and rho", cells, rows, tables)
