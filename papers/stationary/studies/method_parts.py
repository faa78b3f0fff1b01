"""Page ``parts``: our own method with one part changed at a time, and other methods with its views."""

from dataclasses import replace
from itertools import pairwise
from statistics import fmean

from holdfast.train.methods.simplex_hoc_views import lambda_of_share
from papers.stationary.cifar_runs import REST, own_run, paper_run
from papers.stationary.cifar_runs import TASKS as EVERY_COUNT
from papers.stationary.formatting import AGAIN, SET_LEGEND, commit_note, method_name, missing_note, scores
from papers.stationary.result_page import ResultPage, Row, Selection, Table
from papers.stationary.results import Results, row
from papers.stationary.study_runs import StudyRun, classes_seen
from papers.stationary.table8 import COMPACT

TASKS = (7, 16)
NOT_CHOSEN = "Scored on CIFAR10 after the settings were chosen; these rows choose nothing."
PARTS = {
    "no-first-view": ("no views in the first task", ("method.first_view=0.0",)),
    "no-view": ("no views in later tasks", ("method.view_weight=0.0",)),
    "no-anchors": ("no anchors", ("method.anchor_weight=0.0",)),
    "anchors-learned": ("anchors of the model a class was learned with", ("method.anchors=learned",)),
    "anchors-nce": ("anchors as a contrast", ("method.anchor_form=nce",)),
    # This scale gives the same mean λ at 7 tasks, a larger one at 2 and smaller ones at 16 and 31.
    "lambda-linear": ("λ 0.7 times the share of new classes", ("method.lambda_power=1.0", "method.lambda_scale=0.7")),
    # Milestones are fractions of the epochs, so the rate falls at the same epochs as with the paper's 70.
    "epochs-70": ("70 epochs, as the paper's methods have, instead of 40", ("train.epochs=70",)),
}
MORE_SLOTS = {
    "K-1000": ("K 1,000 instead of 100", ("method.slots=1000", COMPACT)),
    "K-10000": ("K 10,000 instead of 100", ("method.slots=10000", COMPACT)),
}
"""Run at every number of tasks: in Table 8 more slots raise the accuracy of d-Simplex-HOC, in the paper and here."""

WITH_VIEWS = ("er", "cvs")


def _rule_switched_off(own: StudyRun) -> tuple[str, StudyRun]:
    """The run with λ fixed at the rule's mean, so that only its dependence on the share of new classes is lost."""
    mean = round(mean_lambda(own), 3)
    about = f"λ fixed at the rule's mean, {mean:g}: what the rule itself brings"
    settings = (f"method.lambda={mean:g}",)
    return about, replace(own, study="ablation", change="lambda-mean", settings=settings, stage=REST)


def mean_lambda(own: StudyRun) -> float:
    """Mean λ of the rule over the tasks with an old model, which all bring the same number of classes."""
    method = own.recipe["method"]
    shares = [(seen - before) / seen for before, seen in pairwise(classes_seen(own.recipe))]
    rule = {"scale": method["lambda_scale"], "power": method["lambda_power"]}
    return fmean(lambda_of_share(share, **rule) for share in shares)


def _views_given(tasks: int) -> list[tuple[str, StudyRun]]:
    """Other methods with views, each beside its unchanged run."""
    found, views = [], ("method.view_weight=0.5",)
    for method in WITH_VIEWS:
        found.append(("as in the paper", paper_run(method, tasks)))
        changed = paper_run(method, tasks, study="ablation", change="views", settings=views, stage=REST)
        found.append(("with the view contrast, weight 0.5", changed))
    return found


def _listed() -> list[tuple[str, StudyRun]]:
    found = []
    for tasks in EVERY_COUNT:
        own = own_run(tasks)
        changes = {**PARTS, **MORE_SLOTS} if tasks in TASKS else MORE_SLOTS
        found.append(("the whole method", own))
        if tasks in TASKS:  # the rounding of the kernels has changed since the first run
            found.append((AGAIN, replace(own, study="ablation", change="again", stage=REST)))
        for name, (about, settings) in changes.items():
            found.append((about, replace(own, study="ablation", change=name, settings=settings, stage=REST)))
        if tasks in TASKS:
            found += [_rule_switched_off(own), *_views_given(tasks)]
    return found


def _runs() -> list[StudyRun]:
    return [run for _, run in _listed()]


def _rows(results: Results, selection: Selection) -> list[Row]:
    return [{"part": about, **row([run], results, paper=None)} for about, run in _listed() if selection.of([run])]


def _tables(results: Results, selection: Selection) -> list[Table]:
    rows = _rows(results, selection)
    lines = [[str(r["tasks"]), method_name(r["method"]), r["set"], *scores(r), r["part"]] for r in rows]
    header = ["T", "method", "set", "AC", "AA %", "ACA %", "changed"]
    title = "What each part of our own method contributes: CIFAR100/10, seed 0"
    notes = (SET_LEGEND, NOT_CHOSEN, *commit_note(rows), *missing_note(rows))
    return [Table(title, header, lines, right=(0, 3, 4, 5), notes=notes)]


METHOD_PARTS = ResultPage("What each part of our own method contributes", _runs, _rows, _tables)
