"""One run of the study: its recipe, the settings changed in it, its result file, and its predicted cost.

The cost is computed from the recipe alone; no data is read.
"""

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from holdfast.train.experiments.execute import steps_per_task
from holdfast.train.experiments.models import named_models
from holdfast.train.experiments.schema import Recipe, check_recipe
from papers.stationary.recipe_files import read_study_recipe, study_command
from papers.sweeps.plan import scenario_outline

ORDERS = {"natural": None, "icarl": 1993}
"""Class order -> ``scenario.order_seed``. None: classes arrive in the order of their numbers."""


@dataclass(frozen=True)
class StudyRun:
    """One run. Its name, and so the name of its result file, is different for every run of a study.

    study: folder of the result file (paper, tuned, ablation, questions, validation, ...).
    source: name of a recipe of the study, or of a built-in one.
    method: name of the method.
    tasks: number of tasks.
    order: class order, a key of ``ORDERS``.
    seed: training seed.
    change: short name of the changed settings, part of the file name.
    settings: settings changed besides tasks, seed and order, each as ``key=value``.
    stage: position in the running order; runs of a lower stage are run first.
    family: folder of the data set's results.
    set_name: set of settings the run belongs to or is derived from (paper, tuned, ...).
    measures: what else its record has, names of ``MEASURES`` in execute.py, such as "readings".
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
    measures: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        change = f"-{self.change}" if self.change else ""
        return f"{self.method}-t{self.tasks}-{self.order}-s{self.seed}{change}"

    @property
    def path(self) -> Path:
        """The result file, relative to the folder of results."""
        return Path(self.family) / self.study / f"{self.name}.json"

    @property
    def overrides(self) -> list[str]:
        order = ORDERS[self.order]
        shuffled = [] if order is None else [f"scenario.order_seed={order}"]
        return [f"scenario.tasks={self.tasks}", f"seed={self.seed}", *shuffled, *self.settings]

    @property
    def command(self) -> str:
        """The command that repeats the run, without ``--data``."""
        return study_command(self.source, self.overrides)

    @property
    def recipe(self) -> Recipe:
        return _read_recipe(self.source, tuple(self.overrides))

    @property
    def steps(self) -> int | None:
        return planned_steps(self.recipe)

    def is_of(self, recipe: Mapping[str, Any]) -> bool:
        """Whether a recorded recipe describes this run. One that names torch's kernels must have been run with them."""
        recorded, planned = check_recipe(recipe), self.recipe
        other_kernels = planned["train"]["executor"] == "graph" != recorded["train"]["executor"]
        return same_run(recorded, planned) and not other_kernels


@functools.cache
def _read_recipe(source: str, overrides: tuple[str, ...]) -> Recipe:
    """The checked recipe. It is read once, because many pages list the same runs."""
    return check_recipe(read_study_recipe(source, list(overrides)))


EXECUTION_OPTIONS = ("executor", "checkpoint_minutes", "images")
"""Training options that do not change the arithmetic, except for rounding by the executor, which each record names."""


def same_run(one: Recipe, other: Recipe) -> bool:
    """Whether two recipes give the same numbers up to rounding.

    Ignored: the title, ``EXECUTION_OPTIONS`` and the batch size of evaluation.
    """
    return _numeric_settings(one) == _numeric_settings(other)


def _numeric_settings(recipe: Recipe) -> dict[str, Any]:
    def without(section: str, *keys: str) -> dict[str, Any]:
        return {key: value for key, value in recipe[section].items() if key not in keys}

    changed = {"train": without("train", *EXECUTION_OPTIONS), "evaluation": without("evaluation", "batch_size")}
    return {**recipe.tables, "title": "", **changed}


TRAINING_SETS = {
    "cifar100": (500,) * 100,
    "tinyimagenet200": (500,) * 200,
    "cub180": tuple(29 if position in (106, 125, 134, 140) else 30 for position in range(180)),
}
"""Data set -> training images of each class."""

SECONDS_PER_STEP = {
    "cifar100": {"resnet32": 0.0008, "resnet18": 0.0015, "senet18": 0.0059, "regnety_400mf": 0.0059},
    "tinyimagenet200": {"resnet18": 0.0017},
    "cub180": {"resnet50": 0.0181},
}
"""Training set -> network -> seconds of one H200 per step, one pass of each image, while several runs share the device.

CIFAR-100: 128 images of 32 x 32. ResNet-32: measured with 16 parallel runs (``results/bench/sweep-h200.json``). The
runs in ``results/cifar100-10`` with ``runs_at_once`` of 12 or more had a median of 0.73 ms, everything else included.
ResNet-18: median of the runs in ``results/iam`` with ``runs_at_once`` of 8; 0.9 ms for ER. This is an upper bound:
another sweep used the same device. SENet-18 and RegNetY-400MF: the mean step of the runs in
``results/iam/architectures``, which use both networks and ResNet-18, a third of the tasks each, with ``runs_at_once``
of 3.

TinyImageNet: 256 images of 64 x 64; median of the runs in ``results/tinyimagenet200-20``, five at once.

CUB-200-2011: 64 images of 224 x 224, two at once; not whole runs, but steps of d-Simplex-HOC
(``results/bench/train_step_224px-h200.json``).
"""

PASSES_WITH_VIEWS = 2
"""A second view of each image is a second pass. Measured: recorded runs took 1.7 to 2.5 times as long."""


def planned_steps(recipe: Recipe) -> int | None:
    """Optimiser steps of the whole run; None if the size of the training set is not known."""
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
    """Steps per epoch, summed over all tasks. Classes have (almost) equal sizes, so the class order does not matter."""
    sizes = [min(images, per_class or images) for images in TRAINING_SETS[name]]
    labels = np.repeat(np.arange(len(sizes)), sizes)
    scenario_laid_out = scenario_outline(json.loads(scenario), labels, [str(label) for label in range(len(sizes))])
    return sum(steps_per_task(scenario_laid_out, epochs=1, batch_size=batch_size))


def classes_seen(recipe: Recipe) -> list[int]:
    """Number of classes seen at the end of each task; every update brings the same number."""
    first, tasks = recipe["scenario"]["initial"], recipe["scenario"]["tasks"]
    new = (len(TRAINING_SETS[recipe["data"]["train"]["name"]]) - first) // (tasks - 1)
    return [first + new * update for update in range(tasks)]


def predicted_minutes(recipe: Recipe) -> float | None:
    """Minutes of one H200 that a run takes when enough others share it; alone it takes about twice as long.

    None if its steps cannot be counted or one of its networks has not been timed.
    """
    steps, networks = planned_steps(recipe), _networks(recipe)
    timed = SECONDS_PER_STEP.get(recipe["data"]["train"]["name"], {})
    if steps is None or not networks <= set(timed):
        return None
    return steps * _passes(recipe) * max(timed[name] for name in networks) / 60


def _passes(recipe: Recipe) -> int:
    """Passes of a batch through the network, in all tasks except the first."""
    return PASSES_WITH_VIEWS if recipe["method"].get("view_weight", 0) > 0 else 1


def _networks(recipe: Recipe) -> set[str]:
    """The network a run builds, or those of its pre-trained models, named SOURCE/NETWORK-CLASSES-HEAD."""
    if "model" not in recipe["scenario"]:
        return {str(recipe["backbone"].get("name"))}
    return {name.rpartition("/")[2].rsplit("-", 2)[0] for name in named_models(recipe["scenario"])}
