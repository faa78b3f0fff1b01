"""How the ``tuned`` settings are chosen: for each method the same number of tries, scored on classes that are no test.

The validation set is 20 classes of TinyImageNet with no counterpart in CIFAR. A try is the method's recipe at 7 tasks,
40 epochs and seed 0 with a few settings changed; the highest ACA wins, the higher AA where that is equal.
"""

from collections.abc import Mapping

from holdfast.data import DATASETS
from papers.stationary.cells import Cell
from papers.stationary.cifar_cells import OURS, PAPER_METHODS, TRIES, known
from papers.stationary.exhibit import Exhibit, Row, Selection, Table
from papers.stationary.layout import by_commit, method_name, scores, still_missing, through_maps
from papers.stationary.results import Results, row
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
"""Around each method's own dial; the empty one is its recipe as it stands."""

BESIDE: dict[str, tuple[tuple[str, ...], ...]] = {
    OURS: tuple(("method.lambda_scale=0.5", f"method.slots={slots}", COMPACT) for slots in (1000, 10000)),
}
"""Run on the same classes, and not counted: the others had no tries for it."""


def _cell(method: str, settings: tuple[str, ...]) -> Cell:
    changed = [text.partition(".")[2].replace("=", "-") for text in settings if text != COMPACT]
    change = "-".join(changed) or "as-is"
    source = f"cifar100-10/{method}"
    return Cell(
        "validation",
        source,
        method,
        TASKS,
        change=change,
        settings=(*COMMON, *settings),
        stage=TRIES,
        set_name="validation",
    )


def _cells() -> list[Cell]:
    if VALIDATION not in DATASETS:
        return []
    return [cell for listed in (TRIED, BESIDE) for cell in _listed(listed)]


def _listed(tries: Mapping[str, tuple[tuple[str, ...], ...]]) -> list[Cell]:
    return [_cell(method, settings) for method in known((*PAPER_METHODS, OURS)) for settings in tries.get(method, ())]


def _rows(results: Results, selection: Selection) -> list[Row]:
    """Rows with ``settings``, whether they are ``counted`` among the tries, and whether one is the ``winner``."""
    counted = _listed(TRIED)
    found = [
        {
            **row([cell], results, paper=None),
            "settings": list(cell.settings[len(COMMON) :]),
            "counted": cell in counted,
            "winner": False,
        }
        for cell in selection.of(_cells())
    ]
    for method in {r["method"] for r in found}:
        best = winner([r for r in found if r["method"] == method and r["counted"]])
        if best is not None:
            best["winner"] = True
    return found


def winner(rows: list[Row]) -> Row | None:
    """The try with the highest ACA, then AA, then the one listed first; None while a try is missing or has no score."""
    if not rows or any(r["ACA"] is None for r in rows):
        return None
    return max(rows, key=lambda r: (r["ACA"], r["AA"]))


def _tables(results: Results, selection: Selection) -> list[Table]:
    rows = _rows(results, selection)
    absent = () if VALIDATION in DATASETS else (f"This version cannot read {VALIDATION}: nothing to try on.",)
    title = f"Tries on the validation set: {TASKS} tasks, {EPOCHS} epochs, seed 0"
    tables = [_table(title, [r for r in rows if r["counted"]], absent)]
    if beside := [r for r in rows if not r["counted"]]:
        tables.append(_table("Beside the tries, not counted: the others had none for it", beside, ()))
    return tables


def _table(title: str, rows: list[Row], absent: tuple[str, ...]) -> Table:
    lines = [
        [
            method_name(r["method"]),
            *scores(r),
            "chosen" if r["winner"] else "",
            ", ".join(text for text in r["settings"] if text != COMPACT) or "the recipe as it is",
        ]
        for r in rows
    ]
    header = ["method", "AC", "AA %", "ACA %", "", "changed"]
    notes = (*absent, *through_maps(rows), *by_commit(rows), *still_missing(rows))
    return Table(title, header, lines, right=(1, 2, 3), notes=notes)


TRIES_EXHIBIT = Exhibit("the tries on the validation set, and who won", _cells, _rows, _tables)
