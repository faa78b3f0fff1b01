"""The goals of the study, whether they were reached on unseen classes, and the start of the page."""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from papers.quarters.shares import Records, spread
from papers.quarters.strategies import CEILING, STRATEGIES
from papers.quarters.study_data import TABLES, UNSEEN

FAIR = (0.8, 1.25)
TURNED, RIVAL, DEFAULT = "turned-bridge", "plain-bridge", "distillation-bridge"
RIVALS = (CEILING, "plain-random", "distillation")
"""Trainings that d-Simplex-HOC, turned, is compared with on an index of its own."""
TITLES = {strategy.name: strategy.title for strategy in STRATEGIES}
LEAD = {
    CEILING: "re-embed everything",
    "never": "keep the old model",
    "plain": "plain fine-tuning, old index",
    RIVAL: "plain fine-tuning + bridge",
    "plain-two-stage": "plain fine-tuning, two-stage@50",
    DEFAULT: "distillation + bridge",
    "distillation-two-stage": "distillation, two-stage@50",
    TURNED: "d-Simplex-HOC, turned, + bridge",
    "turned-two-stage": "d-Simplex-HOC, turned, two-stage@50",
    "ours-bridge": "Cosine-HOC + bridge",
}
"""Strategies of the first table of each part, with their names in the README."""


@dataclass(frozen=True)
class Goal:
    """A goal, what was found, and whether the mean over seeds and each single seed reach it. No seeds: not run yet."""

    what: str
    found: str = "not run yet"
    mean: bool = False
    seeds: Sequence[bool] = ()

    @property
    def verdict(self) -> str:
        if not self.seeds:
            return "open"
        if not self.mean:
            return "**missed**"
        reached = sum(self.seeds)
        return (
            "reached" if reached == len(self.seeds) else f"reached by the mean, at {reached} of {len(self.seeds)} seeds"
        )


def goals(records: Records) -> list[Goal]:
    """The goals for d-Simplex-HOC, turned, on unseen classes; empty without any results of plain fine-tuning."""
    if not records.seeds(RIVAL):
        return []
    rival = max(
        (name for name in RIVALS if records.seeds(name)),
        key=lambda name: statistics.fmean(records.own(name, UNSEEN, "recall@1")),
    )
    own = paired(records, TURNED, rival, lambda name: records.own(name, UNSEEN, "recall@1"))
    late = paired(records, TURNED, RIVAL, lambda name: records.kept(name, UNSEEN, 4, "mAP"))
    grown = paired(records, TURNED, DEFAULT, lambda name: records.mixed(name, UNSEEN, "mAP"))
    return [
        _at_least(
            "own recall@1 at most 1.5 points behind the best of plain, plain with rows from random and distillation",
            own,
            -0.015,
            f" against {TITLES[rival].split(',')[0]}",
        ),
        _at_least(
            "version 1's index keeps, at lag 4, at least 1 point of mAP more than with plain + bridge", late, 0.01
        ),
        _at_least("mAP in the index that grew is at least that of distillation + bridge", grown, 0),
        _fair(records),
    ]


def paired(records: Records, name: str, rival: str, values: Callable[[str], list[float]]) -> list[float]:
    """A strategy's values less those of a rival, for each seed that both have."""
    own, other = (dict(zip(records.seeds(one), values(one), strict=True)) for one in (name, rival))
    return [own[seed] - other[seed] for seed in own if seed in other]


def _at_least(what: str, differences: Sequence[float], least: float, against: str = "") -> Goal:
    if not differences:
        return Goal(what)
    reached = [value >= least for value in differences]
    return Goal(what, f"{signed(differences)} points{against}", statistics.fmean(differences) >= least, reached)


def _fair(records: Records) -> Goal:
    what = "exposure ratios at 10 between 0.8 and 1.25"
    if not records.seeds(TURNED):
        return Goal(what)
    ratios, single = version_means(records, TURNED), records.exposures(TURNED, UNSEEN)
    flat = [ratio for one in single for ratio in one]
    shown = " ".join(f"{ratio:.2f}" for ratio in ratios)
    found = f"{shown}, oldest version first; single seeds {min(flat):.3f} to {max(flat):.3f}"
    return Goal(what, found, all_fair(ratios), [all_fair(one) for one in single])


def all_fair(ratios: Sequence[float]) -> bool:
    """Whether every exposure ratio is between 0.8 and 1.25."""
    return all(FAIR[0] <= ratio <= FAIR[1] for ratio in ratios)


def version_means(records: Records, strategy: str, table: str = UNSEEN) -> list[float]:
    """The exposure ratio of each version, mean over seeds, oldest first."""
    return [statistics.fmean(one) for one in zip(*records.exposures(strategy, table), strict=True)]


def signed(values: Sequence[float]) -> str:
    """Points with a sign, mean and standard deviation over seeds."""
    text = spread(values, digits=2)
    return text if text.startswith("-") else f"+{text}"


def lead_rows(records: Records, replaced: Records) -> list[list[str]]:
    """The README's table: what is kept after one and four updates, as the index grows, at a replacement; own recall@1.

    replaced: the records of the replacement after this study.
    """
    rows = []
    for name, title in LEAD.items():
        if not records.seeds(name):
            continue
        cells = [records.kept(name, UNSEEN, lag, "mAP") for lag in (1, 4)]
        cells += [records.mixed_kept(name, UNSEEN, "mAP"), replaced.kept(name, UNSEEN, 1, "mAP")]
        own = records.own(name, UNSEEN, "recall@1")
        means = [f"{100 * statistics.fmean(values):.1f}" if values else "–" for values in (*cells, own)]
        if name == CEILING:
            means[:4] = ["100.0"] * 4
        rows.append([title, *means])
    return rows


def verdict(records: Records, trained: str) -> str:
    """Which ways keep the most of an old index, which newest model is the best, and how many goals are missed.

    trained: what was trained, in words.
    """
    found = goals(records)
    if not found:
        return "There are no results yet."
    updating = [one for one in STRATEGIES if one.search not in ("never", "reembedded") and records.seeds(one.name)]
    kept = {one.title: statistics.fmean(records.kept(one.name, UNSEEN, 4, "mAP")) for one in updating}
    grown = {one.title: statistics.fmean(records.mixed(one.name, UNSEEN, "mAP")) for one in updating}
    models = [one for one in updating if one.search in ("old index", "mapped gallery")]
    own = {one.title: statistics.fmean(records.own(one.name, UNSEEN, "recall@1")) for one in models}
    most = sorted(kept, key=lambda title: -kept[title])[:3]
    best_grown, best_own = (max(values, key=lambda title: values[title]) for values in (grown, own))
    missed, open_ = (sum(goal.verdict == word for goal in found) for word in ("**missed**", "open"))
    of_goals = f"misses {missed} of its {len(found)} goals."
    if open_:
        of_goals = "has not been run here yet, so its goals are open."
    return (
        f"This is for {trained} on photographs of classes that no version was trained on, n ="
        f" {len(records.seeds(RIVAL))}. After four updates version 1's index keeps the most with"
        f" {', '.join(f'{title} ({100 * kept[title]:.1f} %)' for title in most[:2])} and {most[2]}"
        f" ({100 * kept[most[2]]:.1f} %). In the index that grew, mAP is highest with {best_grown}. The newest model's"
        f" own recall@1 is highest with {best_own.replace(', old index', '')} ({100 * own[best_own]:.1f} %)."
        f" d-Simplex-HOC, turned, the paper's method with vertices placed at class means, {of_goals}"
    )


def difference_rows(records: Records) -> list[list[str]]:
    """Strategies less plain, in points, by classes."""
    compared: list[tuple[str, str, str, Callable[[str, str], list[float]]]] = []
    for name in (TURNED, DEFAULT):
        title = f"{TITLES[name]} less plain + bridge: share of mAP kept by version 1's index"
        compared.append((title, name, RIVAL, lambda table, one: records.kept(one, table, 4, "mAP")))
    for name in ("turned", "distillation", "ours"):
        title = f"newest model of {TITLES[name]} less that of plain: mAP on its own index"
        compared.append((title, name, CEILING, lambda table, one: records.own(one, table, "mAP")))
    rows = []
    for title, name, rival, values in compared:
        if not records.seeds(name):
            continue
        cells = []
        for table in TABLES:
            differences = paired(records, name, rival, partial(values, table))
            cells += [signed(differences), f"{sum(value > 0 for value in differences)} of {len(differences)}"]
        rows.append([title, *cells])
    return rows
