"""Table 2: eight methods, and ours, on CIFAR100/10 with 2, 7, 16 and 31 tasks."""

from holdfast.wording import counted
from papers.stationary.cells import Cell
from papers.stationary.cifar_cells import (
    FIRST_SEED,
    ICARL,
    OUR_OWN,
    OURS,
    PAPER_METHODS,
    REST,
    SEEDS,
    TASKS,
    TUNED,
    UNCHANGED,
    known,
    paper_cell,
    tuned_cell,
)
from papers.stationary.exhibit import Exhibit, Figure, Row, Selection, Table, papers
from papers.stationary.layout import (
    INSTANCE_LEGEND,
    LEGEND,
    by_commit,
    by_instance,
    method_name,
    paper_scores,
    scores,
    still_missing,
    through_maps,
)
from papers.stationary.pictures import draw_over_tasks
from papers.stationary.results import SCORES, Results, over_seeds, row

REPEATED = ("er", "cvs", "simplex_fd", "simplex_hoc")
"""These, and ours, are also run at more seeds (7 and 16 tasks) and in iCaRL's class order (2, 7 and 16)."""

RIVAL = "fan"
"""The strongest rival of the ``tuned`` set, whose tuned runs are repeated in the same way."""

AT_THE_ENDS = {2: ("advbct",), 31: ("simplex_hoc", RIVAL)}
"""What decides our goals at 2 and 31 tasks is run at more seeds there, too: ours, and who had the highest AA at seed 0,
d-Simplex-HOC being judged there itself."""

MORE_SEEDS = (1, 2)
TITLES = {"paper": "the paper's settings", "tuned": "settings chosen on the validation set"}
ORDER_TITLES = {"natural": "natural class order", "icarl": "iCaRL's class order (shuffled by seed 1993)"}


def cells() -> list[Cell]:
    """All runs, a set and an order at a time, methods and numbers of tasks in the paper's order."""
    ours = known((OURS,))
    planned = [paper_cell(method, tasks, stage=FIRST_SEED) for tasks in TASKS for method in PAPER_METHODS]
    for tasks in TASKS:
        planned += [tuned_cell(method, tasks, stage=TUNED) for method in PAPER_METHODS]
        planned += [tuned_cell(method, tasks, stage=OUR_OWN) for method in ours]
    more: list[tuple[int, str, int]] = [(tasks, "natural", seed) for tasks in (7, 16) for seed in MORE_SEEDS]
    more += [(tasks, "icarl", 0) for tasks in (2, 7, 16)]
    for tasks, order, seed in more:
        stage = ICARL if order == "icarl" else SEEDS
        planned += [paper_cell(method, tasks, order=order, seed=seed, stage=stage) for method in REPEATED]
        planned += [tuned_cell(method, tasks, order=order, seed=seed, stage=REST) for method in (RIVAL, *REPEATED)]
        planned += [tuned_cell(method, tasks, order=order, seed=seed, stage=stage) for method in ours]
    for tasks, methods in AT_THE_ENDS.items():
        for seed in MORE_SEEDS:
            # The paper's settings and the tuned ones of an unchanged method are one run, and a row in both sets.
            same = [method for method in methods if method in UNCHANGED]
            planned += [paper_cell(method, tasks, seed=seed, stage=REST) for method in same]
            planned += [tuned_cell(method, tasks, seed=seed, stage=REST) for method in (*methods, *ours)]
    return planned


def rows(results: Results, selection: Selection) -> list[Row]:
    printed = papers("table2")
    found = [
        row(group, results, paper=printed.get(group[0].method, {}).get(str(group[0].tasks)))
        for group in over_seeds(selection.of(cells()))
    ]
    methods = [*PAPER_METHODS, OURS]
    return sorted(
        found,
        key=lambda r: (list(TITLES).index(r["set"]), r["order"] != "natural", r["tasks"], methods.index(r["method"])),
    )


def tables(results: Results, selection: Selection) -> list[Table]:
    made = []
    every = rows(results, selection)
    for set_name, order in dict.fromkeys((r["set"], r["order"]) for r in every):
        chosen = [r for r in every if (r["set"], r["order"]) == (set_name, order)]
        notes = (LEGEND, INSTANCE_LEGEND, *through_maps(chosen), *by_commit(chosen), *still_missing(chosen))
        if (set_name, order) == ("paper", "natural"):
            notes += device_time(results, selection)
        lines = [
            [
                str(r["tasks"]),
                method_name(r["method"]),
                *scores(r),
                str(len(r["seeds"])),
                paper_scores(r),
                by_instance(r),
            ]
            for r in chosen
        ]
        made.append(
            Table(
                f"CIFAR100/10: {TITLES[set_name]}, {ORDER_TITLES[order]}",
                ["T", "method", "AC", "AA %", "ACA %", "n", "paper", "by instance"],
                lines,
                right=(0, 2, 3, 4, 5),
                notes=notes,
            )
        )
    return made


def device_time(results: Results, selection: Selection) -> tuple[str, ...]:
    """The footer: what is chosen of the table cost at seed 0, with the paper's settings and in the natural order."""
    first = selection.of([cell for cell in cells() if cell.stage == FIRST_SEED])
    if not first:
        return ()
    done = [cell for cell in first if results.record(cell) is not None]
    where = {str((results.record(cell) or {})["environment"]["gpu"] or "a CPU") for cell in done}
    on = f" on {', '.join(sorted(where))}" if where else ""
    share = f"{len(done)} of {counted(len(first), 'run')}"
    return (f"GPU minutes of this table at seed 0: {results.minutes(first):.1f}{on}, {share}.",)


def figures(results: Results) -> list[Figure]:
    """AC, AA and ACA against the number of tasks, means over seeds; a picture for each set with at least one run."""
    made = []
    for set_name in TITLES:
        every = rows(results, Selection(orders=["natural"], sets=[set_name]))
        run = {r["method"] for r in every if r["seeds"]}
        lines: dict[str, dict[str, list[float | None]]] = {}
        for r in (r for r in every if r["method"] in run):  # what was not run has no scores, which leaves a gap
            line = lines.setdefault(method_name(r["method"]), {"tasks": [], **{name: [] for name in SCORES}})
            for name in ("tasks", *SCORES):
                line[name].append(r[name])
        if len(lines) > 1:  # one line shows nothing that the table does not
            caption = (
                f"AC, AA and ACA against the number of tasks: {TITLES[set_name]}, natural class order, the means of the"
                " table above."
            )
            absent = [name for name in dict.fromkeys(method_name(r["method"]) for r in every) if name not in lines]
            if absent:
                caption += f" Not run yet, and so not drawn: {', '.join(absent)}."
            made.append(Figure(f"over-tasks-{set_name}", caption, lines, draw_over_tasks))
    return made


TABLE2 = Exhibit("Table 2: CIFAR100/10, 2 to 31 tasks", cells, rows, tables, figures)
