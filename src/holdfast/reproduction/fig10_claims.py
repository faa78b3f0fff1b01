"""What the paper says of rates, buffers and images per class, held against the runs at hand: a note for each axis."""

import itertools
from collections.abc import Iterator, Mapping, Sequence

from holdfast.reproduction.exhibit import Row
from holdfast.reproduction.layout import score
from holdfast.reproduction.results import SCORES

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
