"""The first paragraph and table of the page, worded by the numbers."""

import statistics
from collections.abc import Sequence

from papers.quarters.goals import OURS, RIVAL, ahead, goals, signed, version_means
from papers.quarters.shares import Records, spread
from papers.quarters.study_data import KNOWN, UNSEEN

NOTHING_LOST = 0.99
"""Share of re-embedding from which on an old index need not be re-embedded."""
WAYS = {OURS: "ours + bridge", RIVAL: "plain + bridge", "plain": "plain fine-tuning, no map"}


def verdict(records: Records, trained: str) -> str:
    """Whether training for compatibility beats plain + bridge, and what each of them keeps.

    trained: what was trained, in words.
    """
    found = goals(records)
    if not found:
        return "There are no results yet."
    missed = sum(not goal.mean for goal in found)
    goals_line = "All goals are reached by the mean over seeds."
    if missed:
        goals_line = f"{missed} of {len(found)} goals are missed."
    sentences = [
        "**Does training for compatibility beat plain fine-tuning with a bridge?",
        f"On classes that no version was trained on: {yes_or_no(records, UNSEEN)}.",
        f"On trained classes: {yes_or_no(records, KNOWN)}.**",
        f"This is for {trained} on photographs, n = {len(records.seeds(OURS))}.",
        *_old_index(records),
        goals_line,
    ]
    return "\n\n".join([" ".join(sentences), _ways(records), _differences(records)])


def yes_or_no(records: Records, table: str) -> str:
    """Whether ours + bridge is ahead of plain + bridge at every seed, on the old index and in the one that grew."""
    yes = [min(values) > 0 for values in (ahead(records, "lag 4", table), ahead(records, "mixed", table))]
    return "yes" if all(yes) else "only in part" if any(yes) else "no"


def _ways(records: Records) -> str:
    """Three ways after four updates, on unseen classes."""
    lines = [
        "| after four updates, unseen classes | version 1's index keeps, % of re-embedded mAP |"
        " exposure ratios in an index that grew over five versions, oldest version first (1 is fair) |",
        "| --- | --: | --- |",
    ]
    for strategy, name in WAYS.items():
        ratios = " ".join(f"{ratio:.2f}" for ratio in version_means(records, strategy))
        lines.append(f"| {name} | {spread(records.kept(strategy, UNSEEN, 4, 'mAP'))} | {ratios} |")
    return "\n".join(lines)


def _differences(records: Records) -> str:
    """Ours less its rival, in points, by classes."""
    compared = {
        "ours + bridge less plain + bridge: share of mAP kept by version 1's index": lambda table: ahead(
            records, "lag 4", table
        ),
        "ours + bridge less plain + bridge: mAP in the index that grew": lambda table: ahead(records, "mixed", table),
        "newest model of ours less that of plain fine-tuning: mAP on its own index": lambda table: records.gains(
            OURS, table, "mAP"
        ),
    }
    lines = [
        "| difference in points | unseen classes | seeds ahead | trained classes | seeds ahead |",
        "| --- | --: | --: | --: | --: |",
    ]
    for name, values in compared.items():
        cells = [f"{signed(values(table))} | {_ahead(values(table))}" for table in (UNSEEN, KNOWN)]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _ahead(values: Sequence[float]) -> str:
    return f"{sum(value > 0 for value in values)} of {len(values)}"


def _old_index(records: Records) -> list[str]:
    """A sentence if an old index loses nothing in any of the three ways."""
    kept = [records.kept(strategy, UNSEEN, 4, "mAP") for strategy in WAYS]
    if all(statistics.fmean(values) >= NOTHING_LOST for values in kept):
        return ["Here nothing is lost by keeping an old index, whichever of the three ways is used."]
    return []
