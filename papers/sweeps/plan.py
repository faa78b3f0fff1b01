"""Plan the runs of a sweep: names, checked recipes, commands, and the number of optimiser steps before they start."""

import itertools
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from holdfast.core.errors import HoldfastError
from holdfast.train.experiments.load import family, find_recipe, read_recipe
from holdfast.train.experiments.schema import Recipe, check_recipe
from holdfast.train.methods import METHODS
from holdfast.train.scenarios import ModelSpace, Scenario, build_scenario


@dataclass(frozen=True)
class PlannedRun:
    """One run of a sweep.

    name: the name of its folder.
    recipe: the checked recipe.
    command: the ``holdfast run`` command that repeats this run alone.
    """

    name: str
    recipe: Recipe
    command: str


def plan(
    sources: Sequence[str],
    *,
    methods: Sequence[str] = (),
    tasks: Sequence[int] = (),
    seeds: Sequence[int] = (),
    settings: Sequence[str] = (),
) -> list[PlannedRun]:
    """Every combination of recipes, methods, numbers of tasks and seeds; all are checked before any of them runs.

    sources: recipe files or names of built-in recipes.
    methods, tasks, seeds: values to combine; an empty list keeps the value of the recipe.
    settings: changes to every recipe, such as "train.epochs=10".
    """
    for option, key, values in (
        ("methods", "method.name", methods),
        ("tasks", "scenario.tasks", tasks),
        ("seeds", "seed", seeds),
    ):
        if values and any(setting.partition("=")[0].strip() == key for setting in settings):
            raise HoldfastError(f"{option} and the setting {key} name the same thing; give one of them")
    planned: dict[str, PlannedRun] = {}
    axes: tuple[Sequence[Any], ...] = (sources, methods or [None], tasks or [None], seeds or [None])
    for source, method, count, seed in itertools.product(*axes):
        own = [f"method.name={method}"] if method else []
        own += [f"scenario.tasks={count}"] if count is not None else []
        own += [f"seed={seed}"] if seed is not None else []
        changes = [*own, *settings]
        recipe = check_recipe(read_recipe(source, changes))
        name = f"{family(find_recipe(source), METHODS)}-{recipe.short_name}"
        if name in planned:
            raise HoldfastError(f"{source}: two runs of this sweep would be called {name}; leave one of them out")
        planned[name] = PlannedRun(name, recipe, run_command(source, changes))
    return list(planned.values())


def scenario_outline(section: Mapping[str, Any], labels: np.ndarray, class_names: Sequence[str]) -> Scenario:
    """A recipe's scenario with the right task sizes, for counting steps. Seed, slots and loaded models are left out."""
    options = {key: value for key, value in section.items() if value is not None}
    if "model" in options:
        options["models"] = {name: ModelSpace(1) for name in (options["model"], *options["replace_with"])}
    return build_scenario(options.pop("name"), labels, class_names, **options)


def run_command(source: str, overrides: Sequence[str] = ()) -> str:
    """The ``holdfast run`` command for a recipe, quoted for a shell; arguments as for ``read_recipe``."""
    return shlex.join(["holdfast", "run", source, *(word for text in overrides for word in ("--set", text))])
