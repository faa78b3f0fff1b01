"""One cell of a table: a recipe, what is changed in it, and where its result lies.

What a run will cost, worked out from its recipe alone: no data is read.
"""

import functools
import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from holdfast.experiments.load import read_recipe
from holdfast.experiments.models import named_models
from holdfast.experiments.planned_steps import laid_out, steps_per_task
from holdfast.experiments.schema import Recipe, check_recipe

ORDERS = {"natural": None, "icarl": 1993}
"""Orders in which classes arrive: as they are numbered, or shuffled by ``scenario.order_seed``."""


@dataclass(frozen=True)
class Cell:
    """One run. Everything that tells it from its neighbours is in its name, and so in its file's.

    study: the folder of its result (paper, tuned, ablation, questions, validation). source: a built-in recipe.
    settings: what is changed in it beside tasks, seed and order; ``change`` names that in the file's name.
    stage: its place in the order of work; small ones first. set_name: whose settings it has, or changes one of.
    """

    study: str
    source: str
    method: str
    tasks: int
    order: str = "natural"
    seed: int = 0
    change: str = ""
    settings: tuple[str, ...] = ()
    stage: int = 0
    family: str = "cifar100-10"
    set_name: str = "paper"

    @property
    def name(self) -> str:
        change = f"-{self.change}" if self.change else ""
        return f"{self.method}-t{self.tasks}-{self.order}-s{self.seed}{change}"

    @property
    def path(self) -> Path:
        """Its file, below the folder of results."""
        return Path(self.family) / self.study / f"{self.name}.json"

    @property
    def overrides(self) -> list[str]:
        order = ORDERS[self.order]
        shuffled = [] if order is None else [f"scenario.order_seed={order}"]
        return [f"scenario.tasks={self.tasks}", f"seed={self.seed}", *shuffled, *self.settings]

    @property
    def command(self) -> str:
        """What anyone can type to repeat the run; where the data is (``--data``) is for them to add."""
        return shlex.join(
            ["holdfast", "run", self.source, *(word for text in self.overrides for word in ("--set", text))]
        )

    @cached_property
    def recipe(self) -> Recipe:
        return check_recipe(read_recipe(self.source, self.overrides))

    @cached_property
    def steps(self) -> int | None:
        return planned_steps(self.recipe)

    def is_of(self, recipe: Mapping[str, Any]) -> bool:
        """Whether a recorded recipe asks for this very run."""
        return same_run(check_recipe(recipe), self.recipe)


HOW_IT_TRAINS = ("executor", "checkpoint_minutes", "images")
"""Options of training that say how it is carried out. The executor changes what comes out by rounding, and each record
names the one that trained; gather and sync_bn are none of these: under several ranks they change what the loss sees."""


def same_run(one: Recipe, other: Recipe) -> bool:
    """Whether two recipes give the same numbers, but for rounding: all but the title, how steps are carried out and
    saved, and how many images are tested at a time."""
    return _what_counts(one) == _what_counts(other)


def _what_counts(recipe: Recipe) -> dict[str, Any]:
    def without(section: str, *keys: str) -> dict[str, Any]:
        return {key: value for key, value in recipe[section].items() if key not in keys}

    how = {"train": without("train", *HOW_IT_TRAINS), "evaluation": without("evaluation", "batch_size")}
    return {**recipe.tables, "title": "", **how}


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
