"""Table 7: ResNet-18 replaced by SENet-18 and that by RegNetY-400MF, CIFAR100R/10, 31 tasks."""

from typing import Any

from papers.stationary.cifar_runs import PAPER_METHODS
from papers.stationary.formatting import MISSING, commit_note, method_name, missing_note, printed, score
from papers.stationary.iam_runs import (
    ARCHITECTURES,
    LAST,
    LONG_TASKS,
    REPLACED_AT,
    deviation_notes,
    iam_run,
    our_settings_note,
    with_ours,
)
from papers.stationary.ranking import ranking_table
from papers.stationary.result_page import ResultPage, Row, Selection, Table, printed_in_paper
from papers.stationary.results import Results, row
from papers.stationary.study_runs import StudyRun
from papers.stationary.table6 import as_scores, compared_with_paper

FIRST = ("er", "simplex_fd", "simplex_hoc")
"""Methods that are run first. The others cannot be compared after the second replacement, like ER."""

REPLACED = REPLACED_AT[LONG_TASKS]

ENDS = (REPLACED[0], REPLACED[1] - 1, REPLACED[1], LONG_TASKS)
"""Numbers of tasks after which AC and AA are shown. After the third, only models on a simplex can be compared."""

PRINTED_FOR = {REPLACED[0]: 0, REPLACED[1] - 1: 1, LONG_TASKS: 2}
"""Number of tasks -> the pair of the paper's row that it is compared with."""


def _runs() -> list[StudyRun]:
    return [
        iam_run("architectures", method, LONG_TASKS, stage=ARCHITECTURES if method in with_ours(FIRST) else LAST)
        for method in with_ours(PAPER_METHODS)
    ]


def _rows(results: Results, selection: Selection) -> list[Row]:
    found = []
    for run in selection.of(_runs()):
        record = results.record(run)
        up_to = None if record is None else [_at(record, task) for task in ENDS]
        paper = printed_in_paper("table7").get(run.method)
        as_printed = paper and [as_scores(pair) for pair in paper]
        found.append({**row([run], results, paper=None), "up_to": up_to, "paper": as_printed})
    return found


def _at(record: dict[str, Any], task: int) -> dict[str, Any]:
    """AC and AA of the first ``task`` models; None if a pair of them cannot be compared."""
    scores = record["protocols"]["template"]
    return {"AC": scores["AC_tau"][task - 1], "AA": scores["AA_tau"][task - 1]}


def _tables(results: Results, selection: Selection) -> list[Table]:
    every = _rows(results, selection)
    lines = []
    for r in every:
        ours = [MISSING] + [""] * (2 * len(ENDS) - 1)
        if r["up_to"]:
            ours = [score(name, pair[name]) for pair in r["up_to"] for name in ("AC", "AA")]
        lines.append([method_name(r["method"]), *ours, *(printed(r["paper"] and r["paper"][i]) for i in range(3))])
    ours_to = [f"{name} to {task}" for task in ENDS for name in ("AC", "AA %")]
    header = ["method", *ours_to, *(f"paper to {task}" for task in (*REPLACED, LONG_TASKS))]
    notes = (
        "At tasks 11 and 21 a model of another architecture is brought in; AC and AA % of all models up to there, and"
        " of all 31. The features of ResNet-18 and SENet-18 have 512 numbers, those of RegNetY-400MF 384; 1023 on the"
        " simplex. Models of unequal size cannot be compared: such a pair is not compatible in AC, and AA is a dash.",
        "The paper prints AC and AA of all methods to task 21, although it says that they cannot be calculated from"
        " there on. Its ranking is compared with ours to task 20, the last where all can be.",
        *compared_with_paper(results, selection.of(_runs())),
        *deviation_notes(results, selection.of(_runs())),
        *our_settings_note(every),
        *commit_note(every),
        *missing_note(every),
    )
    scored = Table("CIFAR100R/10, 31 tasks, three architectures", header, lines, right=range(1, 9), notes=notes)
    paper = {
        method: {str(task): pairs[i] for task, i in PRINTED_FOR.items()}
        for method, pairs in printed_in_paper("table7").items()
    }
    return [scored, *ranking_table(results, selection.of(_runs()), paper, tuple(PRINTED_FOR))]


TABLE7 = ResultPage("Table 7: replacements by other architectures", _runs, _rows, _tables)
