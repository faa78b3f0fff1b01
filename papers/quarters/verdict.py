"""The first paragraph of the page, worded by the numbers."""

import statistics
from collections.abc import Sequence

from papers.quarters.goals import OURS, RIVAL, ahead, goals, signed, version_means
from papers.quarters.shares import Records, spread
from papers.quarters.study_data import KNOWN, UNSEEN

NOTHING_LOST = 0.99
"""Share of re-embedding from which on an old index need not be re-embedded."""


def verdict(records: Records, trained: str) -> str:
    """Whether training for compatibility beats plain + bridge, what it costs, and which goals were missed.

    trained: what was trained, in words.
    """
    found = goals(records)
    if not found:
        return "There are no results yet."
    seeds = len(records.seeds(OURS))
    missed = [goal.what for goal in found if not goal.mean]
    reached = "All goals below are reached by the mean over seeds."
    sentences = [
        f"**Does training for compatibility beat plain fine-tuning with a bridge? {answer(records, UNSEEN)}**",
        f"This is for {trained}, n = {seeds}, and photographs of classes that no version was trained on.",
        _old_index(records),
        f"In an index that grew over five versions the exposure ratios are {_ratios(records, OURS)} with ours +",
        f"bridge, {_ratios(records, RIVAL)} with plain + bridge and {_ratios(records, 'plain')} with plain fine-tuning",
        "alone (oldest version first; 1 is fair).",
        f"On photographs of the trained classes the answer is: {answer(records, KNOWN)}",
        f"There the newest model of ours differs from plain fine-tuning by {signed(records.gains(OURS, KNOWN, 'mAP'))}",
        f"points of mAP on its own gallery (unseen classes: {signed(records.gains(OURS, UNSEEN, 'mAP'))}).",
        reached if not missed else f"Goals missed: {'; '.join(missed)}.",
    ]
    return " ".join(sentences)


def answer(records: Records, table: str) -> str:
    """In words, whether ours + bridge is ahead of plain + bridge: at every seed, at none, or at some."""
    where = {
        "on the index of version 1 it": ahead(records, "lag 4", table),
        "in an index that grew over the versions it": ahead(records, "mixed", table),
    }
    said = [f"{place} is {_ahead(values)} ({signed(values)} points)" for place, values in where.items()]
    yes = [min(values) > 0 for values in where.values()]
    start = "Yes" if all(yes) else "Only in part" if any(yes) else "No"
    return f"{start}: {', and '.join(said)}."


def _ahead(values: Sequence[float]) -> str:
    at = sum(value > 0 for value in values)
    if at == len(values):
        return "ahead at every seed"
    return "behind at every seed" if at == 0 else f"ahead at {at} of {len(values)} seeds"


def _old_index(records: Records) -> str:
    kept = {name: records.kept(name, UNSEEN, 4, "mAP") for name in (OURS, RIVAL, "plain")}
    said = (
        f"After four updates version 1's index keeps {spread(kept[OURS])} % of the re-embedded mAP with ours + bridge,"
        f" {spread(kept[RIVAL])} % with plain + bridge, and {spread(kept['plain'])} % with plain fine-tuning and no map"
    )
    if all(statistics.fmean(values) >= NOTHING_LOST for values in kept.values()):
        return f"{said}: here nothing is lost by keeping an old index, whichever of the three is used."
    return f"{said}."


def _ratios(records: Records, strategy: str) -> str:
    return " ".join(f"{ratio:.2f}" for ratio in version_means(records, strategy))
