"""What a run will cost, worked out from its recipe alone: no data is read."""

import functools
import json

import numpy as np

from holdfast.data.sampler import steps_per_epoch
from holdfast.recipes.schema import Recipe
from holdfast.scenarios import SCENARIOS, ModelCard

TRAINING_SETS = {"cifar100": (100, 500), "tinyimagenet200": (200, 500)}
"""Classes and training images per class of the sets whose runs can be planned without them; CUB's differ in size."""

TIMED_NETWORK = "resnet32"
SECONDS_PER_STEP = 0.0008
"""Share of one H200 that its step takes with 16 runs side by side (``results/bench/train_step-h200.json``)."""


def planned_steps(recipe: Recipe) -> int | None:
    """Optimiser steps of the whole run; None where the size of the training set is not known."""
    train = recipe["data"]["train"]
    if train["name"] not in TRAINING_SETS:
        return None
    scenario = {key: value for key, value in recipe["scenario"].items() if key != "order_seed"}
    limits = [train[key] for key in ("per_class", "images_per_class") if train.get(key) is not None]
    per_class = min(limits) if limits else None
    per_epoch = _steps_per_epoch(train["name"], per_class, recipe["train"]["batch_size"], json.dumps(scenario))
    return int(recipe["train"]["epochs"]) * per_epoch


@functools.cache
def _steps_per_epoch(name: str, per_class: int | None, batch_size: int, scenario: str) -> int:
    """Over all tasks; every class has as many images, so the order of classes and the seed do not matter."""
    classes, images = TRAINING_SETS[name]
    labels = np.repeat(np.arange(classes), min(images, per_class or images))
    options = {key: value for key, value in json.loads(scenario).items() if value is not None}
    if "model" in options:  # whatever models are brought in, the steps are the same
        options["models"] = {name: ModelCard(1) for name in (options["model"], *options["replace_with"])}
    built = SCENARIOS[options.pop("name")](labels, [str(label) for label in range(classes)], **options)
    return sum(steps_per_epoch(len(task.new_indices), len(task.buffer_indices), batch_size) for task in built.tasks)


def predicted_minutes(recipe: Recipe) -> float | None:
    """Minutes of the device that a run takes when enough others share it; alone it takes about twice as long.

    None where the steps cannot be counted, or those of its network have not been timed.
    """
    steps = planned_steps(recipe)
    if steps is None or recipe["backbone"].get("name") != TIMED_NETWORK:
        return None
    return steps * SECONDS_PER_STEP / 60
