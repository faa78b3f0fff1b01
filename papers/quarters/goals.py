"""The goals of the study, and whether they were reached on unseen classes."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from papers.quarters.shares import Records, spread
from papers.quarters.study_data import UNSEEN

FAIR = (0.8, 1.25)
RIVAL, OURS = "plain-bridge", "ours-bridge"


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
