"""Measure the assumptions and conclusions of Theorem 1, and the constraints of Proposition 1, on the models of a run.

``measure_stationarity`` is for one run folder and a report. ``theory_numbers`` is for the record of a run of the
study: every pair of models, for both readouts.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from holdfast.core.errors import HoldfastError
from holdfast.core.run_folder import RunFolder, not_a_run_error
from holdfast.core.storage import without_nan
from holdfast.train.data import ImageSet
from holdfast.train.encoders import Encoder, Readout, extract
from holdfast.train.experiments.assemble import Experiment, SharedData, assemble
from holdfast.train.experiments.load import read_recipe
from holdfast.train.experiments.schema import Recipe, check_recipe
from holdfast.train.geometry import DSimplex, Turn, TurnedSimplex
from holdfast.train.methods import Method
from holdfast.train.scenarios import Task
from holdfast.train.tensor_files import read_torch
from papers.stationary.readings import rounded
from papers.stationary.theorems.stationarity import CAP_SHARE, Update, compare_models

MOST_SAMPLES = 2_000
"""Images used for a report: pairs grow as the square, and 2,000 images have four million."""

STUDY_PER_CLASS = 100
"""Images of each class used for the record of a run of the study: 10,000 of CIFAR100."""

STUDY_SEED = 0
"""Draws the same images for all runs of the study."""

Pair = tuple[int, int]
"""Positions of an older and a newer model, from 0."""


def measure_stationarity(
    folder: RunFolder, *, data: Path | None = None, device: torch.device | str = "cpu", per_class: int = 20
) -> dict[str, Any]:
    """The record that ``stationarity.json`` keeps: each update of the run, and every older model with every newer.

    Reads the run's recipe, its data and its models; ``per_class`` training images of each class, drawn by the recipe's
    seed, fewer where there are many classes.
    """
    if not folder.recipe.exists() or not (folder.models.is_dir() or folder.metrics.exists()):
        raise not_a_run_error(folder.path)
    experiment = assemble(check_recipe(read_recipe(str(folder.recipe))), SharedData(data))
    missing = [task.number for task in experiment.scenario.tasks if not folder.model(task.number).is_dir()]
    if missing:
        raise HoldfastError(f"{folder.path}: model {missing[0]} is not trained; repeat holdfast run to resume")
    return stationarity_of(experiment, folder, device=device, per_class=per_class)


def stationarity_of(
    experiment: Experiment, folder: RunFolder, *, device: torch.device | str = "cpu", per_class: int = 20
) -> dict[str, Any]:
    """``measure_stationarity`` for an experiment whose data is already read."""
    if per_class < 2:
        raise HoldfastError(f"per_class must be at least 2, so that a class has pairs, got {per_class}")
    tasks = experiment.scenario.tasks
    train, seed = experiment.data.train, experiment.options.seed
    chosen, labels = _sample(train.labels, tasks[-1].seen_classes, per_class, seed, MOST_SAMPLES)
    found, kind = _compare_all(experiment, folder, chosen, labels, None, device)
    shares = {name: np.full((len(tasks), len(tasks)), math.nan) for name in ("same", "different")}
    updates = []
    for (k, t), update in found.items():
        shares["same"][t, k], shares["different"][t, k] = update.same.share, update.different.share
        if t == k + 1:
            own = np.unique(labels[labels < tasks[k].num_seen])
            names = [train.class_names[tasks[-1].seen_classes[label]] for label in own]
            updates.append({"from": k + 1, "to": t + 1, **update.to_json(names)})
    record = {
        "images": "training",
        "samples": len(labels),
        "per_class": int(np.bincount(labels).max()),
        "seed": seed,
        "cap_share": CAP_SHARE,
        "prototypes": kind,
        "updates": updates,
        "pairs": {name: matrix.tolist() for name, matrix in shares.items()},
    }
    return dict(without_nan(record))


def theory_numbers(folder: RunFolder, recipe: Recipe, shared: SharedData, device: torch.device) -> dict[str, Any]:
    """Theorem 1 and Proposition 1 on a finished run: ``found["readouts"][readout]["pairs"]`` has an entry per k < t.

    Measured on ``STUDY_PER_CLASS`` training images of each class that the older model knows, the same for all runs. A
    run without a projection has the readout "simplex" only, which is its one feature. Angles are in degrees.
    """
    experiment = assemble(recipe, shared)
    tasks, train = experiment.scenario.tasks, experiment.data.train
    chosen, labels = _sample(train.labels, tasks[-1].seen_classes, STUDY_PER_CLASS, STUDY_SEED)
    projected = Encoder.from_pretrained(folder.model(tasks[0].number)).projection is not None
    readouts: Sequence[Readout] = ("simplex", "backbone") if projected else ("simplex",)
    found: dict[str, Any] = {}
    for readout in readouts:
        updates, kind = _compare_all(experiment, folder, chosen, labels, readout, device)
        pairs = [
            {"from": k + 1, "to": t + 1, **_without_classes(update.to_json([]))} for (k, t), update in updates.items()
        ]
        found[readout] = {"prototypes": kind, "pairs": rounded(pairs, 6)}
    return {
        "images": f"{recipe['data']['train']['name']} {recipe['data']['train']['split']}",
        "samples": len(labels),
        "per_class": int(np.bincount(labels).max()),
        "cap_share": CAP_SHARE,
        "readouts": dict(without_nan(found)),
    }


def _without_classes(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in entry.items() if key != "classes"}


def _compare_all(
    experiment: Experiment,
    folder: RunFolder,
    chosen: np.ndarray,
    labels: np.ndarray,
    readout: Readout | None,
    device: torch.device | str,
) -> tuple[dict[Pair, Update], str]:
    """Every older model with every newer one of the same size, on the classes the older one knows.

    chosen: rows of the training set.
    labels: their classes, by arrival.
    readout: which feature; None is the one that the run compares.
    Also returns what the prototypes are.
    """
    tasks, train = experiment.scenario.tasks, experiment.data.train
    images = ImageSet(train.images[chosen], train.labels[chosen], train.class_names, train.fingerprint)
    method = experiment.make_method()
    features, prototypes, kind = [], [], ""
    for task in tasks:
        encoder = Encoder.from_pretrained(folder.model(task.number))
        encoder.readout = readout or encoder.readout
        features.append(extract(encoder, images, device=device))
        rows, kind = _prototypes(task, method, folder, encoder, (features[-1], labels))
        prototypes.append(rows)
    found = {}
    for k, t in itertools.combinations(range(len(tasks)), 2):
        if features[k].shape != features[t].shape:
            continue
        seen = labels < tasks[k].num_seen  # labels are by arrival
        own = np.unique(labels[seen])
        found[k, t] = compare_models(
            features[k][seen],
            features[t][seen],
            np.searchsorted(own, labels[seen]),
            prototypes[k][own],
            prototypes[t][own],
            device=device,
        )
    return found, kind


def _sample(
    labels: np.ndarray, classes: tuple[int, ...], per_class: int, seed: int, most: int | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Rows of the training set and their classes by arrival; at most ``most``, at least two of a class.

    A class's images depend on the seed and the class alone. Beyond ``most`` / 2 classes, every n-th is taken.
    """
    taken, count = list(enumerate(classes)), per_class
    if most is not None:
        taken = taken[:: math.ceil(2 * len(classes) / most)]
        count = max(2, min(per_class, most // len(taken)))
    rows, arrival = [], []
    for position, label in taken:
        own = np.flatnonzero(labels == label)
        generator = np.random.default_rng([seed, label, 1])
        picked = np.sort(generator.choice(own, size=min(count, len(own)), replace=False))
        rows.append(picked)
        arrival.append(np.full(len(picked), position))
    return np.concatenate(rows), np.concatenate(arrival)


def _prototypes(
    task: Task, method: Method, folder: RunFolder, encoder: Encoder, known: tuple[np.ndarray, np.ndarray]
) -> tuple[np.ndarray, str]:
    """The prototype of each seen class by arrival, and what they are.

    They are the vertices of the method's simplex, its classifier's rows at this task, or the classes' mean features if
    it has neither. For the backbone's feature h they are the vectors p with p . h = w . z, that is, the prototypes w
    passed back through the projection.

    known: features and labels of the images.
    """
    features, labels = known
    projection = encoder.projection if encoder.readout == "backbone" else None
    state, _ = read_torch(folder.method(task.number))
    if method.num_slots is not None:
        simplex, kind = DSimplex(method.num_slots), "fixed simplex"
        if "turned.basis" in state:
            turn = Turn(*(torch.as_tensor(state[f"turned.{part}"]) for part in ("basis", "matrix")))
            simplex, kind = TurnedSimplex(method.num_slots, turn), "turned simplex"
        rows = simplex.prototypes(torch.tensor(task.slots))
        if projection is None:
            return rows.numpy(), kind
        back = rows @ projection.weight.detach().cpu().float()
        return back.numpy(), f"{kind}, through the projection"
    classifier = state.get("classifier.weight")
    if projection is None and classifier is not None and classifier.shape == (task.num_seen, features.shape[1]):
        return classifier.float().numpy(), "classifier rows"
    means = np.zeros((task.num_seen, features.shape[1]), dtype=np.float32)
    for label in np.unique(labels[labels < task.num_seen]):
        means[label] = features[labels == label].mean(0)
    return means, "class means"
