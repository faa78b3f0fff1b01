"""Run a finished run's models over its training images again, to see whether Theorem 1's assumptions hold in it."""

import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import torch

from holdfast.backbones import Encoder
from holdfast.data import ImageSet
from holdfast.errors import HoldfastError
from holdfast.features import extract
from holdfast.folder_kinds import no_finished_run
from holdfast.geometry import DSimplex
from holdfast.methods import Method
from holdfast.recipes.assemble import Experiment, SharedData, assemble
from holdfast.recipes.load import read_recipe
from holdfast.recipes.schema import check_recipe
from holdfast.run_folder import RunFolder
from holdfast.scenarios import Task
from holdfast.storage import read_tensors, without_nan
from holdfast.theory.stationarity import CAP_SHARE, compare_models

MOST_SAMPLES = 2_000
"""Images looked at in all: pairs grow as the square, and 2,000 make four million of them."""


def measure_stationarity(
    folder: RunFolder, *, data: Path | None = None, device: torch.device | str = "cpu", per_class: int = 20
) -> dict[str, Any]:
    """The record that ``stationarity.json`` keeps: each update of the run, and every older model with every newer.

    Reads the run's recipe, its data and its models; ``per_class`` training images of each class, drawn by the recipe's
    seed, fewer where there are many classes.
    """
    if not folder.recipe.exists() or not (folder.models.is_dir() or folder.metrics.exists()):
        raise no_finished_run(folder.path)
    experiment = assemble(check_recipe(read_recipe(str(folder.recipe))), SharedData(data))
    missing = [task.number for task in experiment.scenario.tasks if not folder.model(task.number).is_dir()]
    if missing:
        raise HoldfastError(f"{folder.path}: model {missing[0]} is not trained yet; holdfast run ... --resume goes on")
    return stationarity_of(experiment, folder, device=device, per_class=per_class)


def stationarity_of(
    experiment: Experiment,
    folder: RunFolder,
    *,
    device: torch.device | str = "cpu",
    per_class: int = 20,
) -> dict[str, Any]:
    """``measure_stationarity`` for an experiment whose data is already read."""
    if per_class < 2:
        raise HoldfastError(f"per_class must be at least 2, so that a class has pairs, got {per_class}")
    tasks = experiment.scenario.tasks
    train, seed = experiment.data.train, experiment.options.seed
    chosen, labels = _sample(train.labels, tasks[-1].seen_classes, per_class, seed)
    images = ImageSet(train.images[chosen], train.labels[chosen], train.class_names, train.fingerprint)
    method = experiment.make_method()
    features, prototypes, kind = [], [], ""
    for task in tasks:
        encoder = Encoder.from_pretrained(folder.model(task.number))
        features.append(extract(encoder, images, device=device))
        rows, kind = _prototypes(task, method, folder, features[-1], labels)
        prototypes.append(rows)
    size = len(tasks)
    shares = {name: np.full((size, size), math.nan) for name in ("same", "different")}
    updates = []
    for k, t in itertools.combinations(range(size), 2):
        if features[k].shape != features[t].shape:
            continue
        seen = labels < tasks[k].num_seen  # what the older model has learned; labels are by arrival
        own = np.unique(labels[seen])
        update = compare_models(
            features[k][seen],
            features[t][seen],
            np.searchsorted(own, labels[seen]),
            prototypes[k][own],
            prototypes[t][own],
        )
        shares["same"][t, k], shares["different"][t, k] = update.same.share, update.different.share
        if t == k + 1:
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


def _sample(labels: np.ndarray, classes: tuple[int, ...], per_class: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows of the training set and their classes by arrival; at most MOST_SAMPLES, at least two of a class.

    A class's images depend on the seed and the class alone. Beyond MOST_SAMPLES / 2 classes, every n-th is taken.
    """
    stride = math.ceil(2 * len(classes) / MOST_SAMPLES)
    taken = list(enumerate(classes))[::stride]
    count = max(2, min(per_class, MOST_SAMPLES // len(taken)))
    rows, arrival = [], []
    for position, label in taken:
        own = np.flatnonzero(labels == label)
        generator = np.random.default_rng([seed, label, 1])
        picked = np.sort(generator.choice(own, size=min(count, len(own)), replace=False))
        rows.append(picked)
        arrival.append(np.full(len(picked), position))
    return np.concatenate(rows), np.concatenate(arrival)


def _prototypes(
    task: Task, method: Method, folder: RunFolder, features: np.ndarray, labels: np.ndarray
) -> tuple[np.ndarray, str]:
    """The prototype of each seen class by arrival, and what they are: a method's fixed ones, its classifier's rows at
    this task, or, where it has neither, the classes' mean features."""
    if method.num_slots is not None:
        slots = torch.tensor(task.slots)
        return DSimplex(method.num_slots).prototypes(slots).numpy(), "fixed simplex"
    state, _ = read_tensors(folder.method(task.number))
    rows = state.get("classifier.weight")
    if rows is not None and rows.shape == (task.num_seen, features.shape[1]):
        return rows.float().numpy(), "classifier rows"
    means = np.zeros((task.num_seen, features.shape[1]), dtype=np.float32)
    for label in np.unique(labels[labels < task.num_seen]):
        means[label] = features[labels == label].mean(0)
    return means, "class means"
