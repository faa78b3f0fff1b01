"""The choice of settings: each try is trained once, with a seed of its own, and scored on validation classes."""

import tempfile
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import torch

from holdfast.environment import describe
from holdfast.errors import HoldfastError
from holdfast.storage import read_json, write_json
from papers.quarters.measure import one_version, ranking, rounded, scores
from papers.quarters.study_data import Split, StudyData
from papers.quarters.trainings import DISTILLATION, FAN, PLAIN, TRIES, Settings, Trained, of_fan, train

SEARCH_SEED = 100
FILE = "tries.json"


def search(data: StudyData, results: Path, trainings: Collection[str], *, say: Callable[[str], None]) -> None:
    """Train the tries of ``trainings`` that are not in ``RESULTS/tries.json`` yet, and write it after each."""
    device = torch.device("cpu")
    split = data.validation_split(SEARCH_SEED)
    wanted = {DISTILLATION if training == FAN else training for training in trainings}
    for training, tries in TRIES.items():
        for settings in tries if training in wanted and len(tries) > 1 else ():
            if _recorded(results, training, settings) is not None:
                continue
            with tempfile.TemporaryDirectory() as folder:
                trained = train(data, settings, SEARCH_SEED, Path(folder, "run"), device)
            matrix = map_matrix(trained, data, split)
            score = try_score(training, matrix)
            found = {"training": training, "settings": settings.to_json(), "score": score, "mAP": matrix}
            _add(results, rounded({**found, "environment": describe(str(device))}))
            say(f"try of {training}: {settings.to_json()}: {100 * score:.2f}")


def map_matrix(trained: Trained, data: StudyData, split: Split) -> list[list[float]]:
    """mAP of version t's queries on version k's gallery, row t, for k up to t; no map."""
    queries, galleries = (trained.embedded(data.items[rows]) for rows in (split.queries, split.gallery))
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


def read_tries(results: Path) -> list[dict[str, Any]]:
    path = results / FILE
    return read_json(path)["tries"] if path.exists() else []


def chosen_settings(results: Path, training: str) -> Settings:
    """The settings of a training with the best score of its tries, or its only ones."""
    if training == FAN:
        return of_fan(chosen_settings(results, DISTILLATION))
    tries = TRIES[training]
    if len(tries) == 1:
        return tries[0]
    found = [_recorded(results, training, settings) for settings in tries]
    known = [(one["score"], settings) for one, settings in zip(found, tries, strict=True) if one is not None]
    if len(known) < len(tries):
        raise HoldfastError(f"{results / FILE}: {len(known)} of {len(tries)} tries of {training}; run the study first")
    return max(known, key=lambda one: one[0])[1]


def _recorded(results: Path, training: str, settings: Settings) -> dict[str, Any] | None:
    wanted = (training, settings.to_json())
    return next((one for one in read_tries(results) if (one["training"], one["settings"]) == wanted), None)


def _add(results: Path, found: dict[str, Any]) -> None:
    results.mkdir(parents=True, exist_ok=True)
    environment = found.pop("environment")
    write_json(
        results / FILE, {"environment": environment, "seed": SEARCH_SEED, "tries": [*read_tries(results), found]}
    )
