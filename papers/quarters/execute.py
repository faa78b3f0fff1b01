"""Execute the missing runs of the study and write one JSON file for each strategy and seed."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from holdfast.core.environment import describe
from holdfast.core.storage import read_json, write_json
from papers.quarters.measure import rounded
from papers.quarters.settings_search import FOLDER, chosen_settings
from papers.quarters.strategies import STRATEGIES, Strategy, numbers, tables
from papers.quarters.study_data import NETWORK, NETWORK_REPLACEMENT, TABLES, StudyData
from papers.quarters.trainees import HEAD, Settings, Trainee
from papers.quarters.trainees import NETWORK as WHOLE_NETWORK
from papers.quarters.trainings import BATCH, Trained, train
from papers.quarters.workers import Workplace, results_of

SEEDS = (0, 1, 2)
TIMED_VECTORS, TIMED_PHOTOGRAPHS = 20_000, 2_048


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

    def settings(self, run: StudyRun) -> Settings:
        return chosen_settings(self.root / FOLDER, trainee_of_study(run.study), run.strategy.training)

    def record(self, run: StudyRun) -> dict[str, Any] | None:
        """The record of a run; None if it has not been run with these settings."""
        path = self.root / run.path
        if not path.is_file():
            return None
        record: dict[str, Any] = read_json(path)
        return record if record["settings"] == self.settings(run).to_json() else None

    def missing(self, runs: Sequence[StudyRun]) -> list[StudyRun]:
        return [run for run in runs if self.record(run) is None]


def trainee_of_study(study: str) -> Trainee:
    return WHOLE_NETWORK if study in (NETWORK, NETWORK_REPLACEMENT) else HEAD


@dataclass(frozen=True)
class Group:
    """Runs of one study at one seed that share a training, and so its models."""

    study: str
    seed: int
    training: str
    runs: tuple[StudyRun, ...]


def grouped(runs: Sequence[StudyRun]) -> list[Group]:
    groups: dict[tuple[str, int, str], list[StudyRun]] = {}
    for run in runs:
        groups.setdefault((run.study, run.seed, run.strategy.training), []).append(run)
    return [Group(*key, tuple(members)) for key, members in groups.items()]


def execute(missing: Sequence[StudyRun], place: Workplace, *, processes: int = 1, say: Callable[[str], None]) -> None:
    """Execute the runs. Groups of runs that share a training are executed in so many processes."""
    for line in results_of(execute_group, grouped(missing), place, processes):
        say(line)


def execute_group(place: Workplace, group: Group) -> str:
    """Train the models of a group unless they are there, and write its records. Returns what to say."""
    started = time.perf_counter()
    results, data, device = Results(place.results), place.data(group.study), torch.device(place.device)
    settings = results.settings(group.runs[0])
    trained = train(data, settings, group.seed, models_folder(place, group), device)
    measured, seconds = tables(data, trained, group.seed), seconds_per_million(trained, data)
    for run in group.runs:
        record = {
            "study": data.name,
            "strategy": run.strategy.name,
            "training": group.training,
            "search": run.strategy.search,
            "seed": group.seed,
            "settings": settings.to_json(),
            "command": f"python -m papers.quarters run --studies {data.name} --seeds {group.seed}",
            "environment": describe(place.device),
            "items": counts(data, group.seed),
            "seconds": {"training": list(trained.seconds), **seconds},
            "tables": {name: numbers(table, run.strategy.search) for name, table in measured.items()},
        }
        write_json(results.root / run.path, rounded(record))
    return (
        f"{data.name}, seed {group.seed}, {group.training}: {len(group.runs)} records; trained in"
        f" {sum(trained.seconds):.0f} s, all in {time.perf_counter() - started:.0f} s"
    )


def models_folder(place: Workplace, group: Group) -> Path:
    return place.out / group.study / f"{group.training}-s{group.seed}"


def seconds_per_million(trained: Trained, data: StudyData) -> dict[str, float | None]:
    """Seconds in which a million items are embedded again.

    A head: by the head alone, with the frozen network's features at hand, and by the frozen network. A whole network:
    by the network, with decoded photographs in memory.
    """
    count = TIMED_VECTORS if data.holds_vectors else TIMED_PHOTOGRAPHS
    items = data.searched(np.arange(min(count, len(data.items))))
    encoder = trained.encoders[-1]
    encoder.encode(items[:64], batch_size=BATCH)  # warm-up
    started = time.perf_counter()
    encoder.encode(items, batch_size=BATCH)
    found = (time.perf_counter() - started) * 1e6 / len(items)
    if data.holds_vectors:
        frozen = None if data.seconds_per_item is None else 1e6 * data.seconds_per_item
        return {"head_per_million": found, "network_per_million": frozen}
    return {"network_per_million": found}


def counts(data: StudyData, seed: int) -> dict[str, Any]:
    """Numbers of items of each role."""
    splits = {table: data.split(table, seed) for table in TABLES}
    found = {
        table: {"queries": len(one.queries), "gallery": len(one.gallery), "pairs": len(one.pairs)}
        for table, one in splits.items()
    }
    return {"training": len(data.training), "classes": list(data.sizes), **found}
