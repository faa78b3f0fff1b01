"""Page ``length``: effect of the feature length on an update, at a scale for two cores (a small network)."""

from collections.abc import Sequence
from statistics import fmean

from papers.stationary.cifar_runs import REST, paper_run
from papers.stationary.formatting import MISSING, commit_note, method_name, missing_note, score, scores
from papers.stationary.result_page import ResultPage, Row, Selection, Table
from papers.stationary.results import Results, row
from papers.stationary.study_runs import StudyRun

SMALL = (
    "backbone.name=small",
    "backbone.in_channels=3",
    "backbone.width=16",
    "data.train.images_per_class=100",
    "train.precision=fp32",
    "train.executor=auto",
    "evaluation.protocols=['template']",
)
"""Takes three minutes on one core at 2 tasks; ResNet-32 on all images would take a day."""

UNCHANGED = ("", "as in the paper (λ 0.1)", ())
HELD = ("length-28", "cross-entropy sees every feature at length 28", ("method.length=28.0",))
"""28: the mean length after the first task here (``bench/feature_length.py``), before features shrink."""

HELD_SHORT = ("length-7", "cross-entropy sees every feature at length 7", ("method.length=7.0",))
"""7: about the length to which features shrink. If an update gains as little with it, the short length itself is the
cause; if it gains more, the shrinking is."""

LARGER = ("lambda-0.6", "λ 0.6", ("method.lambda=0.6",))
"""For comparison only, so at one seed, like ER."""

CHANGES = {2: (UNCHANGED, HELD, HELD_SHORT, LARGER), 7: (UNCHANGED, HELD, HELD_SHORT), 16: (UNCHANGED, HELD)}
COMPARED = "er"
SEEDS = (0, 1, 2)


def _listed() -> list[tuple[str, list[StudyRun]]]:
    """(what is changed, its runs at several seeds) for each row."""
    found = []
    for tasks, changes in CHANGES.items():
        for change in changes:
            suffix, about, settings = change
            seeds = SEEDS[:1] if change is LARGER else SEEDS
            found.append((about, [_small("simplex_hoc", tasks, seed, suffix, settings) for seed in seeds]))
        found.append(("as in the paper", [_small(COMPARED, tasks)]))
    return found


def _small(method: str, tasks: int, seed: int = 0, suffix: str = "", settings: tuple[str, ...] = ()) -> StudyRun:
    return paper_run(method, tasks, seed=seed, study="small", change=suffix, settings=(*SMALL, *settings), stage=REST)


def _runs() -> list[StudyRun]:
    return [run for _, runs in _listed() for run in runs]


def _rows(results: Results, selection: Selection) -> list[Row]:
    """Rows like those of Table 2, with ``changed`` and the mean ``self_tests`` of each model."""
    rows = []
    for about, listed in _listed():
        if runs := selection.of(listed):
            own = [found for run in runs if (found := results.self_tests(run)) is not None]
            means = [fmean(models) for models in zip(*own)] or None
            rows.append({**row(runs, results, paper=None), "changed": about, "self_tests": means})
    return rows


def _tables(results: Results, selection: Selection) -> list[Table]:
    rows = _rows(results, selection)
    lines = [
        [str(r["tasks"]), method_name(r["method"]), *_own(r), *scores(r), str(len(r["seeds"])), r["changed"]]
        for r in rows
    ]
    header = ["T", "method", "model 1 %", "model 2 %", "last %", "AC", "AA %", "ACA %", "n", "changed"]
    title = "Effect of the feature length: CIFAR100/10 with 100 images a class and a small network, natural order"
    notes = (
        "Model 1, model 2, last: top-1 of a model on its own gallery, by template. n: seeds; means, with the standard"
        " deviation of AC, AA and ACA.",
        "Compare these rows only with each other: recipes, classes and queries are those of Table 2, network and number"
        " of images are not.",
        *commit_note(rows),
        *missing_note(rows),
    )
    return [Table(title, header, lines, right=(0, *range(2, 9)), notes=notes)]


def _own(r: Row) -> Sequence[str]:
    if r["self_tests"] is None:
        return [MISSING, "", ""]
    return [score("AA", r["self_tests"][model]) for model in (0, 1, -1)]


FEATURE_LENGTH = ResultPage("Effect of the feature length, at a scale for two cores", _runs, _rows, _tables)
