"""A first task held to an adopted model: which reference, which slots."""

import numpy as np
import pytest

from holdfast.core.errors import HoldfastError
from holdfast.train.scenarios import ModelSpace, SlotRegistry, cl2r
from holdfast.train.scenarios.iam_cl2r import with_adopted_reference

NAMES = list("abcdef")
LABELS = np.repeat(np.arange(6), 3)


def tasks(num_slots=None):
    return cl2r(LABELS, NAMES, num_slots=num_slots, initial=2, tasks=3, buffer_per_class=1)


def test_only_the_first_task_is_held_to_it():
    plain, held = tasks(), with_adopted_reference(tasks(), NAMES, ModelSpace(8), "v0")
    assert [(task.start, task.reference, task.model) for task in held.tasks] == [
        ("scratch", "loaded", "v0"),
        ("previous", "previous", None),
        ("previous", "previous", None),
    ]
    for before, after in zip(plain.tasks, held.tasks, strict=True):
        assert (before.slots, before.new_classes) == (after.slots, after.new_classes)
        assert np.array_equal(before.buffer_indices, after.buffer_indices)


def test_known_classes_keep_their_slots_and_others_take_free_ones():
    registry = SlotRegistry(9).take_left(["x", "d", "a", "y"])
    held = with_adopted_reference(tasks(9), NAMES, ModelSpace(8, registry), "v0")
    assert held.tasks[-1].slots == (2, 4, 5, 1, 6, 7)
    assert held.tasks[0].slots == (2, 4)
    assert dict(held.tasks[-1].registry.owners)["y"] == 3  # a class that is not trained keeps its place


def test_refused():
    with pytest.raises(HoldfastError, match="no slot left for class"):
        with_adopted_reference(tasks(6), NAMES, ModelSpace(5, SlotRegistry(6).take_left("xyz")), "v0")
    twice = with_adopted_reference(tasks(), NAMES, ModelSpace(8), "v0")
    with pytest.raises(HoldfastError, match="this scenario has one already"):
        with_adopted_reference(twice, NAMES, ModelSpace(8), "v1")
