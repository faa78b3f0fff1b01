"""Figure 10: d-Simplex-HOC with two replacements, 31 tasks, and other learning rates, buffers and numbers of images.

``compared_with_paper`` writes a note for each axis: whether the runs agree with what the paper says.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence

from papers.stationary.formatting import commit_note, missing_note, score, scores
from papers.stationary.iam_runs import ABLATION, FUSED, LAST, LONG, LONG_TASKS, REPLACED_AT, deviation_notes, iam_run
from papers.stationary.plots import aa_panel, draw_ablation
from papers.stationary.result_page import EVERYTHING, Figure, ResultPage, Row, Selection, Table
from papers.stationary.results import SCORES, Results, row
from papers.stationary.study_runs import StudyRun

METHOD = "simplex_hoc"
AXES = {
    "rate": ("train.lr", (0.1, 0.01, 0.001, 0.0001, 0.00001)),
    "buffer": ("scenario.buffer_per_class", (0, 5, 10, 20, 50, 100, 300)),
    "images": ("data.train.images_per_class", (500, 300, 200, 100, 50, 10, 5)),
}
"""Axis -> (setting, values). The paper's text does not state the values of the first two."""

CENTRE = {"rate": 0.001, "buffer": 20, "images": 300}
"""The values of the run of Table 6, which is on all axes and is not repeated."""

BY_KERNELS = (("buffer", 300),)
"""The run with most steps, 280 thousand, by the fused kernels. All others used torch's."""

FIRST = {"rate": (0.01, 0.0001), "buffer": (0, 50), "images": (500, 100)}
"""Values that are run first, so that each axis soon has three."""

TITLES = {"rate": "learning rate", "buffer": "buffer, images per class", "images": "training images per class"}


def ablation_run(axis: str, value: float) -> StudyRun:
    if value == CENTRE[axis]:
        return iam_run("replaced", METHOD, LONG_TASKS, stage=LONG)
    stage = ABLATION if value in FIRST[axis] else LAST
    settings = (f"{AXES[axis][0]}={value}", *((FUSED,) if (axis, value) in BY_KERNELS else ()))
    return iam_run("ablation", METHOD, LONG_TASKS, change=f"{axis}-{value:g}", settings=settings, stage=stage)


def _points() -> list[tuple[str, float, StudyRun]]:
    return [(axis, value, ablation_run(axis, value)) for axis, (_, values) in AXES.items() for value in values]


def _runs() -> list[StudyRun]:
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
        lines = [[_shown(axis, r["value"]), *scores(r)] for r in own]
        said = compared_with_paper(axis, own, CENTRE[axis], REPLACED_AT[LONG_TASKS], _aa_by_buffer(results))
        deviations = deviation_notes(results, selection.of([run for name, _, run in _points() if name == axis]))
        notes = ("The paper has curves without numbers.", *said, *deviations, *commit_note(own), *missing_note(own))
        if axis == "buffer":
            notes = ("0 is the rehearsal-free case.", *_kernel_note(own), *notes)
        title = f"d-Simplex-HOC, CIFAR100R/10, {LONG_TASKS} tasks, two replacements: {TITLES[axis]}"
        made.append(Table(title, [TITLES[axis], "AC", "AA %", "ACA %"], lines, right=(1, 2, 3), notes=notes))
    return made


def _kernel_note(rows: Sequence[Row]) -> tuple[str, ...]:
    """A note that names the finished runs that used the fused kernels; none if there are none."""
    used = [f"{r['value']:g}" for r in rows if r["seeds"] and (r["axis"], r["value"]) in BY_KERNELS]
    return (f"Run by the fused kernels, which round differently from torch's: {', '.join(used)}.",) if used else ()


def _shown(axis: str, value: float) -> str:
    return f"{value:g}" + (" (paper's)" if value == CENTRE[axis] else "")


def _aa_by_buffer(results: Results) -> dict[float, list[float | None]]:
    """AA up to each task, by size of the buffer, of the finished runs."""
    records = {size: results.record(ablation_run("buffer", size)) for size in AXES["buffer"][1]}
    return {size: record["protocols"]["template"]["AA_tau"] for size, record in records.items() if record is not None}


def _figures(results: Results) -> list[Figure]:
    """One figure, as soon as one axis has two points. Its panels are in the paper's order."""
    rows = sorted((r for r in _rows(results, EVERYTHING) if r["seeds"]), key=lambda r: r["value"])
    panels = {
        axis: {
            "title": TITLES[axis],
            "points": [[_shown(axis, r["value"]), *(r[name] for name in SCORES)] for r in rows if r["axis"] == axis],
        }
        for axis in AXES
    }
    sizes = AXES["buffer"][1]
    panels["buffer"] = aa_panel(
        TITLES["buffer"],
        results,
        [ablation_run("buffer", size) for size in sizes],
        REPLACED_AT[LONG_TASKS],
        [_shown("buffer", size) for size in sizes],
    )
    if all(sum(r["axis"] == axis for r in rows) < 2 for axis in AXES):
        return []
    caption = (
        f"d-Simplex-HOC, CIFAR100R/10, {LONG_TASKS} tasks, two replacements, seed 0: (a) AC, AA and ACA by rate, (b) AA"
        " up to each task by buffer, (c) AC, AA and ACA by images. (paper's): the value of the run of Table 6; dotted:"
        " a model trained elsewhere comes in."
    )
    return [Figure("fig10", caption, list(panels.values()), draw_ablation)]


FIG10 = ResultPage(
    "Figure 10: rates, buffers and images per class across two replacements", _runs, _rows, _tables, _figures
)


CLAIMS = {
    "rate": "rates above {centre:g} lower AC, AA and ACA; those below it raise AC at the cost of AA",
    "buffer": "AA rises with the buffer, and replacements improve it even without one",
    "images": "AC and ACA fall with fewer images per class",
}


def compared_with_paper(
    axis: str,
    rows: Sequence[Row],
    centre: float,
    replaced: Sequence[int],
    by_buffer: Mapping[float, Sequence[float | None]],
) -> Iterator[str]:
    """The note of one axis; none if its rows cannot be compared.

    axis: name of the axis.
    rows: its rows.
    centre: value of the paper's settings.
    replaced: tasks that begin with a replacement.
    by_buffer: AA up to each task, by size of the buffer; used for the buffer axis.
    """
    known = {float(row["value"]): row for row in rows if row["seeds"]}
    ordered = list(_ordered(axis, known, centre))
    if not ordered:
        return
    against = list(_above(known, ordered))
    if axis == "buffer":
        against += _falls(by_buffer, replaced)
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
    """(score, value, other value): according to the paper the score at the first value is not higher.

    A rate is compared with the paper's, a buffer or a number of images with the next larger one.
    """
    if axis == "rate":
        for rate in sorted(known, reverse=True) if centre in known else ():
            if rate > centre:
                yield from ((name, rate, centre) for name in SCORES)
            elif rate < centre:
                yield from (("AC", centre, rate), ("AA", rate, centre))
        return
    names = ("AA",) if axis == "buffer" else ("AC", "ACA")
    for name in names:
        yield from ((name, fewer, more) for fewer, more in itertools.pairwise(sorted(known)))


def _above(known: Mapping[float, Row], ordered: Sequence[tuple[str, float, float]]) -> Iterator[str]:
    """A statement for each score that is higher than the paper says."""
    for name, low, high in ordered:
        own, other = known[low][name], known[high][name]
        if own > other:
            yield f"{name} at {low:g} ({score(name, own)}) is above that at {high:g} ({score(name, other)})"


def _falls(by_buffer: Mapping[float, Sequence[float | None]], replaced: Sequence[int]) -> Iterator[str]:
    """A statement for each replacement at which AA falls, with the buffers it falls with."""
    for task in replaced:
        falls = {}
        for size, curve in by_buffer.items():
            before, after = curve[task - 2 : task]
            if before is not None and after is not None:
                falls[size] = after < before
        falling = [f"{size:g}" for size, fell in falls.items() if fell]
        if falling:
            which = "every buffer" if len(falling) == len(falls) else f"a buffer of {', '.join(falling)}"
            yield f"AA falls at task {task} with {which}"
