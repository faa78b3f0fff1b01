"""The replacement: after version 5 the network itself is replaced, EfficientNet-lite0 by lite2.

The new model is trained on all training photographs at once. For training into the old space, the new network's vectors
are first rotated onto version 5's vectors of the training photographs, and are compared with these while the model is
trained. Plain training starts from the new network as it is. A head is trained on vectors of the frozen new network;
a whole network is trained with the rotation as its last layer.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from holdfast import Bridge, Encoder, ImageSet, SlotRegistry, build_backbone, fit
from holdfast.bridges.maps import Rotation
from holdfast.core.environment import describe
from holdfast.core.errors import HoldfastError
from holdfast.core.storage import write_json
from holdfast.train.data.images import canonical, canonical_order
from holdfast.train.engine.checkpoint import restore_method
from holdfast.train.methods import Method
from holdfast.train.scenarios import Task, next_task
from papers.quarters.execute import Group, Results, StudyRun, grouped, models_folder
from papers.quarters.measure import rounded
from papers.quarters.stored_reference import StoredReference
from papers.quarters.strategies import STRATEGIES, Measured, numbers
from papers.quarters.study_data import (
    NETWORK,
    NETWORK_REPLACEMENT,
    PHOTOGRAPHS,
    REPLACEMENT,
    TABLES,
    VERSIONS,
    StudyData,
)
from papers.quarters.trainees import DISTILLATION_RANDOM, FAN, HEAD, LITE2, PLAIN, PLAIN_RANDOM, RAW, Settings
from papers.quarters.trainees import NETWORK as WHOLE_NETWORK
from papers.quarters.trainings import Trained, train
from papers.quarters.workers import LITE2_FEATURES, Workplace, results_of

REPLACED = tuple(one for one in STRATEGIES if one.training not in (RAW, FAN, PLAIN_RANDOM, DISTILLATION_RANDOM))
"""FAN has no map to a replacement, and vectors without a head cannot be compared between networks."""

BEFORE = {REPLACEMENT: PHOTOGRAPHS, NETWORK_REPLACEMENT: NETWORK}
"""Study of a replacement -> the study whose version 5 is replaced."""


def replacement_runs(seeds: Sequence[int], study: str = REPLACEMENT) -> list[StudyRun]:
    return [StudyRun(study, strategy, seed) for seed in seeds for strategy in REPLACED]


def execute_replacement(
    missing: Sequence[StudyRun], place: Workplace, *, processes: int = 1, say: Callable[[str], None]
) -> None:
    """Execute the runs. The five versions before are those of the study before, trained if they are missing."""
    for line in results_of(execute_group, grouped(missing), place, processes):
        say(line)


def execute_group(place: Workplace, group: Group) -> str:
    """Train the replacement after one training, and write the records of its runs. Returns what to say."""
    results, device = Results(place.results), torch.device(place.device)
    settings = results.settings(group.runs[0])
    data = place.data(BEFORE[group.study])
    models = models_folder(place, replace(group, study=BEFORE[group.study]))
    before = train(data, settings, group.seed, models, device)
    into_old = group.training != PLAIN
    if group.study == REPLACEMENT:
        pair: Pair = replaced_head(data, place.data(LITE2_FEATURES), before, settings, group.seed, into_old=into_old)
    else:
        pair = replaced_network(data, before, settings, group.seed, into_old=into_old)
    tables = {table: measured(data, pair, table, group.seed) for table in TABLES}
    for run in group.runs:
        write_json(results.root / run.path, rounded(_record(run, settings, tables, place.device)))
    return f"{group.study}, seed {group.seed}, {group.training}: {len(group.runs)} records"


@dataclass(frozen=True, eq=False)
class Pair:
    """Version 5 and its replacement: functions from numbers of items to unit vectors."""

    before: Callable[[np.ndarray], Tensor]
    after: Callable[[np.ndarray], Tensor]


def replaced_head(
    old: StudyData, new: StudyData, before: Trained, settings: Settings, seed: int, *, into_old: bool
) -> Pair:
    """Train a head on the new network's vectors.

    old, new: the same photographs under both networks.
    into_old: start from the rotation onto version 5's vectors and train with the method's comparison to them.
    """
    if not (old.labels == new.labels).all():
        raise HoldfastError("the features of both networks must be of the same photographs, in the same order")
    width, rows = HEAD.width(new), new.training
    last = before.encoders[-1]
    vectors, stored = new.items[rows].astype(np.float32), last.encode(old.items[rows])
    fixed = settings.slots(width) is not None  # the layer before the simplex maps into the old space
    rotation = Bridge.fit(new=vectors, old=stored, kind="rotation", seed=seed) if into_old and not fixed else None
    if rotation is not None:
        vectors = rotation(vectors)
    items = vectors[:, None, None, :]
    images, task, order = _task(items, new.labels[rows], _slots(last, settings, width), into_old=into_old)
    method = _method(before, settings, width, task)
    encoder = HEAD.encoder(new, settings)
    reference = StoredReference(stored[order]) if into_old else None
    options = HEAD.fit_options(settings, seed, torch.device("cpu"))
    fit(encoder, method, task, images, old=reference, options=options)
    encoder.eval()

    def after(wanted: np.ndarray) -> Tensor:
        found = new.items[wanted]
        return encoder.encode(found if rotation is None else rotation(found))

    return Pair(lambda wanted: last.encode(old.items[wanted]), after)


def replaced_network(data: StudyData, before: Trained, settings: Settings, seed: int, *, into_old: bool) -> Pair:
    """Train the whole new network, on crops of the same size. into_old: as for heads."""
    width, rows, last = WHOLE_NETWORK.width(data), data.training, before.encoders[-1]
    device = next(last.parameters()).device
    backbone: nn.Module = build_backbone(LITE2)
    preprocess = WHOLE_NETWORK.preprocess(width)
    if into_old and settings.slots(width) is None:
        photographs = data.searched(rows)
        new = Encoder(backbone, preprocess=preprocess).to(device).encode(photographs)
        rotation = Rotation.fit(new.cpu().numpy(), last.encode(photographs).cpu().numpy())
        backbone = Turned(backbone, torch.from_numpy(rotation.weight).to(device), width)
    images, task, _ = _task(data.training_items(), data.labels[rows], _slots(last, settings, width), into_old=into_old)
    method = _method(before, settings, width, task)
    encoder = Encoder.for_method(method, backbone=backbone, preprocess=preprocess).to(device)
    options = WHOLE_NETWORK.fit_options(settings, seed, device)
    fit(encoder, method, task, images, old=last if into_old else None, options=options)
    encoder.eval()
    return Pair(lambda wanted: last.encode(data.searched(wanted)), lambda wanted: encoder.encode(data.searched(wanted)))


class Turned(nn.Module):
    """A network with a linear layer after it that begins as a rotation.

    weight: d_new x d_old, for rows of features.
    """

    def __init__(self, network: nn.Module, weight: Tensor, width: int) -> None:
        super().__init__()
        self.feature_dim = width
        self.network = network
        self.turn = nn.Linear(weight.shape[0], weight.shape[1], bias=False)
        with torch.no_grad():
            self.turn.weight.copy_(weight.T)

    def forward(self, pixels: Tensor) -> Tensor:
        turned: Tensor = self.turn(self.network(pixels))
        return turned


def _task(
    items: np.ndarray, labels: np.ndarray, registry: SlotRegistry | None, *, into_old: bool
) -> tuple[ImageSet, Task, np.ndarray]:
    """The training set in canonical order, one task with all of it, and the row that each of its items had.

    registry: version 5's slots, which the classes of a simplex keep; None for a classifier that begins anew.
    """
    names = [str(name) for name in (np.unique(labels) if registry is None else registry.owners)]
    label_of = {name: label for label, name in enumerate(names)}
    codes = np.array([label_of[str(name)] for name in labels])
    images = canonical(items, codes, names, source=REPLACEMENT)
    order, _ = canonical_order(items, codes, names, source=REPLACEMENT)
    every, none = np.arange(len(images)), np.empty(0, dtype=np.int64)
    if registry is None:
        new = SlotRegistry(len(names)).take_left(names)
        task = next_task(1, names, 0, new, new_indices=every, buffer_indices=none)
        if into_old:
            task = replace(task, start="loaded", reference="loaded", model="version 5")
    else:
        task = next_task(VERSIONS + 1, names, len(names), registry, new_indices=every, buffer_indices=none)
        task = replace(task, start="loaded", model="lite2")
    return images, task, order


def _slots(last: Encoder, settings: Settings, width: int) -> SlotRegistry | None:
    return None if settings.slots(width) is None else SlotRegistry.from_json(last.info["slots"])


def _method(before: Trained, settings: Settings, width: int, task: Task) -> Method:
    """A new method; one with a simplex goes on from version 5, so that its classes keep their vertices.

    Classifiers that are trained begin anew, because their rows belong to features of the other network.
    """
    method = settings.build_method(width)
    if settings.slots(width) is not None:
        restore_method(method, task, before.encoders[-1].dim, before.method_state)
    return method


def measured(data: StudyData, pair: Pair, table: str, seed: int) -> Measured:
    """Version 5 and the replacement as two versions."""
    split = data.split(table, seed)
    queries, gallery, pairs = (
        [pair.before(rows), pair.after(rows)] for rows in (split.queries, split.gallery, split.pairs)
    )
    return Measured(split, queries, gallery, pairs, [None, None], seed)


def _record(run: StudyRun, settings: Settings, tables: dict[str, Measured], device: str) -> dict[str, Any]:
    strategy = run.strategy
    return {
        "study": run.study,
        "strategy": strategy.name,
        "training": strategy.training,
        "search": strategy.search,
        "seed": run.seed,
        "settings": settings.to_json(),
        "command": f"python -m papers.quarters run --studies {run.study} --seeds {run.seed}",
        "environment": describe(device),
        "tables": {name: numbers(table, strategy.search) for name, table in tables.items()},
    }
