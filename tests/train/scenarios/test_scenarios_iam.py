"""IAM-CL2R: which model starts which task, what it is held to, and whose slots may meet."""

import numpy as np
import pytest

from holdfast.core.errors import HoldfastError
from holdfast.train.scenarios import ModelSpace, SlotRegistry, cl2r, iam_cl2r

LABELS = np.repeat(np.arange(100), 3)
NAMES = [f"class {i}" for i in range(100)]


def pretrained(count, num_slots=1024, dim=1023):
    return ModelSpace(dim, SlotRegistry(num_slots).take_left(f"pre/{i}" for i in range(count)))


CARDS = {"small": pretrained(100), "middle": pretrained(300), "large": pretrained(600)}


def scenario(cards=CARDS, **options):
    settings = {"model": "small", "num_slots": 1024, "namespace": "cifar100", "tasks": 7, "initial": 10, **options}
    return iam_cl2r(LABELS, NAMES, models=cards, **settings)


@pytest.mark.parametrize(("tasks", "at"), [(7, (3, 5)), (31, (11, 21))])
def test_the_papers_replacements(tasks, at):
    by_classes = scenario(tasks=tasks, replace_at_classes=(40, 70), replace_with=("middle", "large"))
    by_task = scenario(tasks=tasks, replace_at=at, replace_with=("middle", "large"))
    for built in (by_classes, by_task):
        assert {task.number: task.model for task in built.tasks if task.model} == {
            1: "small",
            **dict(zip(at, ("middle", "large"))),
        }
        for task in built.tasks:
            origin = "loaded" if task.number in (1, *at) else "previous"
            assert (task.start, task.reference) == (origin, origin)


def test_fine_tuning_takes_slots_from_the_right_and_keeps_them():
    built = scenario(replace_at=(3, 5), replace_with=("middle", "large"))
    for task in built.tasks:
        assert task.slots == tuple(range(1023, 1023 - task.num_seen, -1))
    owners = [len(task.registry.owners) for task in built.tasks]
    assert owners == [110, 125, 340, 355, 670, 685, 700]
    assert built.tasks[-1].registry.slot("pre/599") == 599


def test_growth_is_remembered_by_what_is_fine_tuned_from_it():
    grown = ModelSpace(1023, SlotRegistry(512).take_left(f"pre/{i}" for i in range(100)).grow(1024))
    built = scenario({**CARDS, "grown": grown}, model="grown", replace_at=(3,), replace_with=("middle",))
    assert {task.registry.grown for task in built.tasks} == {(512,)}
    brought_in = scenario({**CARDS, "grown": grown}, replace_at=(3,), replace_with=("grown",))
    assert [task.registry.grown for task in brought_in.tasks] == [(), (), *[(512,)] * 5]


def test_images_and_buffer_are_those_of_cl2r():
    """Replacing the model changes neither the images of a task nor the buffer, which carries over."""
    plain = cl2r(LABELS, NAMES, initial=10, tasks=7, buffer_per_class=2, seed=3)
    built = scenario(replace_at=(3,), replace_with=("middle",), buffer_per_class=2, seed=3)
    for one, other in zip(plain.tasks, built.tasks, strict=True):
        assert np.array_equal(one.new_indices, other.new_indices)
        assert np.array_equal(one.buffer_indices, other.buffer_indices)
    assert len(scenario(buffer_per_class=0).tasks[-1].buffer_indices) == 0


def test_deployed_reference_where_the_sizes_allow():
    cards = {"small": ModelSpace(512), "same": ModelSpace(512), "other": ModelSpace(384)}
    built = scenario(cards, num_slots=None, reference="deployed", replace_at=(3, 5), replace_with=("same", "other"))
    assert [task.reference for task in built.tasks] == ["loaded", "previous", "previous", "previous", "none"] + [
        "previous"
    ] * 2
    assert [task.start for task in built.tasks][2::2] == ["loaded", "loaded", "previous"]
    assert built.tasks[0].registry.num_slots == 100


@pytest.mark.parametrize(
    ("cards", "options", "reason"),
    [
        ({}, {"replace_at": (3,), "replace_with": ("huge",)}, "unknown model 'huge'"),
        ({}, {"replace_at": (3,)}, "1 replacements but 0 models"),
        ({}, {"replace_at": (1,), "replace_with": ("large",)}, "replace_at must be increasing task numbers in 2..7"),
        ({}, {"replace_at": (5, 3), "replace_with": ("large", "large")}, "increasing task numbers"),
        (
            {},
            {"replace_at_classes": (41,), "replace_with": ("large",)},
            "no later task ends with 41 classes seen; tasks end with 25, 40, 55",
        ),
        ({}, {"replace_at": (3,), "replace_at_classes": (40,), "replace_with": ("large",)}, "only one of the two"),
        ({}, {"buffer_per_class": -1}, "buffer_per_class must be at least 0"),
        ({"bad": ModelSpace(1023)}, {"replace_at": (3,), "replace_with": ("bad",)}, "model bad: has no slot record"),
        (
            {"bad": pretrained(10, 2048, 2047)},
            {"replace_at": (3,), "replace_with": ("bad",)},
            "model bad: one has 1024 slots, the other 2048; grow the one with 1024 to 2048",
        ),
        (
            {"bad": ModelSpace(1023, SlotRegistry(1024).take_left(f"pre/{i}" for i in range(99, -1, -1)))},
            {"replace_at": (3,), "replace_with": ("bad",)},
            "model bad: class 'pre/99' owns slot 99 in one model and slot 0 in the other",
        ),
        (
            {"bad": pretrained(950)},
            {"replace_at": (3,), "replace_with": ("bad",)},
            "no slot left for class 'cifar100/class 74': 1024 slots, 950 classes of pre-training and 100 more; "
            r"grow all its models to 1050 slots \(holdfast slots grow\) and set the method's slots to 1050",
        ),
        (
            {"bad": ModelSpace(1023, SlotRegistry(1024).take_left(["cifar100/class 3"]))},
            {"model": "bad"},
            "'cifar100/class 3' is a class of pre-training too; set namespace",
        ),
    ],
)
def test_what_is_refused(cards, options, reason):
    with pytest.raises(HoldfastError, match=reason):
        scenario({**CARDS, **cards}, **options)
