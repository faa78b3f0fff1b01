"""IAM-CL2R: a pre-trained model is fine-tuned task after task, and now and then replaced by a better one.

A scenario whose first model is held to one that was adopted: all that is left of it are stored vectors.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from holdfast.errors import HoldfastError, unknown_name
from holdfast.scenarios.cl2r import class_order, task_ends
from holdfast.scenarios.slots import SlotRegistry
from holdfast.scenarios.task import Scenario, Task, buffer_indices

Reference = Literal["loaded", "deployed"]


@dataclass(frozen=True)
class ModelCard:
    """What must be known of a model before it is brought in: its feature size, and its slots where it has some."""

    dim: int
    registry: SlotRegistry | None = None


def iam_cl2r(
    labels: np.ndarray,
    class_names: Sequence[str],
    *,
    models: Mapping[str, ModelCard],
    model: str,
    replace_at: tuple[int, ...] = (),
    replace_at_classes: tuple[int, ...] = (),
    replace_with: tuple[str, ...] = (),
    reference: Reference = "loaded",
    namespace: str = "",
    num_slots: int | None = None,
    seed: int = 0,
    initial: int = 10,
    increment: int | None = None,
    tasks: int | None = None,
    order_seed: int | None = None,
    buffer_per_class: int = 20,
) -> Scenario:
    """CL2R's tasks, started from the pre-trained ``model`` and restarted from others.

    model, replace_with: names of models, and ``models`` says what they are. A replacement takes place at the start of
    the tasks ``replace_at``, or of those that bring the classes seen to ``replace_at_classes`` (the paper's 40 and 70
    of 100). The new model is then fine-tuned like any other; the buffer stays.
    reference: what the loss compares with at a replacement. "loaded" is the new model as it came, as in the authors'
    code: nothing but the slots ties it to the old galleries. "deployed" is the model it replaces, or none where
    their features differ in size. In the first task it is the pre-trained model.
    namespace: put before the class names in the registry, so that a class of the same name in pre-training is another.
    num_slots: vertices of the simplex; None for methods without one. Slots go from the right by arrival; those of
    pre-training, on the left, come with the models.
    Refused: models whose slots do not agree with each other or leave no room, by the name of model and class.
    """
    ends = task_ends(len(class_names), initial, increment, tasks)
    if buffer_per_class < 0:
        raise HoldfastError(f"buffer_per_class must not be negative, got {buffer_per_class}")
    brought_in = {1: model, **_replacements(ends, replace_at, replace_at_classes, replace_with)}
    for wanted in brought_in.values():
        if wanted not in models:
            raise unknown_name("model", wanted, models)
    order = class_order(len(class_names), order_seed)
    owners = [f"{namespace}/{class_names[label]}" if namespace else class_names[label] for label in order]
    registry = SlotRegistry(num_slots or len(owners))
    if num_slots is not None:
        _refuse_overflow(num_slots, owners, [models[name] for name in brought_in.values()])
    built: list[Task] = []
    current = model
    for number, end in enumerate(ends, start=1):
        begin = ends[number - 2] if number > 1 else 0
        name = brought_in.get(number)
        if name is not None and num_slots is not None:
            registry = _joined(registry, models[name], name)
        held_to: Literal["none", "previous", "loaded"] = "previous"
        if name is not None:
            same_size = models[name].dim == models[current].dim
            held_to = "loaded" if number == 1 or reference == "loaded" else "previous" if same_size else "none"
            current = name
        registry = registry.take_right(owners[begin:end])
        new = order[begin:end]
        built.append(
            Task(
                number=number,
                new_classes=new,
                seen_classes=order[:end],
                new_indices=np.flatnonzero(np.isin(labels, new)),
                buffer_indices=buffer_indices(labels, order[:begin], buffer_per_class, seed),
                registry=registry,
                slots=tuple(registry.slot(owner) for owner in owners[:end]),
                start="previous" if name is None else "loaded",
                reference=held_to,
                model=name,
            )
        )
    return Scenario("iam_cl2r", tuple(built))


def _replacements(
    ends: Sequence[int], at: Sequence[int], at_classes: Sequence[int], models: Sequence[str]
) -> dict[int, str]:
    """Task number -> model."""
    if at and at_classes:
        raise HoldfastError("give scenario.replace_at (tasks) or scenario.replace_at_classes, and only one of the two")
    for count in at_classes:
        if count not in ends[1:]:
            raise HoldfastError(
                f"scenario.replace_at_classes: no later task brings the classes seen to {count}; "
                f"they come to {', '.join(map(str, ends[1:]))}"
            )
    numbers = [*at, *(ends.index(count) + 1 for count in at_classes)]
    if any(not 2 <= number <= len(ends) for number in numbers) or sorted(set(numbers)) != numbers:
        raise HoldfastError(f"scenario.replace_at must be rising task numbers in 2..{len(ends)}, got {numbers}")
    if len(numbers) != len(models):
        raise HoldfastError(f"{len(numbers)} replacements but {len(models)} models in scenario.replace_with")
    return dict(zip(numbers, models, strict=True))


def _refuse_overflow(num_slots: int, owners: Sequence[str], cards: Sequence[ModelCard]) -> None:
    before = {name for card in cards if card.registry for name in card.registry.owners}
    for name in owners:
        if name in before:
            raise HoldfastError(
                f"class {name!r} is a class of pre-training too; set scenario.namespace to tell them apart"
            )
    needed = len(before) + len(owners)
    if needed > num_slots:
        raise HoldfastError(
            f"no slot left for class {owners[max(0, num_slots - len(before))]!r}: {num_slots} slots, {len(before)} "
            f"classes of pre-training and {len(owners)} more; holdfast slots grow MODEL... --to {needed} for all "
            f"its models makes room, then set method.slots={needed}; or pre-train with so many"
        )


def _joined(registry: SlotRegistry, card: ModelCard, name: str) -> SlotRegistry:
    if card.registry is None:
        raise HoldfastError(f"model {name}: has no slot record; pre-train it with a simplex method")
    try:
        return registry.meet(card.registry)
    except HoldfastError as error:
        raise HoldfastError(f"model {name}: {error}") from error


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
