"""The choice of settings: each try is trained once, with a seed of its own, and scored on validation classes."""

import tempfile
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from holdfast.core.environment import describe
from holdfast.core.errors import HoldfastError
from holdfast.core.storage import read_json, write_json
from papers.quarters.measure import one_version, ranking, rounded, scores
from papers.quarters.study_data import Split, StudyData
from papers.quarters.trainees import LIKE, PLAIN, Settings, Trainee, derived, trainee_of
from papers.quarters.trainings import Trained, train
from papers.quarters.workers import Workplace, results_of

SEARCH_SEED = 100
FOLDER = "quarters"
"""Of the records, in the folder of results."""


@dataclass(frozen=True)
class Try:
    """One try of a training, on the data of a study."""

    study: str
    training: str
    settings: Settings


def search(
    place: Workplace, study: str, trainings: Collection[str], *, processes: int = 1, say: Callable[[str], None]
) -> None:
    """Train the tries of ``trainings`` that are not recorded yet, and add each to the record when it is done."""
    trainee = trainee_of(place.data(study))
    wanted = {LIKE.get(training, training) for training in trainings}
    missing = [
        Try(study, training, settings)
        for training, tries in trainee.tries.items()
        for settings in (tries if training in wanted and len(tries) > 1 else ())
        if _recorded(place.results / FOLDER, trainee, training, settings) is None
    ]
    for found in results_of(execute_try, missing, place, processes):
        _add(place.results / FOLDER, trainee, found, describe(place.device))
        say(f"try of {found['training']}: {found['settings']}: {100 * found['score']:.2f} ({found['seconds']:.0f} s)")


def execute_try(place: Workplace, job: Try) -> dict[str, Any]:
    """Train one try. Returns what is recorded of it."""
    data, device = place.data(job.study), torch.device(place.device)
    with tempfile.TemporaryDirectory() as folder:
        trained = train(data, job.settings, SEARCH_SEED, Path(folder, "run"), device)
    matrix = map_matrix(trained, data, data.validation_split(SEARCH_SEED))
    score = try_score(job.training, matrix)
    return rounded(
        {
            "training": job.training,
            "settings": job.settings.to_json(),
            "score": score,
            "mAP": matrix,
            "seconds": sum(trained.seconds),
        }
    )


def map_matrix(trained: Trained, data: StudyData, split: Split) -> list[list[float]]:
    """mAP of version t's queries on version k's gallery, row t, for k up to t; no map."""
    queries, galleries = (trained.embedded(data.searched(rows)) for rows in (split.queries, split.gallery))
    return [
        [
            scores(ranking(one_version(galleries[k], asked)), split.query_codes, split.gallery_codes)["mAP"]
            for k in range(t + 1)
        ]
        for t, asked in enumerate(queries)
    ]


def try_score(training: str, matrix: list[list[float]]) -> float:
    """Plain training: the last version's mAP on its own gallery. The others: the mean of all cells of the matrix."""
    if training == PLAIN:
        return matrix[-1][-1]
    cells = [value for line in matrix for value in line]
    return sum(cells) / len(cells)


def read_tries(results: Path, trainee: Trainee) -> list[dict[str, Any]]:
    """The recorded tries of a trainee. results: the study's own folder of records."""
    path = results / trainee.tries_file
    return read_json(path)["tries"] if path.exists() else []


def chosen_settings(results: Path, trainee: Trainee, training: str) -> Settings:
    """The settings of a training with the best score of its tries, or its only ones."""
    if training in LIKE:
        return derived(training, chosen_settings(results, trainee, LIKE[training]))
    tries = trainee.tries[training]
    if len(tries) == 1:
        return tries[0]
    found = [_recorded(results, trainee, training, settings) for settings in tries]
    known = [(one["score"], settings) for one, settings in zip(found, tries, strict=True) if one is not None]
    if len(known) < len(tries):
        where = results / trainee.tries_file
        raise HoldfastError(f"{where}: {len(known)} of {len(tries)} tries of {training}; run the study first")
    return max(known, key=lambda one: one[0])[1]


def _recorded(results: Path, trainee: Trainee, training: str, settings: Settings) -> dict[str, Any] | None:
    wanted = (training, settings.to_json())
    tries = read_tries(results, trainee)
    return next((one for one in tries if (one["training"], one["settings"]) == wanted), None)


def _add(results: Path, trainee: Trainee, found: dict[str, Any], environment: dict[str, Any]) -> None:
    results.mkdir(parents=True, exist_ok=True)
    tries = [*read_tries(results, trainee), found]
    write_json(results / trainee.tries_file, {"environment": environment, "seed": SEARCH_SEED, "tries": tries})
