"""Page ``tries``: how the ``tuned`` settings are chosen, with the same number of tries for each method.

The validation set is 20 classes of TinyImageNet without a counterpart in CIFAR. A try is the method's recipe at 7
tasks, 40 epochs and seed 0 with some settings changed. The highest ACA wins; AA decides between equal ACA.
"""

from collections.abc import Mapping

from papers.stationary.cifar_runs import OURS, PAPER_METHODS, TRIES
from papers.stationary.formatting import commit_note, fan_note, method_name, missing_note, scores
from papers.stationary.result_page import ResultPage, Row, Selection, Table
from papers.stationary.results import Results, row
from papers.stationary.study_runs import StudyRun
from papers.stationary.table8 import COMPACT

VALIDATION = "tinyimagenet32_validation"
TASKS, EPOCHS = 7, 40
COMMON = (
    f'data.query={{name="{VALIDATION}",split="train",part="query"}}',
    f'data.gallery={{name="{VALIDATION}",split="train",part="gallery"}}',
    f"train.epochs={EPOCHS}",
)

TRIED: dict[str, tuple[tuple[str, ...], ...]] = {
    "er": ((), ("train.lr=0.05",), ("train.lr=0.03",), ("train.lr=0.01",)),
    "fan": (
        (),
        ("method.features_weight=5.0",),
        ("method.features_weight=20.0",),
        ("method.features_weight=5.0", "method.logits_weight=5.0"),
    ),
    "bct": ((), ("method.weight=0.3",), ("method.weight=3.0",), ("method.synthesise=true",)),
    "lce": ((), ("method.align=10.0",), ("method.align=1.0",), ("method.align=10.0", "method.bound=10.0")),
    "advbct": ((), ("method.tau=0.5",), ("method.limit=10.0",), ("method.limit=10.0", "method.adversary=0.1")),
    "cvs": ((), ("method.coherence=3.0",), ("method.coherence=30.0",), ("method.centre=10.0",)),
    "simplex_fd": (
        (),
        ("method.base=15.0",),
        ("method.base=50.0",),
        ("method.on=all", "method.base=15.0"),
    ),
    "simplex_hoc": ((), ("method.lambda=0.2",), ("method.lambda=0.3",), ("method.lambda=0.4",)),
    OURS: (
        (),
        ("method.lambda_scale=0.5",),
        ("method.lambda_scale=0.85",),
        ("method.view_weight=1.0",),
    ),
}
"""Method -> its tries, each a tuple of settings. The empty tuple is the unchanged recipe."""

BESIDE: dict[str, tuple[tuple[str, ...], ...]] = {
    OURS: tuple(("method.lambda_scale=0.5", f"method.slots={slots}", COMPACT) for slots in (1000, 10000)),
}
"""Runs on the same classes that do not count as tries, because the other methods had none for this setting."""


def name_of_change(settings: tuple[str, ...]) -> str:
    """A short name of changed settings, for the file of a run."""
    changed = [text.partition(".")[2].replace("=", "-") for text in settings if text != COMPACT]
    return "-".join(changed) or "as-is"


def _cell(method: str, settings: tuple[str, ...]) -> StudyRun:
    return StudyRun(
        "validation",
        f"cifar100-10/{method}",
        method,
        TASKS,
        change=name_of_change(settings),
        settings=(*COMMON, *settings),
        stage=TRIES,
        set_name="validation",
    )


def _runs() -> list[StudyRun]:
    return [run for listed in (TRIED, BESIDE) for run in _listed(listed)]


def _listed(tries: Mapping[str, tuple[tuple[str, ...], ...]]) -> list[StudyRun]:
    return [_cell(method, settings) for method in (*PAPER_METHODS, OURS) for settings in tries.get(method, ())]


def _rows(results: Results, selection: Selection) -> list[Row]:
    """Rows with ``settings``, ``counted`` (is a try) and ``winner``."""
    counted = _listed(TRIED)
    found = [
        {
            **row([run], results, paper=None),
            "settings": list(run.settings[len(COMMON) :]),
            "counted": run in counted,
            "winner": False,
        }
        for run in selection.of(_runs())
    ]
    for method in {r["method"] for r in found}:
        best = winner([r for r in found if r["method"] == method and r["counted"]])
        if best is not None:
            best["winner"] = True
    return found


def winner(rows: list[Row]) -> Row | None:
    """The try with the highest ACA, then AA, then the first; None while a try is missing or if none has a score."""
    scored = [r for r in rows if not r["diverged"]]
    if not scored or any(r["ACA"] is None for r in scored):
        return None
    return max(scored, key=lambda r: (r["ACA"], r["AA"]))


def _tables(results: Results, selection: Selection) -> list[Table]:
    rows = _rows(results, selection)
    title = f"Tries on the validation set: {TASKS} tasks, {EPOCHS} epochs, seed 0"
    tables = [_table(title, [r for r in rows if r["counted"]])]
    if beside := [r for r in rows if not r["counted"]]:
        tables.append(_table("Not counted as tries: the other methods had none for this setting", beside))
    return tables


def _table(title: str, rows: list[Row]) -> Table:
    lines = [
        [
            method_name(r["method"]),
            *scores(r),
            "chosen" if r["winner"] else "",
            ", ".join(text for text in r["settings"] if text != COMPACT) or "unchanged recipe",
        ]
        for r in rows
    ]
    header = ["method", "AC", "AA %", "ACA %", "", "changed"]
    notes = (*fan_note(rows), *commit_note(rows), *missing_note(rows))
    return Table(title, header, lines, right=(1, 2, 3), notes=notes)


VALIDATION_TRIES = ResultPage("Tries on the validation set, and the chosen settings", _runs, _rows, _tables)
