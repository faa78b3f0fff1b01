"""Page ``search``: how settings are chosen, with six tries for each method on the validation set.

The validation set is 20 classes of TinyImageNet without a counterpart in CIFAR. A try is the method's recipe at 7
tasks, 40 epochs and seed 0 with some settings changed. Each method gets two settings: the try with the highest ACA, and
the one with the highest ACA of rotated queries; AA decides between equal ACA. For the second, every method is read from
its network's own feature: with a simplex that is the feature before the projection.
"""

from collections.abc import Mapping
from typing import Any

from papers.stationary.cifar_runs import OURS, PAPER_METHODS, TRIES
from papers.stationary.formatting import commit_note, diverged_note, fan_note, method_name, missing_note, score, scores
from papers.stationary.readings import GALLERY_PAIRS
from papers.stationary.result_page import ResultPage, Row, Selection, Table
from papers.stationary.results import SCORES, Results, row
from papers.stationary.study_runs import StudyRun
from papers.stationary.table8 import COMPACT

VALIDATION = "tinyimagenet32_validation"
TASKS, EPOCHS = 7, 40
COMMON = (
    f'data.query={{name="{VALIDATION}",split="train",part="query"}}',
    f'data.gallery={{name="{VALIDATION}",split="train",part="gallery"}}',
    f"train.epochs={EPOCHS}",
)

MIXED = "train.draw=mixed"
LENGTH = "method.length=16.0"
SCALE = "method.lambda_scale=0.85"

TRIED: dict[str, tuple[tuple[str, ...], ...]] = {
    "er": (
        (),
        ("train.lr=0.05",),
        ("train.lr=0.03",),
        ("train.lr=0.01",),
        (MIXED,),
        ("train.weight_decay=0.001",),
    ),
    "fan": (
        (),
        ("method.features_weight=5.0",),
        ("method.features_weight=20.0",),
        ("method.features_weight=5.0", "method.logits_weight=5.0"),
        ("method.features_weight=10.0", "method.logits_weight=10.0"),
        ("method.features_weight=20.0", "method.logits_weight=5.0"),
    ),
    "bct": (
        (),
        ("method.weight=0.3",),
        ("method.weight=3.0",),
        ("method.synthesise=true",),
        ("method.weight=10.0",),
        ("method.weight=3.0", MIXED),
    ),
    "lce": (
        (),
        ("method.align=10.0",),
        ("method.align=1.0",),
        ("method.align=10.0", "method.bound=10.0"),
        ("method.softmax=linear",),
        ("method.softmax=linear", "method.align=1.0"),
    ),
    "advbct": (
        (),
        ("method.tau=0.5",),
        ("method.limit=10.0",),
        ("method.limit=10.0", "method.adversary=0.1"),
        ("method.tau=0.5", "method.limit=10.0"),
        ("method.tau=0.5", MIXED),
    ),
    "cvs": (
        (),
        ("method.coherence=3.0",),
        ("method.coherence=30.0",),
        ("method.centre=10.0",),
        ("method.coherence=100.0",),
        ("method.coherence=30.0", MIXED),
    ),
    "distillation": (
        (),
        ("method.features_weight=1.0", "method.logits_weight=1.0"),
        ("method.features_weight=20.0",),
        ("method.logits_weight=20.0",),
        ("method.features_weight=10.0", "method.logits_weight=10.0"),
        ("method.features_weight=20.0", "method.logits_weight=20.0"),
    ),
    "simplex_fd": (
        (),
        ("method.base=15.0",),
        ("method.base=50.0",),
        ("method.on=all", "method.base=15.0"),
        ("method.on=all", "method.base=50.0"),
        ("method.on=all", "method.base=15.0", LENGTH),
    ),
    "simplex_hoc": (
        (),
        ("method.lambda=0.2",),
        ("method.lambda=0.3",),
        ("method.lambda=0.4",),
        ("method.lambda=0.6", "method.rho=10.0"),
        (LENGTH, "method.first_length=16.0"),
    ),
    OURS: (
        ("method.lambda_scale=0.5",),
        (SCALE,),
        ("method.lambda_scale=0.5", LENGTH),
        (SCALE, LENGTH),
        (SCALE, LENGTH, "method.features_weight=1.0"),
        (SCALE, LENGTH, "method.slots=1000", COMPACT),
    ),
}
"""Method -> its six tries, each a tuple of settings. The empty tuple is the unchanged recipe."""

METHODS = (*PAPER_METHODS, "distillation", OURS)


def name_of_change(settings: tuple[str, ...]) -> str:
    """A short name of changed settings, for the file of a run."""
    changed = [text.partition(".")[2].replace("=", "-") for text in settings if text != COMPACT]
    return "-".join(changed) or "as-is"


def _try(method: str, settings: tuple[str, ...]) -> StudyRun:
    return StudyRun(
        "search",
        f"cifar100-10/{method}",
        method,
        TASKS,
        change=name_of_change(settings),
        settings=(*COMMON, *settings),
        stage=TRIES,
        set_name="validation",
        measures=("readings",),
    )


def _runs() -> list[StudyRun]:
    return [_try(method, settings) for method in METHODS for settings in TRIED[method]]


def rotated_scores(record: Mapping[str, Any]) -> dict[str, float]:
    """AC-R, AA and ACA by template with rotated queries, read from the network's own feature."""
    readings = record["readings"]
    found = readings.get("backbone", readings["simplex"])[GALLERY_PAIRS]["template"]
    return {name: found[name] for name in SCORES}


def _rows(results: Results, selection: Selection) -> list[Row]:
    """Rows with ``settings``, ``rotated`` (scores, None if missing) and ``chosen`` (by which score)."""
    found: list[Row] = []
    for run in selection.of(_runs()):
        record = results.record(run)
        found.append(
            {
                **row([run], results, paper=None),
                "settings": list(run.settings[len(COMMON) :]),
                "rotated": None if record is None else rotated_scores(record),
                "chosen": [],
            }
        )
    for method in {line["method"] for line in found}:
        own = [line for line in found if line["method"] == method]
        for by, tries in (
            ("ACA", own),
            ("ACA with rotation", [{**line, **(line["rotated"] or dict.fromkeys(SCORES)), "of": line} for line in own]),
        ):
            best = winner(tries)
            if best is not None:
                best.get("of", best)["chosen"].append(by)
    return found


def winner(rows: list[Row]) -> Row | None:
    """The try with the highest ACA, then AA, then the first; None while a try is missing or if none has a score."""
    scored = [r for r in rows if not r["diverged"]]
    if not scored or any(r["ACA"] is None for r in scored):
        return None
    return max(scored, key=lambda r: (r["ACA"], r["AA"]))


def _tables(results: Results, selection: Selection) -> list[Table]:
    rows = _rows(results, selection)
    lines = [
        [
            method_name(line["method"]),
            ", ".join(text for text in line["settings"] if text != COMPACT) or "unchanged recipe",
            *scores(line),
            *(["", "", ""] if line["rotated"] is None else [score(name, line["rotated"][name]) for name in SCORES]),
            "; ".join(line["chosen"]),
        ]
        for line in rows
    ]
    notes = (
        "The first three scores are those of the feature that the recipe names, without a map. With rotation: every"
        " query on an older gallery is turned by a matrix fitted without labels on 1,000 gallery images, and every"
        " method is read from its network's own feature. chosen: the highest ACA of the method's six tries, without"
        " and with rotation; AA decides between equal ACA.",
        *fan_note(rows),
        *commit_note(rows),
        *diverged_note(rows),
        *missing_note(rows),
    )
    header = ["method", "changed", "AC", "AA %", "ACA %", "AC-R", "AA %, rotated", "ACA %, rotated", "chosen by"]
    title = f"Six tries for each method on the validation set: {TASKS} tasks, {EPOCHS} epochs, seed 0"
    return [Table(title, header, lines, right=tuple(range(2, 8)), notes=notes)]


VALIDATION_TRIES = ResultPage("Tries on the validation set, and the chosen settings", _runs, _rows, _tables)
