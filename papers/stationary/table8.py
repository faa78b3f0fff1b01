"""Table 8: d-Simplex-HOC at 16 tasks with other K, lambda and rho, around the paper's settings."""

from papers.stationary.cifar_runs import ABLATION, paper_run
from papers.stationary.formatting import SEEDS_LEGEND, commit_note, missing_note, paper_scores, scores
from papers.stationary.result_page import ResultPage, Row, Selection, Table, printed_in_paper
from papers.stationary.results import Results, row
from papers.stationary.study_runs import StudyRun

TASKS = 16
KEYS = {"K": "slots", "lambda": "lambda", "rho": "rho"}
CENTRE = {"K": 100, "lambda": 0.1, "rho": 5.0}
"""The paper's values. Their run is on all three axes and is not repeated."""

COMPACT = "evaluation.compact=true"
"""The same scores from 64 numbers per image; at K = 10,000 the full features of one run would take 38 GB."""


def _value(axis: str, text: str) -> float | int:
    return int(text) if axis == "K" else float(text)


def ablation_run(axis: str, value: float) -> StudyRun:
    if value == CENTRE[axis]:
        return paper_run("simplex_hoc", TASKS)
    settings = (f"method.{KEYS[axis]}={value}", *((COMPACT,) if axis == "K" else ()))
    change = f"{axis}-{value:g}"
    return paper_run("simplex_hoc", TASKS, study="ablation", change=change, settings=settings, stage=ABLATION)


def runs() -> list[StudyRun]:
    values = [(axis, _value(axis, text)) for axis, texts in printed_in_paper("table8").items() for text in texts]
    return list(dict.fromkeys(ablation_run(axis, value) for axis, value in values))


def rows(results: Results, selection: Selection) -> list[Row]:
    found = []
    for axis, values in printed_in_paper("table8").items():
        for text, printed in values.items():
            value = _value(axis, text)
            if selection.of([ablation_run(axis, value)]):
                one = row([ablation_run(axis, value)], results, paper=printed)
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
            notes=(SEEDS_LEGEND, *commit_note(of_axis), *missing_note(of_axis)),
        )
        for axis, of_axis in axes.items()
    ]


TABLE8 = ResultPage("Table 8: ablation of K, lambda and rho", runs, rows, tables)
