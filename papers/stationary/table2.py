"""Table 2: eight methods, and ours, on CIFAR100/10 with 2, 7, 16 and 31 tasks."""

from holdfast.wording import counted
from papers.stationary.cifar_runs import (
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
    paper_run,
    tuned_run,
)
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
from papers.stationary.plots import draw_over_tasks
from papers.stationary.result_page import Figure, ResultPage, Row, Selection, Table, printed_in_paper
from papers.stationary.results import SCORES, Results, grouped_by_seed, row
from papers.stationary.study_runs import StudyRun

REPEATED = ("er", "cvs", "simplex_fd", "simplex_hoc")
"""These, and ours, are also run at more seeds (7 and 16 tasks) and in iCaRL's class order (2, 7 and 16)."""

RIVAL = "fan"
"""The strongest other method of the ``tuned`` set; its tuned runs are repeated in the same way."""

AT_THE_ENDS = {2: ("advbct",), 31: ("simplex_hoc", RIVAL)}
"""Methods that are run at more seeds at 2 and 31 tasks, beside ours, because they decide a goal there: the highest AA
at seed 0, and d-Simplex-HOC, which has goals of its own at 31."""

MORE_SEEDS = (1, 2)
TITLES = {"paper": "the paper's settings", "tuned": "settings chosen on the validation set"}
ORDER_TITLES = {"natural": "natural class order", "icarl": "iCaRL's class order (shuffled by seed 1993)"}


def runs() -> list[StudyRun]:
    """All runs, a set and an order at a time, methods and numbers of tasks in the paper's order."""
    planned = [paper_run(method, tasks, stage=FIRST_SEED) for tasks in TASKS for method in PAPER_METHODS]
    for tasks in TASKS:
        planned += [tuned_run(method, tasks, stage=TUNED) for method in PAPER_METHODS]
        planned.append(tuned_run(OURS, tasks, stage=OUR_OWN))
    more: list[tuple[int, str, int]] = [(tasks, "natural", seed) for tasks in (7, 16) for seed in MORE_SEEDS]
    more += [(tasks, "icarl", 0) for tasks in (2, 7, 16)]
    for tasks, order, seed in more:
        stage = ICARL if order == "icarl" else SEEDS
        planned += [paper_run(method, tasks, order=order, seed=seed, stage=stage) for method in REPEATED]
        planned += [tuned_run(method, tasks, order=order, seed=seed, stage=REST) for method in (RIVAL, *REPEATED)]
        planned.append(tuned_run(OURS, tasks, order=order, seed=seed, stage=stage))
    for tasks, methods in AT_THE_ENDS.items():
        for seed in MORE_SEEDS:
            # For an unchanged method the paper's and the tuned settings are one run with a row in both sets.
            same = [method for method in methods if method in UNCHANGED]
            planned += [paper_run(method, tasks, seed=seed, stage=REST) for method in same]
            planned += [tuned_run(method, tasks, seed=seed, stage=REST) for method in (*methods, OURS)]
    return planned


def rows(results: Results, selection: Selection) -> list[Row]:
    printed = printed_in_paper("table2")
    found = [
        row(group, results, paper=printed.get(group[0].method, {}).get(str(group[0].tasks)))
        for group in grouped_by_seed(selection.of(runs()))
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
        notes = (LEGEND, INSTANCE_LEGEND, *fan_note(chosen), *commit_note(chosen), *missing_note(chosen))
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
    """A note: device minutes of the selected runs at seed 0, with the paper's settings in the natural order."""
    first = selection.of([run for run in runs() if run.stage == FIRST_SEED])
    if not first:
        return ()
    done = [run for run in first if results.record(run) is not None]
    where = {str((results.record(run) or {})["environment"]["gpu"] or "a CPU") for run in done}
    on = f" on {', '.join(sorted(where))}" if where else ""
    share = f"{len(done)} of {counted(len(first), 'run')}"
    return (f"GPU minutes of this table at seed 0: {results.minutes(first):.1f}{on}, {share}.",)


def figures(results: Results) -> list[Figure]:
    """AC, AA and ACA against the number of tasks, means over seeds; one picture for each set with results."""
    made = []
    for set_name in TITLES:
        every = rows(results, Selection(orders=["natural"], sets=[set_name]))
        run = {r["method"] for r in every if r["seeds"]}
        lines: dict[str, dict[str, list[float | None]]] = {}
        for r in (r for r in every if r["method"] in run):  # a missing run has no scores and leaves a gap
            line = lines.setdefault(method_name(r["method"]), {"tasks": [], **{name: [] for name in SCORES}})
            for name in ("tasks", *SCORES):
                line[name].append(r[name])
        if len(lines) > 1:  # a single line shows nothing beyond the table
            caption = (
                f"AC, AA and ACA against the number of tasks: {TITLES[set_name]}, natural class order, the means of the"
                " table above."
            )
            absent = [name for name in dict.fromkeys(method_name(r["method"]) for r in every) if name not in lines]
            if absent:
                caption += f" Not drawn because not run: {', '.join(absent)}."
            made.append(Figure(f"over-tasks-{set_name}", caption, lines, draw_over_tasks))
    return made


TABLE2 = ResultPage("Table 2: CIFAR100/10, 2 to 31 tasks", runs, rows, tables, figures)
