"""A finished run's record and stored features, and its models in the form that ``check_history`` takes."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from holdfast.core.errors import HoldfastError
from holdfast.core.run_folder import RunFolder, not_a_run_error
from holdfast.core.storage import read_json
from holdfast.core.wording import counted
from holdfast.train.encoders import FeatureStore, ModelFeatures, read_space_maps
from holdfast.train.evaluation.matrix import FeatureMap, mapped
from holdfast.train.geometry import unit
from holdfast.train.scenarios.slots_of_runs import refuse_incompatible_slots_in_run
from holdfast.vectors import FeatureSet
from holdfast.vectors.feature_files import read_features


def finished_run(folder: RunFolder) -> tuple[dict[str, Any], list[ModelFeatures]]:
    """The content of ``metrics.json`` and the stored features of every model. An unfinished run is refused."""
    if not (folder.recipe.exists() and folder.metrics.exists()):
        raise not_a_run_error(folder.path)
    record = read_json(folder.metrics)
    if not isinstance(record, dict) or not {"method", "protocols", "tasks"} <= record.keys():
        raise HoldfastError(f"{folder.metrics}: not the record of a run")
    if not folder.features.is_dir():
        raise HoldfastError(f"{folder.path}: a run without its stored features (no features/ in it)")
    models = FeatureStore(folder.features).read_all()
    if len(models) != len(record["tasks"]):
        raise HoldfastError(
            f"{folder.features}: has features of {counted(len(models), 'model')}, but the run has "
            f"{len(record['tasks'])}; repeat holdfast run to compute what is missing"
        )
    return record, models


def read_finished(
    folder: RunFolder,
) -> tuple[dict[str, Any], list[ModelFeatures], tuple[np.ndarray, np.ndarray], list[FeatureMap | None]]:
    """What an evaluation reads: the record, features, labels of queries and gallery, and maps between the models.

    Refused: an unfinished run, models of incompatible slots, a lost map.
    """
    record, models = finished_run(folder)
    refuse_incompatible_slots_in_run(folder, len(models))
    lost = [number for number in record.get("maps", []) if not folder.space_map(number).exists()]
    if lost:
        raise HoldfastError(f"{folder.models}: the map to model {lost[0]} is missing, and old galleries need it")
    labels = FeatureStore(folder.features).labels()
    return record, models, labels, list(read_space_maps(folder, len(models)))


def keep_extras(judged: dict[str, Any], known: dict[str, Any]) -> None:
    """Add the extra scores of an earlier evaluation of the same features, both as the ``protocols`` of a run."""
    for name, protocol in judged.items():
        kept = {**known.get(name, {}).get("extras", {}), **protocol.get("extras", {})}
        if kept:
            protocol["extras"] = kept


class MappedGalleries:
    """Galleries of earlier models, carried by the maps that a run learned, as ``check_history`` asks for them.

    features: of each model, oldest first. maps: from the previous model's space to each one's own; None without one.

    Called with (t, k), numbers from 0 and t never falling: the gallery of model k in the space of model t, N x d; None
    where a map is of another size.
    """

    def __init__(self, features: Sequence[ModelFeatures], maps: Sequence[FeatureMap | None]) -> None:
        self._features, self._maps = features, maps
        self._galleries: list[torch.Tensor | None] = []

    def __call__(self, t: int, k: int) -> np.ndarray | None:
        while len(self._galleries) <= t:
            number = len(self._galleries)
            features, step = self._features[number], self._maps[number]
            if features.basis is not None:
                raise HoldfastError("maps between models read full features, but these are compact")
            if step is not None:
                self._galleries = [None if rows is None else mapped(rows, step) for rows in self._galleries]
            self._galleries.append(unit(torch.tensor(features.gallery).float()))
        gallery = self._galleries[k]
        return None if gallery is None else gallery.numpy()


def run_models(run: str | Path) -> tuple[list[tuple[FeatureSet, FeatureSet]], MappedGalleries | None]:
    """(queries, gallery) of each model of a finished run, and its maps between spaces, for ``check_history``.

    The second is None if the run learned no maps. A run with models of incompatible slots is refused, if its models
    still exist.
    """
    folder = RunFolder(run)
    _, features = finished_run(folder)
    refuse_incompatible_slots_in_run(folder, len(features))
    FeatureStore(folder.features).labels()  # refuses damaged ones
    stored = [folder.features / f"{number:02d}" for number in range(1, len(features) + 1)]
    models = [(read_features(model, "query"), read_features(model, "gallery")) for model in stored]
    maps = read_space_maps(folder, len(features))
    learned = any((folder.space_map(number)).exists() for number in range(1, len(features) + 1))
    return models, MappedGalleries(features, maps) if learned else None
