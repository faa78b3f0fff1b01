"""Scenario, an immutable sequence of tasks; Task; and the choice of images for the replay buffer."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from holdfast.train.scenarios.slots_of_runs import SlotRegistry


@dataclass(frozen=True, eq=False)
class Task:
    """What one model is trained on, where its weights come from, and which model it is held to.

    number: 1 for the first task.
    new_classes: labels of the training set that this task adds.
    seen_classes: labels of the training set seen so far, in order of arrival, the new ones last.
    new_indices: rows of the training set that are new.
    buffer_indices: rows of the training set that are replayed, of earlier classes only.
    registry: the slots, including those of this task's classes.
    slots: the slot of each seen class, in order of arrival.
    start: where the weights come from. "loaded" is a model from outside, named ``model``.
    reference: the model that the loss compares with.
    model: name of the loaded model; None if there is none.
    """

    number: int
    new_classes: tuple[int, ...]
    seen_classes: tuple[int, ...]
    new_indices: np.ndarray
    buffer_indices: np.ndarray
    registry: SlotRegistry
    slots: tuple[int, ...]
    start: Literal["scratch", "previous", "loaded"]
    reference: Literal["none", "previous", "loaded"]
    model: str | None = None

    @property
    def num_new(self) -> int:
        return len(self.new_classes)

    @property
    def num_seen(self) -> int:
        return len(self.seen_classes)

    @property
    def owned_slots(self) -> tuple[int, ...]:
        return tuple(self.registry.owners.values())


@dataclass(frozen=True, eq=False)
class Scenario:
    """Tasks in order: a function of the data, the options and the seed."""

    name: str
    tasks: tuple[Task, ...]

    def __len__(self) -> int:
        return len(self.tasks)


def next_task(
    number: int,
    class_names: Sequence[str],
    num_known: int,
    registry: SlotRegistry,
    *,
    new_indices: np.ndarray,
    buffer_indices: np.ndarray,
) -> Task:
    """The task that follows task ``number - 1``; its labels count classes in order of arrival.

    number: 1 for the first task, which starts from scratch and has no reference.
    class_names: all classes seen, in order of arrival, the new ones last.
    num_known: number of classes that earlier tasks had.
    registry: the slots, with those of the new classes.
    new_indices: rows of the training set that are new.
    buffer_indices: rows of the training set that are replayed.
    """
    seen = tuple(range(len(class_names)))
    return Task(
        number=number,
        new_classes=seen[num_known:],
        seen_classes=seen,
        new_indices=new_indices,
        buffer_indices=buffer_indices,
        registry=registry,
        slots=tuple(registry.slot(name) for name in class_names),
        start="scratch" if number == 1 else "previous",
        reference="none" if number == 1 else "previous",
    )


def buffer_indices(labels: np.ndarray, classes: Iterable[int], per_class: int, seed: int) -> np.ndarray:
    """Random rows of each class for the replay buffer, class after class.

    labels: labels of the training set.
    classes: labels of the classes in the buffer.
    per_class: rows of each class; all rows of a class with fewer.
    seed: of the random generator.

    The choice for a class depends only on the seed and its label, so it is the same for every method and every number
    of tasks.
    """
    chosen = [np.empty(0, dtype=np.int64)]
    for label in classes:
        rows = np.flatnonzero(labels == label)
        generator = np.random.default_rng([seed, label])
        chosen.append(np.sort(generator.choice(rows, size=min(per_class, len(rows)), replace=False)))
    return np.concatenate(chosen)
