"""The goals of the study, whether they were reached on unseen classes, and the start of the page."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from papers.quarters.shares import Records, spread
from papers.quarters.study_data import KNOWN, UNSEEN

FAIR = (0.8, 1.25)
RIVAL, OURS = "plain-bridge", "ours-bridge"
NOTHING_LOST = 0.99
"""Share of re-embedding from which on an old index need not be re-embedded."""
WAYS = {OURS: "ours + bridge", RIVAL: "plain + bridge", "plain": "plain fine-tuning, no map"}


@dataclass(frozen=True)
class Goal:
    """A goal, what was found, and whether the mean over seeds and each single seed reach it."""

    what: str
    found: str
    mean: bool
    seeds: Sequence[bool]

    @property
    def verdict(self) -> str:
        if not self.mean:
            return "**missed**"
        reached = sum(self.seeds)
        return (
            "reached" if reached == len(self.seeds) else f"reached by the mean, at {reached} of {len(self.seeds)} seeds"
        )


def goals(records: Records) -> list[Goal]:
    """The goals for ours + bridge on unseen classes; empty without results."""
    if not records.seeds(OURS) or not records.seeds(RIVAL):
        return []
    kept = {lag: records.kept(OURS, UNSEEN, lag, "mAP") for lag in (1, 4)}
    gain = records.gains(OURS, UNSEEN, "recall@1")
    late, mixed = ahead(records, "lag 4"), ahead(records, "mixed")
    return [
        _at_least("at least 97 % of re-embedded mAP at lag 1", kept[1], 0.97, f"{spread(kept[1])} %"),
        _at_least("at least 93 % of re-embedded mAP at lag 4", kept[4], 0.93, f"{spread(kept[4])} %"),
        _at_least(
            "the newest model's own recall@1 within 1 point of unconstrained fine-tuning",
            gain,
            -0.01,
            f"{signed(gain)} points",
        ),
        _fair(records),
        _at_least("ahead of plain + bridge at lag 4 (share of mAP kept)", late, 0, f"{signed(late)} points"),
        _at_least("ahead of plain + bridge in the mixed gallery (mAP)", mixed, 0, f"{signed(mixed)} points"),
    ]


def _at_least(what: str, values: Sequence[float], least: float, found: str) -> Goal:
    return Goal(what, found, statistics.fmean(values) >= least, [value >= least for value in values])


def _fair(records: Records) -> Goal:
    ratios, single = version_means(records, OURS), records.exposures(OURS, UNSEEN)
    flat = [ratio for one in single for ratio in one]
    shown = " ".join(f"{ratio:.2f}" for ratio in ratios)
    found = f"{shown}, oldest version first; single seeds {min(flat):.3f} to {max(flat):.3f}"
    return Goal(
        "exposure ratios at 10 between 0.8 and 1.25", found, all_fair(ratios), [all_fair(one) for one in single]
    )


def all_fair(ratios: Sequence[float]) -> bool:
    """Whether every exposure ratio is between 0.8 and 1.25."""
    return all(FAIR[0] <= ratio <= FAIR[1] for ratio in ratios)


def ahead(records: Records, where: str, table: str = UNSEEN) -> list[float]:
    """How far ours + bridge is ahead of plain + bridge, for each seed.

    where: "lag 4" for the share of mAP that is kept, "mixed" for mAP in the gallery that grew.
    """
    own, rival = (
        dict(
            zip(
                records.seeds(name),
                records.kept(name, table, 4, "mAP") if where == "lag 4" else records.mixed(name, table, "mAP"),
                strict=True,
            )
        )
        for name in (OURS, RIVAL)
    )
    return [own[seed] - rival[seed] for seed in own if seed in rival]


def version_means(records: Records, strategy: str, table: str = UNSEEN) -> list[float]:
    """The exposure ratio of each version, mean over seeds, oldest first."""
    return [statistics.fmean(one) for one in zip(*records.exposures(strategy, table), strict=True)]


def signed(values: Sequence[float]) -> str:
    """Points with a sign, mean and standard deviation over seeds."""
    text = spread(values, digits=2)
    return text if text.startswith("-") else f"+{text}"


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
