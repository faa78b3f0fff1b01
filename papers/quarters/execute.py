"""Execute the missing runs of the study and write one JSON file for each strategy and seed."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from holdfast.environment import describe
from holdfast.storage import read_json, write_json
from papers.quarters.measure import rounded
from papers.quarters.settings_search import chosen_settings
from papers.quarters.strategies import STRATEGIES, Strategy, numbers, tables
from papers.quarters.study_data import TABLES, StudyData
from papers.quarters.trainings import Settings, Trained, train

SEEDS = (0, 1, 2)
FOLDER = "quarters"
TIMED_ITEMS = 20_000


@dataclass(frozen=True)
class StudyRun:
    """One strategy of one study at one seed."""

    study: str
    strategy: Strategy
    seed: int

    @property
    def path(self) -> Path:
        """The result file, relative to the folder of results."""
        return Path(FOLDER) / self.study / f"{self.strategy.name}-s{self.seed}.json"


def study_runs(studies: Sequence[str], seeds: Sequence[int] = SEEDS) -> list[StudyRun]:
    """All runs in running order: seed by seed, so that an interrupted study has whole seeds."""
    return [StudyRun(study, strategy, seed) for study in studies for seed in seeds for strategy in STRATEGIES]


class Results:
    """A folder such as ``results/``. A record counts only if it has the settings that were chosen."""

    def __init__(self, root: Path) -> None:
        self.root = Path(root)

    def settings(self, strategy: Strategy) -> Settings:
        return chosen_settings(self.root / FOLDER, strategy.training)

    def record(self, run: StudyRun) -> dict[str, Any] | None:
        """The record of a run; None if it has not been run with these settings."""
        path = self.root / run.path
        if not path.is_file():
            return None
        record: dict[str, Any] = read_json(path)
        return record if record["settings"] == self.settings(run.strategy).to_json() else None

    def missing(self, runs: Sequence[StudyRun]) -> list[StudyRun]:
        return [run for run in runs if self.record(run) is None]


def execute(
    data: StudyData, missing: Sequence[StudyRun], results: Results, out: Path, say: Callable[[str], None]
) -> None:
    """Execute the runs of one study. Runs that share a training share its models.

    out: where the models go; a training that is found there is not repeated.
    """
    device = torch.device("cpu")
    groups: dict[tuple[int, str], list[StudyRun]] = {}
    for run in missing:
        groups.setdefault((run.seed, run.strategy.training), []).append(run)
    for (seed, training), runs in groups.items():
        settings = results.settings(runs[0].strategy)
        started = time.perf_counter()
        trained = train(data, settings, seed, out / data.name / f"{training}-s{seed}", device)
        say(f"{data.name}, seed {seed}: {training} trained in {sum(trained.seconds):.0f} s")
        measured, head = tables(data, trained, seed), head_seconds(trained, data)
        for run in runs:
            record = {
                "study": data.name,
                "strategy": run.strategy.name,
                "training": training,
                "search": run.strategy.search,
                "seed": seed,
                "settings": settings.to_json(),
                "command": f"python -m papers.quarters run --studies {data.name} --seeds {seed}",
                "environment": describe(str(device)),
                "items": counts(data, seed),
                "seconds": {
                    "training": list(trained.seconds),
                    "head_per_million": head,
                    "network_per_million": None if data.seconds_per_item is None else 1e6 * data.seconds_per_item,
                },
                "tables": {name: numbers(table, run.strategy.search) for name, table in measured.items()},
            }
            write_json(results.root / run.path, rounded(record))
            say(f"  {run.path} ({time.perf_counter() - started:.0f} s)")


def head_seconds(trained: Trained, data: StudyData) -> float:
    """Seconds in which the head embeds a million items whose frozen features are at hand."""
    items = data.items[:TIMED_ITEMS]
    started = time.perf_counter()
    trained.encoders[-1].encode(items)
    return (time.perf_counter() - started) * 1e6 / len(items)


def counts(data: StudyData, seed: int) -> dict[str, Any]:
    """Numbers of items of each role."""
    splits = {table: data.split(table, seed) for table in TABLES}
    found = {
        table: {"queries": len(one.queries), "gallery": len(one.gallery), "pairs": len(one.pairs)}
        for table, one in splits.items()
    }
    return {"training": len(data.training), "classes": list(data.sizes), **found}
