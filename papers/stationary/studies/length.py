"""What shorter features do to an update, at a scale for two cores: the paper's recipes with a small network."""

from collections.abc import Sequence
from statistics import fmean

from papers.stationary.cells import Cell
from papers.stationary.cifar_cells import REST, paper_cell
from papers.stationary.exhibit import Exhibit, Row, Selection, Table
from papers.stationary.layout import MISSING, by_commit, method_name, score, scores, still_missing
from papers.stationary.results import Results, row

SMALL = (
    "backbone.name=small",
    "backbone.in_channels=3",
    "backbone.width=16",
    "data.train.images_per_class=100",
    "train.precision=fp32",
    "train.executor=auto",
    "evaluation.protocols=['template']",
)
"""Three minutes on one core at 2 tasks, where ResNet-32 on all images would take a day."""

UNCHANGED = ("", "as in the paper (λ 0.1)", ())
HELD = ("length-28", "cross-entropy sees every feature at length 28", ("method.length=28.0",))
"""The mean length after the first task here (``bench/feature_length.py``), from which features shrink."""

HELD_SHORT = ("length-7", "cross-entropy sees every feature at length 7", ("method.length=7.0",))
"""About what they shrink to: if an update goes no farther, it is their length that holds it back, and if it does, it is
that they may be shortened."""

LARGER = ("lambda-0.6", "λ 0.6", ("method.lambda=0.6",))
"""For comparison alone, and so at one seed, as ER is."""

CHANGES = {2: (UNCHANGED, HELD, HELD_SHORT, LARGER), 7: (UNCHANGED, HELD, HELD_SHORT), 16: (UNCHANGED, HELD)}
COMPARED = "er"
SEEDS = (0, 1, 2)


def _listed() -> list[tuple[str, list[Cell]]]:
    """What is changed, and the seeds of it."""
    found = []
    for tasks, changes in CHANGES.items():
        for change in changes:
            suffix, about, settings = change
            seeds = SEEDS[:1] if change is LARGER else SEEDS
            found.append((about, [_small("simplex_hoc", tasks, seed, suffix, settings) for seed in seeds]))
        found.append(("as in the paper", [_small(COMPARED, tasks)]))
    return found


def _small(method: str, tasks: int, seed: int = 0, suffix: str = "", settings: tuple[str, ...] = ()) -> Cell:
    return paper_cell(method, tasks, seed=seed, study="small", change=suffix, settings=(*SMALL, *settings), stage=REST)


def _cells() -> list[Cell]:
    return [cell for _, cells in _listed() for cell in cells]


def _rows(results: Results, selection: Selection) -> list[Row]:
    """Rows as Table 2's, with what is ``changed`` and the mean ``self_tests`` of each model."""
    rows = []
    for about, listed in _listed():
        if cells := selection.of(listed):
            own = [found for cell in cells if (found := results.self_tests(cell)) is not None]
            means = [fmean(models) for models in zip(*own)] or None
            rows.append({**row(cells, results, paper=None), "changed": about, "self_tests": means})
    return rows


def _tables(results: Results, selection: Selection) -> list[Table]:
    rows = _rows(results, selection)
    lines = [
        [str(r["tasks"]), method_name(r["method"]), *_own(r), *scores(r), str(len(r["seeds"])), r["changed"]]
        for r in rows
    ]
    header = ["T", "method", "model 1 %", "model 2 %", "last %", "AC", "AA %", "ACA %", "n", "changed"]
    title = "What shorter features do: CIFAR100/10 with 100 images a class and a small network, natural order"
    notes = (
        "Model 1, model 2, last: top-1 of a model on its own gallery, by template. n: seeds; means, with the standard"
        " deviation of AC, AA and ACA.",
        "Meant to be compared with each other alone: recipes, classes and queries are Table 2's, network and images are"
        " not.",
        *by_commit(rows),
        *still_missing(rows),
    )
    return [Table(title, header, lines, right=(0, *range(2, 9)), notes=notes)]


def _own(r: Row) -> Sequence[str]:
    if r["self_tests"] is None:
        return [MISSING, "", ""]
    return [score("AA", r["self_tests"][model]) for model in (0, 1, -1)]


LENGTH = Exhibit("what shorter features do, at a scale for two cores", _cells, _rows, _tables)
