"""Tables 3 and 4: eight methods, and ours, on TinyImageNet200/20 and CUB180/20 with 2, 7, 16 and 31 tasks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.core.wording import counted
from papers.stationary.cifar_runs import OURS, PAPER_METHODS, TASKS
from papers.stationary.formatting import (
    INSTANCE_LEGEND,
    LEGEND,
    by_instance,
    commit_note,
    fan_note,
    method_name,
    missing_note,
    paper_scores,
    scores,
)
from papers.stationary.iam_runs import LAST
from papers.stationary.ranking import ranking_table
from papers.stationary.result_page import ResultPage, Row, Selection, Table, printed_in_paper
from papers.stationary.results import Results, row
from papers.stationary.study_runs import StudyRun

STAGE = LAST + 1
"""After all runs that need no further data. Table 3 comes before Table 4, whose runs take ten times as long."""

STAND_IN = tuple(
    f"data.{split}.{setting}"
    for split in ("query", "gallery")
    for setting in ("name=miniimagenet20", "classes=outside_tinyimagenet")
)
STAND_IN_NOTE = (
    "Stand-in: the paper tests on 20 ImageNet classes that are not freely available. Here the test is on 20 classes of"
    " miniImageNet that are not in TinyImageNet, 84 x 84 scaled to 64 x 64, with 10,000 queries and 2,000 gallery"
    " images (paper: 25,478 and 1,000). Compare the order of the methods, not the numbers."
)
NOT_STATED = (
    "Not stated in the paper: the stem (here torchvision's), augmentation (random crop and flip), momentum (0.9),"
    " weight decay (5e-4) and class order (that of wnids.txt)."
)
SOME = ("er", "cvs", "simplex_hoc", OURS)
"""Methods that are run first where not all are."""

UNEVEN = (
    'The paper prints "<0.01" where AC is not 0 but below a hundredth. At 2 tasks its ACA equals its AA for seven'
    " methods, although ACA is one cell and AA the mean of three. FAN's AA at 7 tasks repeats the one at 2. We do not"
    " compare with these values."
)
SPLITS = (
    "Gallery and queries are CUB's train and test splits, as the paper's counts demand; its footnote has them the other"
    " way round."
)


@dataclass(frozen=True)
class _PaperTable:
    """One of the two tables.

    name: file of the paper's numbers.
    family: folder of the recipes and of the results.
    title: data set, for the heading.
    data: note on the data that missing runs need.
    notes: notes below the table.
    first: number of tasks -> methods that are run first. Our own method is run only where it is named here.
    stage: position of these runs in the running order; the others follow at the next one.
    settings: changed in every recipe.
    misprinted: (method, number of tasks) whose AA in the paper is a slip, so that it is not part of its ranking.
    """

    name: str
    family: str
    title: str
    data: str
    notes: tuple[str, ...]
    first: Mapping[int, tuple[str, ...]]
    stage: int
    settings: tuple[str, ...] = ()
    misprinted: tuple[tuple[str, int], ...] = ()

    def runs(self) -> list[StudyRun]:
        planned = []
        for tasks in TASKS:
            first = self.first.get(tasks, ())
            for method in (*PAPER_METHODS, *((OURS,) if OURS in first else ())):
                planned.append(
                    StudyRun(
                        "paper",
                        f"{self.family}/{method}",
                        method,
                        tasks,
                        settings=self.settings,
                        stage=self.stage if method in first else self.stage + 1,
                        family=self.family,
                    )
                )
        return planned

    def rows(self, results: Results, selection: Selection) -> list[Row]:
        printed = printed_in_paper(self.name)
        return [
            row([run], results, paper=printed.get(run.method, {}).get(str(run.tasks)))
            for run in selection.of(self.runs())
        ]

    def tables(self, results: Results, selection: Selection) -> list[Table]:
        every = self.rows(results, selection)
        lines = [
            [
                str(r["tasks"]),
                method_name(r["method"]),
                *scores(r),
                str(len(r["seeds"])),
                paper_scores(r),
                by_instance(r),
            ]
            for r in every
        ]
        absent = missing_note(every)
        notes = (
            LEGEND,
            INSTANCE_LEGEND,
            *self.notes,
            *fan_note(every),
            *_minutes_note(results, selection.of(self.runs())),
            *commit_note(every),
            *absent,
            *([self.data] if absent else []),
        )
        header = ["T", "method", "AC", "AA %", "ACA %", "n", "paper", "by instance"]
        title = f"{self.title}: the paper's settings, natural class order"
        scored = Table(title, header, lines, right=(0, 2, 3, 4, 5), notes=notes)
        return [scored, *ranking_table(results, selection.of(self.runs()), self._ranked())]

    def _ranked(self) -> dict[str, dict[str, list[Any]]]:
        """The paper's scores without those that are slips."""
        return {
            method: {
                tasks: [printed[0], "–", *printed[2:]] if (method, int(tasks)) in self.misprinted else printed
                for tasks, printed in by_tasks.items()
            }
            for method, by_tasks in printed_in_paper(self.name).items()
        }


def _minutes_note(results: Results, runs: Sequence[StudyRun]) -> tuple[str, ...]:
    """A note with the device minutes of the finished runs of each number of tasks; none if nothing was run."""
    parts = []
    for tasks in TASKS:
        finished = [run for run in runs if run.tasks == tasks and results.record(run) is not None]
        if finished:
            parts.append(f"{results.minutes(finished):.1f} for {counted(len(finished), 'run')} at {tasks} tasks")
    return (f"GPU minutes: {', '.join(parts)}.",) if parts else ()


_TINY = _PaperTable(
    "table3",
    "tinyimagenet200-20",
    "TinyImageNet200/20",
    "They need `tiny-imagenet-200` and `mini-imagenet` below `--data`.",
    (STAND_IN_NOTE, NOT_STATED, UNEVEN),
    first={7: (*PAPER_METHODS, OURS), 16: SOME},
    stage=STAGE,
    settings=STAND_IN,
    misprinted=(("fan", 7),),
)
_BIRDS = _PaperTable(
    "table4",
    "cub180-20",
    "CUB180/20",
    "They need `CUB_200_2011` below `--data`.",
    (SPLITS,),
    first={7: SOME},
    stage=STAGE + 2,
)

TABLE3 = ResultPage("Table 3: TinyImageNet200/20, 2 to 31 tasks", _TINY.runs, _TINY.rows, _TINY.tables)
TABLE4 = ResultPage("Table 4: CUB180/20, 2 to 31 tasks", _BIRDS.runs, _BIRDS.rows, _BIRDS.tables)
