"""Page ``questions``: details that the paper leaves open, one change at a time, at 70 epochs."""

from dataclasses import dataclass, field

from papers.stationary.cifar_runs import QUESTIONS, paper_run
from papers.stationary.formatting import AGAIN, by_instance, commit_note, method_name, missing_note, scores
from papers.stationary.result_page import ResultPage, Row, Selection, Table
from papers.stationary.results import Results, row
from papers.stationary.study_runs import StudyRun

TASKS = 7
HELD = ("length-25", "cross-entropy sees every feature at length 25", "simplex_hoc", ("method.length=25.0",))
"""25: about the mean length after the first task (``bench/feature_length.py``), before features shrink."""
FP32 = ("train.precision=fp32", "train.executor=auto")
"""The fused kernels, which the recipes name, compute in bf16 only."""
TABLE_2 = ""
"""Suffix of a run of study ``paper``."""


@dataclass(frozen=True)
class Change:
    """One change of the paper's settings. Without settings it is a run of study ``paper``.

    suffix: of the file name of a run that is not of study ``paper``.
    about: what is changed, as shown in the table.
    method: name of the method.
    settings: changed settings, each as ``key=value``.
    order: class order.
    tasks: number of tasks.
    again: repeat the unchanged run with the code of the other rows, because the rounding of the kernels has changed.
    """

    suffix: str
    about: str
    method: str = "simplex_hoc"
    settings: tuple[str, ...] = field(default=())
    order: str = "natural"
    tasks: int = TASKS
    again: bool = False

    @property
    def run(self) -> StudyRun:
        if not (self.settings or self.again):  # a run of study ``paper``, which is not repeated
            return paper_run(self.method, self.tasks, order=self.order)
        return paper_run(
            self.method,
            self.tasks,
            order=self.order,
            study="questions",
            change=self.suffix,
            settings=self.settings,
            stage=QUESTIONS,
        )


CHANGES = (
    Change(TABLE_2, "the paper's settings"),
    Change("again", AGAIN, again=True),
    Change(TABLE_2, "iCaRL's class order", order="icarl"),
    Change("lambda-0.3", "λ 0.3", settings=("method.lambda=0.3",)),
    Change("lambda-0.3", "λ 0.3 in iCaRL's class order", settings=("method.lambda=0.3",), order="icarl"),
    Change("frobenius", "the listing's Frobenius scale of W", settings=("method.scale=frobenius",)),
    Change("negatives-paper", "the paper's literal negatives, j ≠ i", settings=("method.negatives=paper",)),
    Change("negatives-masked", "same-class pairs left out", settings=("method.negatives=masked",)),
    Change("cosine", "cosine schedule", settings=("train.schedule=cosine",)),
    Change("independent", "each batch drawn anew, as the authors do", settings=("train.draw=independent",)),
    Change("decay-1e-4", "weight decay 1e-4", settings=("train.weight_decay=1e-4",)),
    Change("decay-0", "no weight decay", settings=("train.weight_decay=0.0",)),
    Change("decay-norms", "weight decay spares biases and norms", settings=("train.decay_norms=false",)),
    Change("fp32", "float32 throughout", settings=FP32),
    Change(*HELD),
    Change(TABLE_2, "the paper's settings", "er"),
    Change("again", AGAIN, "er", again=True),
    Change(TABLE_2, "iCaRL's class order", "er", order="icarl"),
    Change("independent", "each batch drawn anew, as the authors do", "er", ("train.draw=independent",)),
    Change("cosine", "cosine schedule", "er", ("train.schedule=cosine",)),
    Change("fp32", "float32 throughout", "er", FP32),
    Change(TABLE_2, "the paper's settings: cosine, replayed half, base 5", "simplex_fd"),
    Change("again", AGAIN, "simplex_fd", again=True),
    Change(TABLE_2, "iCaRL's class order", "simplex_fd", order="icarl"),
    Change("weight-15", "base 15", "simplex_fd", ("method.base=15.0",)),
    Change("weight-50", "base 50", "simplex_fd", ("method.base=50.0",)),
    Change("all", "the whole batch", "simplex_fd", ("method.on=all",)),
    Change("all-weight-15", "the whole batch, base 15", "simplex_fd", ("method.on=all", "method.base=15.0")),
    Change("squared", "mean square error of raw features", "simplex_fd", ("method.distance=squared",)),
    Change("all-squared", "mean square error, whole batch", "simplex_fd", ("method.distance=squared", "method.on=all")),
    Change("frobenius", "the listing's Frobenius scale of W", "simplex_fd", ("method.scale=frobenius",)),
    Change(TABLE_2, "the paper's settings", tasks=2),
    Change("decay-1e-4", "weight decay 1e-4", settings=("train.weight_decay=1e-4",), tasks=2),
    Change(*HELD, tasks=2),
    Change(TABLE_2, "the paper's settings, where the axes of Table 8 cross", tasks=16),
    Change("again", AGAIN, tasks=16, again=True),
    Change(*HELD, tasks=16),
)


def _runs() -> list[StudyRun]:
    return [change.run for change in CHANGES]


def _rows(results: Results, selection: Selection) -> list[Row]:
    return [
        {
            "question": change.about,
            "settings": list(change.settings),
            **row([change.run], results, paper=None),
        }
        for change in CHANGES
        if selection.of([change.run])
    ]


def _tables(results: Results, selection: Selection) -> list[Table]:
    rows = _rows(results, selection)
    lines = [
        [
            str(r["tasks"]),
            method_name(r["method"]),
            *scores(r),
            by_instance(r),
            r["question"],
        ]
        for r in rows
    ]
    header = ["T", "method", "AC", "AA %", "ACA %", "by instance", "changed"]
    title = "One change at a time from the paper set: CIFAR100/10, 70 epochs, seed 0"
    return [Table(title, header, lines, right=(0, 2, 3, 4), notes=(*commit_note(rows), *missing_note(rows)))]


OPEN_DETAILS = ResultPage("Details the paper leaves open, one change at a time", _runs, _rows, _tables)
