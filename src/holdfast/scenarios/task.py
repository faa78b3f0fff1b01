"""A scenario: an immutable sequence of tasks.

The replay buffer: a few images of every class, chosen once and for ever.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from holdfast.scenarios.slots import SlotRegistry


@dataclass(frozen=True, eq=False)
class Task:
    """What one model is trained on and where it starts.

    number: 1 for the first.
    new_classes, seen_classes: labels of the training set; seen in order of arrival, the new ones last.
    new_indices, buffer_indices: rows of the training set; the buffer holds images of earlier classes only.
    registry: who owns which slot once this task's classes have theirs.
    slots: the slot of each seen class, in order of arrival.
    start: where the weights come from. reference: the model that the loss compares with. "loaded" is a model brought in
    from outside, called by the name ``model``.
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


@dataclass(frozen=True, eq=False)
class Scenario:
    """Tasks in order: a pure function of the data, the options and the seed."""

    name: str
    tasks: tuple[Task, ...]

    def __len__(self) -> int:
        return len(self.tasks)


def buffer_indices(labels: np.ndarray, classes: Iterable[int], per_class: int, seed: int) -> np.ndarray:
    """``per_class`` random rows of each class (all of them where there are fewer), class after class.

    A class's choice depends on the seed and the class alone: it is the same for every method and every number of
    tasks, and it never changes once made.
    """
    chosen = [np.empty(0, dtype=np.int64)]
    for label in classes:
        rows = np.flatnonzero(labels == label)
        generator = np.random.default_rng([seed, label])
        chosen.append(np.sort(generator.choice(rows, size=min(per_class, len(rows)), replace=False)))
    return np.concatenate(chosen)
