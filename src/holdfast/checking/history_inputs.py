"""The features of a whole history of models, from a run folder or from files."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from holdfast.checking.feature_set import FeatureSet, some
from holdfast.checking.inputs import Source, opened
from holdfast.checking.search import Condition, float32
from holdfast.checking.truth import class_codes
from holdfast.errors import HoldfastError
from holdfast.features import FeatureStore, ModelFeatures, read_space_maps
from holdfast.folder_kinds import no_finished_run
from holdfast.run_folder import RunFolder
from holdfast.scenarios.strangers import refuse_strangers_in
from holdfast.space_map import SpaceMap

Models = str | Path | Sequence[tuple[Source, Source]]
"""A run folder, or (queries, gallery) of each model, oldest first."""


def read_history(
    models: Models,
) -> tuple[list[str], list[ModelFeatures], np.ndarray, np.ndarray, Sequence[SpaceMap | None]]:
    """Names, features, query and gallery classes, and maps (empty for models that are no run).

    A run whose models' slots do not belong together is refused, where the models are still there.
    """
    if isinstance(models, str | Path):
        folder = RunFolder(models)
        if not folder.features.is_dir():
            if folder.metrics.exists():
                raise HoldfastError(f"{models}: a run without its stored features (no features/ in it)")
            raise no_finished_run(models)
        store = FeatureStore(folder.features)
        stored = store.read_all()
        refuse_strangers_in(folder, len(stored))
        names = [str(number) for number in range(1, len(stored) + 1)]
        maps = read_space_maps(folder, len(stored))
        return names, stored, *store.labels(), maps
    sets = [
        (opened(query, f"queries {t}", "query"), opened(gallery, f"gallery {t}", "gallery"))
        for t, (query, gallery) in enumerate(models, start=1)
    ]
    if not sets:
        raise HoldfastError("a history needs at least two models")
    query, gallery = sets[0]
    if query.labels is None:
        raise HoldfastError(f"{query.name}: has no labels, and a history cannot be judged without")
    codes, (gallery_codes,), _ = class_codes(query.labels, gallery)
    features = [ModelFeatures(_rows_like(query, later[0]), _rows_like(gallery, later[1])) for later in sets]
    return [str(t + 1) for t in range(len(sets))], features, codes, gallery_codes, []


def odd_vectors(features: Sequence[ModelFeatures]) -> list[str]:
    """Notes on zero vectors and on lengths; what is not finite is refused by the matrix, which names it."""
    notes = []
    for t, model in enumerate(features, start=1):
        for what, rows in (("queries", model.query), ("gallery", model.gallery)):
            condition = Condition(f"{what} of model {t}", len(rows))
            condition.look_at(np.arange(len(rows)), float32(np.array(rows), "cpu"))
            notes += replace(condition, not_finite=[]).notes("they are like nothing, and find the first item")
    return notes


def _rows_like(first: FeatureSet, later: FeatureSet) -> np.ndarray:
    """The features of ``later`` in the order of ``first``: by id where both have ids, else row by row."""
    if len(first) != len(later):
        raise HoldfastError(
            f"{later.name} has {len(later)} rows and {first.name} {len(first)}; they must be the same images"
        )
    rows = np.arange(len(later))
    if first.ids is not None and later.ids is not None:
        by_id = {str(name): i for i, name in enumerate(later.ids)}
        missing = [name for name in first.ids if str(name) not in by_id]
        if missing:
            raise HoldfastError(f"{later.name}: lacks {len(missing)} ids of {first.name}: {some(missing)}")
        rows = np.array([by_id[str(name)] for name in first.ids])
    if first.labels is not None and later.labels is not None and (first.labels != later.labels[rows]).any():
        raise HoldfastError(f"{later.name}: its labels are not those of {first.name}; are they the same images?")
    return later.rows.take(rows)
