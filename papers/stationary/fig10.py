"""Figure 10: d-Simplex-HOC across two replacements, 31 tasks, under other rates, buffers and numbers of images.

What the paper says of rates, buffers and images per class, held against the runs at hand: a note for each axis.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence

from papers.stationary.cells import Cell
from papers.stationary.exhibit import EVERYTHING, Exhibit, Figure, Row, Selection, Table
from papers.stationary.iam_cells import ABLATION, LAST, LONG, LONG_TASKS, REPLACED_AT, iam_cell, pretrained
from papers.stationary.layout import score, scores, still_missing
from papers.stationary.pictures import after_each_task, draw_ablation
from papers.stationary.results import SCORES, Results, row

METHOD = "simplex_hoc"
AXES = {
    "rate": ("train.lr", (0.1, 0.01, 0.001, 0.0001, 0.00001)),
    "buffer": ("scenario.buffer_per_class", (0, 5, 10, 20, 50, 100, 300)),
    "images": ("data.train.images_per_class", (500, 300, 200, 100, 50, 10, 5)),
}
"""Axis -> the setting and its values; those of the first two are not in the paper's text."""

CENTRE = {"rate": 0.001, "buffer": 20, "images": 300}
"""Where the axes cross: the run of Table 6, which is not made again."""

FIRST = {"rate": (0.01, 0.0001), "buffer": (0, 50), "images": (500, 100)}
"""Run before the others, so that each axis soon has three values."""

TITLES = {"rate": "learning rate", "buffer": "buffer, images per class", "images": "training images per class"}


def cell(axis: str, value: float) -> Cell:
    if value == CENTRE[axis]:
        return iam_cell("replaced", METHOD, LONG_TASKS, stage=LONG)
    stage = ABLATION if value in FIRST[axis] else LAST
    change, setting = f"{axis}-{value:g}", f"{AXES[axis][0]}={value}"
    return iam_cell("ablation", METHOD, LONG_TASKS, change=change, settings=(setting,), stage=stage)


def _points() -> list[tuple[str, float, Cell]]:
    return [(axis, value, cell(axis, value)) for axis, (_, values) in AXES.items() for value in values]


def _cells() -> list[Cell]:
    return list(dict.fromkeys(one for _, _, one in _points()))


def _rows(results: Results, selection: Selection) -> list[Row]:
    return [
        {**row([one], results, paper=None), "axis": axis, "value": value}
        for axis, value, one in _points()
        if selection.of([one])
    ]


def _tables(results: Results, selection: Selection) -> list[Table]:
    every = _rows(results, selection)
    made = []
    for axis in dict.fromkeys(r["axis"] for r in every):
        own = [r for r in every if r["axis"] == axis]
        lines = [[f"{r['value']:g}" + (" (paper's)" if r["value"] == CENTRE[axis] else ""), *scores(r)] for r in own]
        said = held_against(axis, own, CENTRE[axis], REPLACED_AT[LONG_TASKS], _unrehearsed(results))
        notes = ("The paper has curves without numbers.", *said, pretrained(results), *still_missing(own))
        if axis == "buffer":
            notes = ("0 is the rehearsal-free case.", *notes)
        title = f"d-Simplex-HOC, CIFAR100R/10, {LONG_TASKS} tasks, two replacements: {TITLES[axis]}"
        made.append(Table(title, [TITLES[axis], "AC", "AA %", "ACA %"], lines, right=(1, 2, 3), notes=notes))
    return made


def _unrehearsed(results: Results) -> list[float | None] | None:
    """AA up to each task with no buffer; None where that was not run."""
    record = results.record(cell("buffer", 0))
    return None if record is None else record["protocols"]["template"]["AA_tau"]


def _figures(results: Results) -> list[Figure]:
    """Drawn once one axis has two points."""
    rows = [r for r in _rows(results, EVERYTHING) if r["seeds"]]
    axes = {
        TITLES[axis]: sorted([r["value"], *(r[name] for name in SCORES)] for r in rows if r["axis"] == axis)
        for axis in ("rate", "images")
    }
    sizes = AXES["buffer"][1]
    labels = [f"{size} per class" for size in sizes]
    curves = after_each_task(
        "Buffer", results, [cell("buffer", size) for size in sizes], REPLACED_AT[LONG_TASKS], labels
    )
    if max(len(points) for points in [*axes.values(), curves["lines"]]) < 2:
        return []
    caption = (
        f"d-Simplex-HOC, CIFAR100R/10, {LONG_TASKS} tasks, two replacements, seed 0: AC, AA and ACA by rate and by"
        " images, AA up to each task by buffer."
    )
    return [Figure("fig10", caption, {"axes": axes, "curves": curves}, draw_ablation)]


FIG10 = Exhibit(
    "Figure 10: rates, buffers and images per class across two replacements", _cells, _rows, _tables, _figures
)


CLAIMS = {
    "rate": "rates above {centre:g} lower AC, AA and ACA; those below it raise AC at the cost of AA",
    "buffer": "AA rises with the buffer, and replacements improve it even without one",
    "images": "AC and ACA fall with fewer images per class",
}


def held_against(
    axis: str, rows: Sequence[Row], centre: float, replaced: Sequence[int], unrehearsed: Sequence[float | None] | None
) -> Iterator[str]:
    """The note of one axis, from its rows; none where fewer than two values were run, or none beside the centre.

    unrehearsed: AA up to each task with no buffer, None where that was not run; it is asked for by the buffer alone.
    """
    known = {float(row["value"]): row for row in rows if row["seeds"]}
    ordered = list(_ordered(axis, known, centre))
    if not ordered:
        return
    against = list(_above(known, ordered))
    if axis == "buffer" and unrehearsed is not None:
        against += _falls(unrehearsed, replaced)
    claim = CLAIMS[axis].format(centre=centre)
    if against:
        note = f"Not as the paper says (the runs at hand): {'; '.join(against)}. The paper: {claim}."
    else:
        note = f"As the paper says (the runs at hand): {claim}."
    if axis == "images":
        found = sorted(row["AA"] for row in known.values())
        note += (
            f" AA, which stays relatively high in the paper, is {score('AA', found[0])} to {score('AA', found[-1])}."
        )
    yield note


def _ordered(axis: str, known: Mapping[float, Row], centre: float) -> Iterator[tuple[str, float, float]]:
    """Score and two values of the axis: by the paper the score at the first is no higher than at the second."""
    if axis == "rate":
        for rate in sorted(known, reverse=True) if centre in known else ():
            if rate > centre:
                yield from ((name, rate, centre) for name in SCORES)
            elif rate < centre:
                yield from (("AC", centre, rate), ("AA", rate, centre))
        return
    names = ("AA",) if axis == "buffer" else ("AC", "ACA")
    for name in names:
        yield from ((name, fewer, more) for fewer, more in itertools.combinations(sorted(known), 2))


def _above(known: Mapping[float, Row], ordered: Sequence[tuple[str, float, float]]) -> Iterator[str]:
    """Where a score is higher than it should be, with all that it should not exceed."""
    for (name, low), group in itertools.groupby(ordered, key=lambda one: one[:2]):
        own = known[low][name]
        exceeded = [high for _, _, high in group if own > known[high][name]]
        if exceeded:
            others = " and ".join(f"{high:g} ({score(name, known[high][name])})" for high in exceeded)
            yield f"{name} at {low:g} ({score(name, own)}) is above that at {others}"


def _falls(curve: Sequence[float | None], replaced: Sequence[int]) -> Iterator[str]:
    for task in replaced:
        before, after = curve[task - 2 : task]
        if before is not None and after is not None and after < before:
            yield f"without a buffer AA falls at task {task}, {score('AA', before)} to {score('AA', after)}"
