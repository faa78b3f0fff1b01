"""Page ``replacing``: details of IAM-CL2R, one change at a time: the printed schedule, and the model held to."""

from typing import Any

import numpy as np

from holdfast.metrics.compatibility import compatible_pairs
from papers.stationary.cifar_runs import OURS
from papers.stationary.formatting import by_instance, commit_note, method_name, missing_note, score, scores
from papers.stationary.iam_runs import (
    FUSED,
    LAST,
    LONG_TASKS,
    REPLACED_AT,
    SHORT_TASKS,
    iam_run,
    our_settings_note,
    pretraining_notes,
)
from papers.stationary.result_page import ResultPage, Row, Selection, Table
from papers.stationary.results import Results, row
from papers.stationary.study_runs import StudyRun

UNCHANGED = ("again", "unchanged", ())
STEPS = ("steps", "steps at epochs 50 and 64, as Table 5 prints, not a cosine", ("train.schedule=step",))
DEPLOYED = ("deployed", "held to the model that is replaced, not to the loaded one", ("scenario.reference=deployed",))
CASES = {
    ("er", SHORT_TASKS): (UNCHANGED, STEPS),
    ("simplex_hoc", SHORT_TASKS): (UNCHANGED, STEPS, DEPLOYED),
    (OURS, SHORT_TASKS): (UNCHANGED, DEPLOYED),
    ("simplex_hoc", LONG_TASKS): (UNCHANGED, DEPLOYED),
}
"""(method, number of tasks) -> its runs, each as suffix of the file, what is changed, settings."""


def _planned() -> list[tuple[str, StudyRun]]:
    """What is changed, and the run."""
    return [
        (about, iam_run("changes", method, tasks, change=suffix, settings=(*settings, FUSED), stage=LAST))
        for (method, tasks), cases in CASES.items()
        for suffix, about, settings in cases
    ]


def _runs() -> list[StudyRun]:
    return [run for _, run in _planned()]


def _rows(results: Results, selection: Selection) -> list[Row]:
    return [
        {"changed": about, **row([run], results, paper=None), **_across(results, run)}
        for about, run in _planned()
        if selection.of([run])
    ]


def _across(results: Results, run: StudyRun) -> dict[str, Any]:
    """Compatible pairs and all pairs of models with a replacement between them, and the newest model's self-test."""
    matrix = results.matrix(run)
    if matrix is None:
        return {"across": None, "newest": None}
    replacements = np.digitize(range(1, run.tasks + 1), REPLACED_AT[run.tasks])  # before each task
    between = np.tril(np.not_equal.outer(replacements, replacements))
    compatible = compatible_pairs(np.array(matrix, dtype=float))
    return {"across": [int(compatible[between].sum()), int(between.sum())], "newest": matrix[-1][-1]}


def _tables(results: Results, selection: Selection) -> list[Table]:
    rows = _rows(results, selection)
    lines = []
    for one in rows:
        across = "{}/{}".format(*one["across"]) if one["across"] else ""
        newest = score("AA", one["newest"]) if one["across"] else ""
        head = [str(one["tasks"]), method_name(one["method"])]
        lines.append([*head, *scores(one), across, newest, by_instance(one), one["changed"]])
    header = ["T", "method", "AC", "AA %", "ACA %", "across", "newest %", "by instance", "changed"]
    title = "One change at a time: CIFAR100R/10, two replacements, seed 0"
    about = (
        "across: compatible pairs of a newer model and an older gallery with a replacement between them, of all such"
        " pairs, by template. newest: self-test of the last model, by template."
    )
    notes = (
        about,
        *pretraining_notes(results, selection.of(_runs())),
        *our_settings_note(rows),
        *commit_note(rows),
        *missing_note(rows),
    )
    return [Table(title, header, lines, right=(0, 2, 3, 4, 5, 6), notes=notes)]


REPLACEMENT_DETAILS = ResultPage("IAM-CL2R: schedule and reference, one change at a time", _runs, _rows, _tables)
