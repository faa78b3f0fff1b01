"""Page ``replacing``: details of IAM-CL2R, one change at a time: the printed schedule, and the model held to."""

from papers.stationary.cifar_runs import OURS
from papers.stationary.formatting import by_instance, commit_note, method_name, missing_note, scores
from papers.stationary.iam_runs import FUSED, LAST, LONG_TASKS, OUR_SETTING, SHORT_TASKS, iam_run, pretraining_notes
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
    return [{"changed": about, **row([run], results, paper=None)} for about, run in _planned() if selection.of([run])]


def _tables(results: Results, selection: Selection) -> list[Table]:
    rows = _rows(results, selection)
    lines = [
        [str(one["tasks"]), method_name(one["method"]), *scores(one), by_instance(one), one["changed"]] for one in rows
    ]
    header = ["T", "method", "AC", "AA %", "ACA %", "by instance", "changed"]
    title = "One change at a time: CIFAR100R/10, two replacements, seed 0"
    ours = (OUR_SETTING,) if any(one["method"] == OURS for one in rows) else ()
    notes = (*pretraining_notes(results, selection.of(_runs())), *ours, *commit_note(rows), *missing_note(rows))
    return [Table(title, header, lines, right=(0, 2, 3, 4), notes=notes)]


REPLACEMENT_DETAILS = ResultPage("IAM-CL2R: schedule and reference, one change at a time", _runs, _rows, _tables)
