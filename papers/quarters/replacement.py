"""The replacement: after version 5 the network itself is replaced, EfficientNet-lite0 by lite2.

The new head is trained on all training photographs at once. For training into the old space, the new network's vectors
are first rotated onto version 5's vectors of the training photographs; the head then begins as the identity on them and
is compared with version 5's vectors, which are read from the store. Plain training starts from the new vectors as they
are.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from holdfast import Bridge, Encoder, ImageSet, SlotRegistry, fit
from holdfast.data.images import canonical
from holdfast.environment import describe
from holdfast.errors import HoldfastError
from holdfast.scenarios import Task, next_task
from holdfast.storage import write_json
from holdfast.training import StoredReference
from papers.quarters.execute import Results, StudyRun
from papers.quarters.measure import rounded
from papers.quarters.strategies import STRATEGIES, Measured, Strategy, numbers
from papers.quarters.study_data import REPLACEMENT, TABLES, StudyData
from papers.quarters.trainings import FAN, PLAIN, RAW, Settings, Trained, head_encoder, train

REPLACED = tuple(one for one in STRATEGIES if one.training not in (RAW, FAN))
"""FAN has no map to a replacement, and vectors without a head cannot be compared between networks."""


def replacement_runs(seeds: Sequence[int]) -> list[StudyRun]:
    return [StudyRun(REPLACEMENT, strategy, seed) for seed in seeds for strategy in REPLACED]


@dataclass(frozen=True, eq=False)
class Replaced:
    """The new model. encoder: of vectors after ``rotation``, which is None if they are used as they are."""

    encoder: Encoder
    rotation: Bridge | None

    def embedded(self, items: np.ndarray) -> torch.Tensor:
        rows = items if self.rotation is None else self.rotation(items).numpy()
        return self.encoder.encode(rows)


def execute_replacement(
    old: StudyData, new: StudyData, missing: Sequence[StudyRun], results: Results, out: Path, say: Callable[[str], None]
) -> None:
    """Execute the runs. The five versions before are those of the study of photographs, trained if they are missing.

    old, new: the same photographs under both networks.
    """
    if not (old.labels == new.labels).all():
        raise HoldfastError("the features of both networks must be of the same photographs, in the same order")
    groups: dict[tuple[int, str], list[StudyRun]] = {}
    for run in missing:
        groups.setdefault((run.seed, run.strategy.training), []).append(run)
    for (seed, training), runs in groups.items():
        settings = results.settings(runs[0].strategy)
        before = train(old, settings, seed, out / old.name / f"{training}-s{seed}", torch.device("cpu"))
        after = replaced(old, new, before, settings, seed, into_old=training != PLAIN)
        tables = {table: measured(old, new, before, after, table, seed) for table in TABLES}
        for run in runs:
            write_json(results.root / run.path, rounded(_record(run, settings, tables)))
            say(f"  {run.path}")


def replaced(
    old: StudyData, new: StudyData, before: Trained, settings: Settings, seed: int, *, into_old: bool
) -> Replaced:
    """Train a head on the new network's vectors.

    into_old: start from the rotation onto version 5's vectors and train with the method's comparison to them.
    """
    width, rows = int(new.items.shape[1]), new.training
    vectors, stored = new.items[rows].astype(np.float32), before.encoders[-1].encode(old.items[rows])
    rotation = Bridge.fit(vectors, stored, kind="rotation", seed=seed) if into_old else None
    if rotation is not None:
        vectors = rotation(vectors).numpy()
    images, task, order = _task(vectors, new.labels[rows], width + 1 if settings.needs_slots else None)
    if into_old:
        task = replace(task, start="loaded", reference="loaded", model="version 5")
    encoder = head_encoder(new, settings)
    reference = StoredReference(stored[order]) if into_old else None
    fit(encoder, settings.build_method(width), task, images, old=reference, options=settings.fit_options(seed))
    return Replaced(encoder.eval(), rotation)


def _task(vectors: np.ndarray, labels: np.ndarray, slots: int | None) -> tuple[ImageSet, Task, np.ndarray]:
    """The training set in canonical order, one task with all of it, and the row that each of its items had."""
    names, codes = np.unique(labels, return_inverse=True)
    images = canonical(
        vectors[:, None, None, :],
        codes,
        [str(name) for name in names],
        source=REPLACEMENT,
        names=np.arange(len(labels)),
    )
    registry = SlotRegistry(slots or len(names)).take_left(images.class_names)
    none = np.empty(0, dtype=np.int64)
    task = next_task(1, images.class_names, 0, registry, new_indices=np.arange(len(images)), buffer_indices=none)
    assert images.names is not None
    return images, task, images.names


def measured(old: StudyData, new: StudyData, before: Trained, after: Replaced, table: str, seed: int) -> Measured:
    """Version 5 and the replacement as two versions."""
    split = old.split(table, seed)
    queries, gallery, pairs = (
        [before.encoders[-1].encode(old.items[rows]), after.embedded(new.items[rows])]
        for rows in (split.queries, split.gallery, split.pairs)
    )
    return Measured(split, queries, gallery, pairs, [None, None], seed)


def _record(run: StudyRun, settings: Settings, tables: dict[str, Measured]) -> dict[str, Any]:
    strategy: Strategy = run.strategy
    return {
        "study": run.study,
        "strategy": strategy.name,
        "training": strategy.training,
        "search": strategy.search,
        "seed": run.seed,
        "settings": settings.to_json(),
        "command": f"python -m papers.quarters run --studies {run.study} --seeds {run.seed}",
        "environment": describe("cpu"),
        "tables": {name: numbers(table, strategy.search) for name, table in tables.items()},
    }
