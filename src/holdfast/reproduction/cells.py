"""One cell of a table: a recipe, what is changed in it, and where its result lies."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from holdfast.recipes.load import read_recipe
from holdfast.recipes.schema import Recipe, check_recipe
from holdfast.reproduction.cost import planned_steps

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
