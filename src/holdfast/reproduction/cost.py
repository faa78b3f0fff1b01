"""What a run will cost, worked out from its recipe alone: no data is read."""

import functools
import json

import numpy as np

from holdfast.recipes.models import named_models
from holdfast.recipes.planned_steps import laid_out, steps_per_task
from holdfast.recipes.schema import Recipe

TRAINING_SETS = {"cifar100": (100, 500), "tinyimagenet200": (200, 500)}
"""Classes and training images per class of the sets whose runs can be planned without them; CUB's differ in size."""

TIMED_SET = "cifar100"
SECONDS_PER_STEP = {"resnet32": 0.0008, "resnet18": 0.0015}
"""Share of one H200 that a network's step takes with 128 images of 32 x 32, each passed once.

ResNet-32: with 16 runs side by side (``results/bench/sweep-h200.json``); the runs in ``results/cifar100-10`` with 12 or
more ``runs_at_once`` had a median of 0.73 ms, all else that a run does counted in. ResNet-18: that median over the runs
in ``results/iam`` with 8 ``runs_at_once``; it is 0.9 ms for ER. More than the truth: a second sweep had a part of the
card.
"""

PASSES_WITH_VIEWS = 2
"""A second view of each image is a second pass through the network; the recorded runs took 1.7 to 2.5 times as long."""


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
    scenario_laid_out = laid_out(json.loads(scenario), labels, [str(label) for label in range(classes)])
    return sum(steps_per_task(scenario_laid_out, epochs=1, batch_size=batch_size))


def classes_seen(recipe: Recipe) -> list[int]:
    """At the end of each task, where every update brings as many classes."""
    first, tasks = recipe["scenario"]["initial"], recipe["scenario"]["tasks"]
    new = (TRAINING_SETS[recipe["data"]["train"]["name"]][0] - first) // (tasks - 1)
    return [first + new * update for update in range(tasks)]


def predicted_minutes(recipe: Recipe) -> float | None:
    """Minutes of the device that a run takes when enough others share it; alone it takes about twice as long.

    None where the steps cannot be counted, or those of one of its networks have not been timed.
    """
    steps, networks = planned_steps(recipe), _networks(recipe)
    if steps is None or recipe["data"]["train"]["name"] != TIMED_SET or not networks <= set(SECONDS_PER_STEP):
        return None
    return steps * _passes(recipe) * max(SECONDS_PER_STEP[name] for name in networks) / 60


def _passes(recipe: Recipe) -> int:
    """How often a batch passes the network in all tasks but the first, which may have a weight of its own."""
    return PASSES_WITH_VIEWS if recipe["method"].get("view_weight", 0) > 0 else 1


def _networks(recipe: Recipe) -> set[str]:
    """The one it builds, or those of the models it brings in, which are called SOURCE/NETWORK-CLASSES-HEAD."""
    if "model" not in recipe["scenario"]:
        return {str(recipe["backbone"].get("name"))}
    return {name.rpartition("/")[2].rsplit("-", 2)[0] for name in named_models(recipe["scenario"])}
