"""Table 6: eight methods, and ours, on CIFAR100R/10 with two replacements, 7 and 31 tasks.

``compared_with_paper`` states below a table where the runs contradict what the paper says of IAM-CL2R.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from papers.stationary.cifar_runs import OURS, PAPER_METHODS
from papers.stationary.formatting import (
    INSTANCE_LEGEND,
    by_instance,
    commit_note,
    method_name,
    missing_note,
    printed,
    score,
    scores,
)
from papers.stationary.iam_runs import (
    LAST,
    LONG,
    LONG_TASKS,
    MAIN,
    MORE_SEEDS,
    REPLACED_AT,
    SHORT,
    SHORT_TASKS,
    deviation_notes,
    iam_run,
    our_settings_note,
    with_ours,
)
from papers.stationary.ranking import mean_curves, ranking_table
from papers.stationary.result_page import ResultPage, Row, Selection, Table, printed_in_paper
from papers.stationary.results import Results, grouped_by_seed, row, summary
from papers.stationary.study_runs import StudyRun

REPEATED = ("simplex_fd", "simplex_hoc")
"""These, and ours, are run at two more seeds."""

SEEDS = (
    "The seeds are those of fine-tuning. All runs use the same models, pre-trained once with seed 0, so ± does not"
    " include the effect of another pre-training."
)


def runs() -> list[StudyRun]:
    planned = [iam_run("replaced", method, SHORT_TASKS, stage=SHORT) for method in with_ours(PAPER_METHODS)]
    for method in with_ours(PAPER_METHODS):
        stage = LONG if method in with_ours(MAIN) else LAST
        planned.append(iam_run("replaced", method, LONG_TASKS, stage=stage))
    for seed in (1, 2):
        repeated = with_ours(REPEATED)
        planned += [iam_run("replaced", method, SHORT_TASKS, seed=seed, stage=MORE_SEEDS) for method in repeated]
    return planned


def rows(results: Results, selection: Selection) -> list[Row]:
    found = []
    for group in grouped_by_seed(selection.of(runs())):
        paper = printed_in_paper("table6").get(group[0].method, {}).get(str(group[0].tasks))
        found.append({**row(group, results, paper=None), "paper": paper and as_scores(paper)})
    methods = [*PAPER_METHODS, OURS]
    return sorted(found, key=lambda r: (r["tasks"], methods.index(r["method"])))


def as_scores(pair: list[Any]) -> dict[str, Any]:
    """AC and AA % as printed -> in [0, 1]. Text ("<0.01", a dash) is not changed."""
    ac, aa = pair
    return {"AC": ac, "AA": aa if isinstance(aa, str) else aa / 100}


def _tables(results: Results, selection: Selection) -> list[Table]:
    every = rows(results, selection)
    lines = [
        [
            str(r["tasks"]),
            method_name(r["method"]),
            *scores(r),
            str(len(r["seeds"])),
            printed(r["paper"]),
            by_instance(r),
        ]
        for r in every
    ]
    notes = (
        "T: tasks. n: seeds; mean±standard deviation where there are several. paper: its AC and AA %; it has no ACA.",
        f"{INSTANCE_LEGEND} Not at {LONG_TASKS} tasks.",
        *deviation_notes(results, selection.of(runs())),
        SEEDS,
        *compared_with_paper(results, selection.of(runs())),
        *our_settings_note(every),
        *commit_note(every),
        *missing_note(every),
    )
    header = ["T", "method", "AC", "AA %", "ACA %", "n", "paper", "by instance"]
    scored = Table("CIFAR100R/10, two replacements", header, lines, right=(0, 2, 3, 4, 5), notes=notes)
    return [scored, *ranking_table(results, selection.of(runs()), printed_in_paper("table6"))]


TABLE6 = ResultPage("Table 6: IAM-CL2R on CIFAR100R/10, two replacements", runs, rows, _tables)


OWN = "simplex_hoc"
WITH_A_CLASSIFIER = ("er", "fan", "bct", "lce", "advbct", "cvs")
"""Methods with learned prototypes, which differ in a model that was trained elsewhere."""


def compared_with_paper(results: Results, runs: Sequence[StudyRun]) -> Iterator[str]:
    """A note for each number of tasks: what contradicts the paper, or, if nothing does, what confirms it."""
    for tasks in sorted({run.tasks for run in runs}):
        found = _Comparison(results, [run for run in runs if run.tasks == tasks and run.method in PAPER_METHODS])
        if OWN not in found.scores:
            continue
        findings = [*found.first(), *found.across(REPLACED_AT[tasks])]
        for opening, wanted in (("Not as the paper says", False), ("As the paper says", True)):
            said = [text for agrees, text in findings if agrees is wanted]
            if said:
                yield f"{opening} ({tasks} tasks, the runs at hand): {'; '.join(said)}."
                break


class _Comparison:
    """Findings, each as (agrees with the paper, text). Missing runs give no finding."""

    def __init__(self, results: Results, runs: Sequence[StudyRun]) -> None:
        """Read scores and AA after each task, by method, as means over the finished seeds."""
        self.scores = {}
        for group in grouped_by_seed(runs):
            records = [record for run in group if (record := results.record(run)) is not None]
            if records:
                self.scores[group[0].method] = summary(records)
        self.over_tasks = {method: curves["AA"] for method, curves in mean_curves(results, runs).items()}

    def first(self) -> Iterator[tuple[bool, str]]:
        """Whether d-Simplex-HOC has the highest AC and AA."""
        for name in ("AC", "AA"):
            mine = self.scores[OWN][name]
            others = {method: scores[name] for method, scores in self.scores.items() if method != OWN}
            known = {method: value for method, value in others.items() if value is not None}
            ahead = {method: value for method, value in known.items() if value > mine}
            if ahead:
                named = ", ".join(f"{method_name(method)} {score(name, value)}" for method, value in ahead.items())
                yield False, f"in {name} d-Simplex-HOC ({score(name, mine)}) is behind {named}"
            elif known:
                yield True, f"d-Simplex-HOC is first in {name}"

    def across(self, replaced: Sequence[int]) -> Iterator[tuple[bool, str]]:
        """Whether AA rises at a replacement for d-Simplex-HOC and falls for methods with a trainable classifier."""
        agree = dict.fromkeys((True, False), 0)
        for task in replaced:
            for method in (OWN, *WITH_A_CLASSIFIER):
                before, after = self.over_tasks.get(method, [None] * task)[task - 2 : task]
                if before is None or after is None:
                    continue
                rises = method == OWN
                if (after > before) if rises else (after < before):
                    agree[rises] += 1
                    continue
                moves = "falls" if after < before else "rises" if after > before else "stays"
                moved = f"{score('AA', before)} to {score('AA', after)}"
                yield False, f"AA of {method_name(method)} {moves} at task {task}, {moved}"
        if agree[True]:
            yield True, "at replacements its AA rises"
        if agree[False]:
            yield True, "that of methods with a trainable classifier falls wherever it can be compared"
