"""Table 6: eight methods, and ours, on CIFAR100R/10 with two replacements, 7 and 31 tasks."""

from typing import Any

from holdfast.reproduction.cells import Cell
from holdfast.reproduction.cifar import OURS, PAPER_METHODS
from holdfast.reproduction.exhibit import Exhibit, Row, Selection, Table, papers
from holdfast.reproduction.iam import (
    LAST,
    LONG,
    LONG_TASKS,
    MAIN,
    MORE_SEEDS,
    OUR_SETTING,
    SHORT,
    SHORT_TASKS,
    iam_cell,
    pretrained,
    with_ours,
)
from holdfast.reproduction.iam_claims import held_against
from holdfast.reproduction.layout import INSTANCE_LEGEND, by_instance, method_name, printed, scores, still_missing
from holdfast.reproduction.results import Results, over_seeds, row

REPEATED = ("simplex_fd", "simplex_hoc")
"""These, and ours, are run at two more seeds."""

SEEDS = (
    "The seeds are those of fine-tuning: every run begins with, and later takes in, the same models, pre-trained once"
    " with seed 0, so ± does not hold what another pre-training would change."
)


def cells() -> list[Cell]:
    planned = [iam_cell("replaced", method, SHORT_TASKS, stage=SHORT) for method in with_ours(PAPER_METHODS)]
    for method in with_ours(PAPER_METHODS):
        stage = LONG if method in with_ours(MAIN) else LAST
        planned.append(iam_cell("replaced", method, LONG_TASKS, stage=stage))
    for seed in (1, 2):
        repeated = with_ours(REPEATED)
        planned += [iam_cell("replaced", method, SHORT_TASKS, seed=seed, stage=MORE_SEEDS) for method in repeated]
    return planned


def rows(results: Results, selection: Selection) -> list[Row]:
    found = []
    for group in over_seeds(selection.of(cells())):
        paper = papers("table6").get(group[0].method, {}).get(str(group[0].tasks))
        found.append({**row(group, results, paper=None), "paper": paper and as_scores(paper)})
    methods = [*PAPER_METHODS, OURS]
    return sorted(found, key=lambda r: (r["tasks"], methods.index(r["method"])))


def as_scores(pair: list[Any]) -> dict[str, Any]:
    """AC and AA % as printed -> in [0, 1]; what is no number ("<0.01", a dash) stays as it is."""
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
        pretrained(results),
        SEEDS,
        *held_against(results, selection.of(cells())),
        OUR_SETTING,
        *still_missing(every),
    )
    header = ["T", "method", "AC", "AA %", "ACA %", "n", "paper", "by instance"]
    return [Table("CIFAR100R/10, two replacements", header, lines, right=(0, 2, 3, 4, 5), notes=notes)]


TABLE6 = Exhibit("Table 6: IAM-CL2R on CIFAR100R/10, two replacements", cells, rows, _tables)
