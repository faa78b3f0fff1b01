"""A scenario whose first model is held to one that was adopted: all that is left of it are stored vectors."""

from collections.abc import Sequence
from dataclasses import replace

from holdfast.errors import HoldfastError
from holdfast.scenarios.iam_cl2r import ModelCard
from holdfast.scenarios.slots import SlotRegistry
from holdfast.scenarios.task import Scenario, Task


def held_to_adopted(scenario: Scenario, class_names: Sequence[str], card: ModelCard, name: str) -> Scenario:
    """The same tasks, the first one held to the adopted model ``name``; later ones to the model before, as they were.

    card: its size and, by the way of a projection, its slots. A class that it knows, by name, keeps its slot; the
    others take the free ones from the left by arrival.
    """
    first = scenario.tasks[0]
    if first.reference != "none":
        raise HoldfastError("an adopted model is the first one's reference; this scenario's first task has one already")
    tasks: list[Task] = []
    registry = card.registry
    for task in scenario.tasks:
        if registry is not None:
            registry = _with(registry, [class_names[label] for label in task.new_classes])
            slots = tuple(registry.slot(class_names[label]) for label in task.seen_classes)
            task = replace(task, registry=registry, slots=slots)
        tasks.append(task)
    return Scenario(scenario.name, (replace(tasks[0], reference="loaded", model=name), *tasks[1:]))


def _with(registry: SlotRegistry, names: Sequence[str]) -> SlotRegistry:
    return registry.take_left([name for name in names if name not in registry.owners])
