"""IAM-CL2R: a pre-trained model is fine-tuned task after task and replaced by other models at given tasks.

``with_adopted_reference`` changes any scenario so that its first model is held to an adopted model, of which only
stored vectors exist.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from holdfast.core.errors import HoldfastError, unknown_name
from holdfast.train.scenarios.cl2r import check_buffer, checked_labels, class_order, task_ends
from holdfast.train.scenarios.slots_of_runs import SlotRegistry
from holdfast.train.scenarios.task import Scenario, Task, buffer_indices

Reference = Literal["loaded", "deployed"]


@dataclass(frozen=True)
class ModelSpace:
    """The feature space of a model: its size, and its slots if it was trained with a simplex."""

    dim: int
    registry: SlotRegistry | None = None


def iam_cl2r(
    labels: np.ndarray,
    class_names: Sequence[str],
    *,
    models: Mapping[str, ModelSpace],
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
    """The tasks of CL2R, starting from a pre-trained model and continuing with other models after replacements.

    labels: labels of the training set, N.
    class_names: names of the classes; label i is class_names[i].
    models: feature space of each model, by name.
    model: name of the pre-trained first model.
    replace_at: numbers of the tasks that start with a replacement. Give it or ``replace_at_classes``.
    replace_at_classes: the same by the number of classes seen at the end of the task (the paper's 40 and 70 of 100).
    replace_with: name of the new model for each replacement. It is fine-tuned like the first; the buffer stays.
    reference: the model that the loss compares with at a replacement. "loaded" (default) is the new model before
        fine-tuning, as in the authors' code; only the slots connect it to the old galleries. "deployed" is the model
        that is replaced, or none if the feature sizes differ. In the first task it is the pre-trained model.
    namespace: prefix of the class names in the registry, to tell them from classes of pre-training of the same name.
    num_slots: vertices of the simplex; None (default) for methods without one. Classes take slots from the right in
        order of arrival. The slots of pre-training, on the left, are those of the models.
    seed, initial, increment, tasks, order_seed, buffer_per_class: as in ``cl2r``.

    An error if the slots of the models do not agree or leave too few free slots; it names the model and the class.

    >>> import numpy as np
    >>> from holdfast import SlotRegistry, iam_cl2r
    >>> from holdfast.train.scenarios import ModelSpace
    >>> registry = SlotRegistry(10).take_left(["pretrained class"])
    >>> models = {"first": ModelSpace(9, registry), "second": ModelSpace(9, registry)}
    >>> replaced = {"models": models, "model": "first", "replace_at": (2,), "replace_with": ("second",)}
    >>> labels = np.repeat(np.arange(4), 5)
    >>> scenario = iam_cl2r(labels, list("abcd"), **replaced, num_slots=10, initial=2, tasks=2)
    >>> [(task.number, task.model) for task in scenario.tasks]
    [(1, 'first'), (2, 'second')]
    """
    labels = checked_labels(labels, len(class_names))
    ends = task_ends(len(class_names), initial, increment, tasks)
    check_buffer(buffer_per_class)
    loaded_models = {1: model, **_replacements(ends, replace_at, replace_at_classes, replace_with)}
    for wanted in loaded_models.values():
        if wanted not in models:
            raise unknown_name("model", wanted, models)
    order = class_order(len(class_names), order_seed)
    owners = [f"{namespace}/{class_names[label]}" if namespace else class_names[label] for label in order]
    registry = SlotRegistry(num_slots or len(owners))
    if num_slots is not None:
        _check_free_slots(num_slots, owners, [models[name] for name in loaded_models.values()])
    built: list[Task] = []
    current = model
    for number, end in enumerate(ends, start=1):
        begin = ends[number - 2] if number > 1 else 0
        name = loaded_models.get(number)
        if name is not None and num_slots is not None:
            registry = _merge_slots(registry, models[name], name)
        task_reference: Literal["none", "previous", "loaded"] = "previous"
        if name is not None:
            same_size = models[name].dim == models[current].dim
            task_reference = "loaded" if number == 1 or reference == "loaded" else "previous" if same_size else "none"
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
                reference=task_reference,
                model=name,
            )
        )
    return Scenario("iam_cl2r", tuple(built))


def _replacements(
    ends: Sequence[int], at: Sequence[int], at_classes: Sequence[int], models: Sequence[str]
) -> dict[int, str]:
    """Name of the new model by the number of the task that starts with it."""
    if at and at_classes:
        raise HoldfastError("give replace_at (tasks) or replace_at_classes, and only one of the two")
    for count in at_classes:
        if count not in ends[1:]:
            raise HoldfastError(
                f"replace_at_classes: no later task ends with {count} classes seen; "
                f"tasks end with {', '.join(map(str, ends[1:]))}"
            )
    numbers = [*at, *(ends.index(count) + 1 for count in at_classes)]
    if any(not 2 <= number <= len(ends) for number in numbers) or sorted(set(numbers)) != numbers:
        raise HoldfastError(f"replace_at must be increasing task numbers in 2..{len(ends)}, got {numbers}")
    if len(numbers) != len(models):
        raise HoldfastError(f"{len(numbers)} replacements but {len(models)} models in replace_with")
    return dict(zip(numbers, models, strict=True))


def _check_free_slots(num_slots: int, owners: Sequence[str], spaces: Sequence[ModelSpace]) -> None:
    before = {name for space in spaces if space.registry for name in space.registry.owners}
    for name in owners:
        if name in before:
            raise HoldfastError(f"class {name!r} is a class of pre-training too; set namespace to tell them apart")
    needed = len(before) + len(owners)
    if needed > num_slots:
        raise HoldfastError(
            f"no slot left for class {owners[max(0, num_slots - len(before))]!r}: {num_slots} slots, {len(before)} "
            f"classes of pre-training and {len(owners)} more; grow all its models to {needed} slots (holdfast slots "
            f"grow) and set the method's slots to {needed}, or pre-train with {needed} slots"
        )


def _merge_slots(registry: SlotRegistry, space: ModelSpace, name: str) -> SlotRegistry:
    if space.registry is None:
        raise HoldfastError(f"model {name}: has no slot record; pre-train it with a simplex method")
    try:
        return registry.merge(space.registry)
    except HoldfastError as error:
        raise HoldfastError(f"model {name}: {error}") from error
