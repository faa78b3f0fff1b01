from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.errors import HoldfastError
from holdfast.train.scenarios import ModelSpace, SlotRegistry, cl2r, class_order, iam_cl2r
from holdfast.train.scenarios.task import buffer_indices


def scenario(num_classes=20, per_class=6, **options):
    labels = np.repeat(np.arange(num_classes), per_class)
    return labels, cl2r(labels, [f"class {i}" for i in range(num_classes)], **options)


@given(st.integers(1, 8), st.integers(1, 5), st.integers(0, 5), st.integers(0, 3), st.none() | st.integers(0, 99))
def test_tasks_partition_the_training_set(initial, increment, further, buffer, order_seed):
    labels, tasks = scenario(
        initial + increment * further,
        initial=initial,
        increment=increment,
        buffer_per_class=buffer,
        order_seed=order_seed,
    )
    seen: list[int] = []
    for task in tasks.tasks:
        assert task.num_new == (initial if task.number == 1 else increment)
        assert set(labels[task.new_indices]) == set(task.new_classes)
        assert len(task.new_indices) == 6 * task.num_new
        assert sorted(labels[task.buffer_indices]) == sorted(seen * min(buffer, 6))
        seen += task.new_classes
        assert task.seen_classes == tuple(seen)
    all_rows = np.concatenate([task.new_indices for task in tasks.tasks])
    assert sorted(all_rows) == list(range(len(labels)))


@pytest.mark.parametrize(("tasks", "increment"), [(2, 90), (7, 15), (16, 6), (31, 3)])
def test_the_papers_task_counts(tasks, increment):
    _, built = scenario(100, initial=10, tasks=tasks)
    assert len(built) == tasks
    assert [task.num_new for task in built.tasks] == [10] + [increment] * (tasks - 1)
    assert built.tasks[-1].num_seen == 100


def test_icarl_order():
    assert class_order(100, 1993)[:5] == (68, 56, 78, 8, 23)
    assert class_order(5, None) == (0, 1, 2, 3, 4)
    _, built = scenario(100, initial=10, tasks=7, order_seed=1993)
    assert built.tasks[0].new_classes[:5] == (68, 56, 78, 8, 23)


def test_first_task_starts_from_scratch_and_has_no_reference():
    _, built = scenario(initial=10, increment=5)
    assert [(task.start, task.reference) for task in built.tasks] == [
        ("scratch", "none"),
        ("previous", "previous"),
        ("previous", "previous"),
    ]


def test_slots_follow_arrival_and_stay():
    _, built = scenario(initial=10, increment=5, order_seed=3, num_slots=30)
    for task in built.tasks:
        assert task.slots == tuple(range(task.num_seen))
        assert task.registry.owners[f"class {task.seen_classes[0]}"] == 0
    assert built.tasks[-1].registry.num_slots == 30


def test_buffer_depends_on_seed_and_class_alone():
    labels, coarse = scenario(initial=10, increment=10, buffer_per_class=2, seed=5)
    _, fine = scenario(initial=10, increment=1, buffer_per_class=2, seed=5)
    _, other = scenario(initial=10, increment=10, buffer_per_class=2, seed=6)
    first_ten = coarse.tasks[1].buffer_indices
    assert np.array_equal(first_ten, fine.tasks[-1].buffer_indices[: len(first_ten)])
    assert not np.array_equal(first_ten, other.tasks[1].buffer_indices)
    assert len(np.unique(buffer_indices(labels, [3], 6, 0))) == 6
    assert len(buffer_indices(labels, [3], 100, 0)) == 6


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"initial": 0, "increment": 1}, "initial must be in 1..20"),
        ({"initial": 21, "increment": 1}, "initial must be in 1..20"),
        ({"initial": 10, "increment": 3}, "must divide"),
        ({"initial": 10, "tasks": 4}, "cannot be split evenly"),
        ({"initial": 10, "tasks": 1}, "cannot be split evenly"),
        ({"initial": 10, "tasks": 2, "increment": 10}, "only one of the two"),
        ({"initial": 10}, "only one of the two"),
        ({"initial": 10, "increment": 5, "num_slots": 18}, "18 slots for 20 classes; the method needs 20"),
        ({"initial": 10, "increment": 5, "buffer_per_class": -1}, "buffer_per_class must be at least 0"),
        ({"initial": 10, "increment": 5, "order_seed": -1}, "order_seed must be"),
    ],
)
def test_impossible_options(options, reason):
    with pytest.raises(HoldfastError, match=reason):
        scenario(**options)


@pytest.mark.parametrize(("shift", "found"), [(1, "1 to 9"), (-1, "-1 to 7")])
def test_labels_without_a_class_name(shift, found):
    labels, names = np.arange(9).repeat(2) + shift, list("abcdefghi")
    models = {"first": ModelSpace(9)}
    for build in (cl2r, partial(iam_cl2r, models=models, model="first")):
        with pytest.raises(HoldfastError, match=f"labels are {found}, but there are 9 class names"):
            build(labels, names, initial=3, tasks=3)


def test_labels_as_a_list():
    labels, expected = scenario(initial=10, tasks=3)
    names = [f"class {i}" for i in range(20)]
    found = cl2r(labels.tolist(), names, initial=10, tasks=3)
    for one, other in zip(found.tasks, expected.tasks, strict=True):
        assert np.array_equal(one.buffer_indices, other.buffer_indices)
    assert len(found.tasks[2].buffer_indices)


def test_a_single_task():
    _, built = scenario(initial=20, tasks=1)
    assert len(built) == 1


def test_registry_grows_from_both_sides_without_meeting():
    registry = SlotRegistry(6).take_left(["a", "b"]).take_right(["y", "z"]).take_left(["c"])
    assert dict(registry.owners) == {"a": 0, "b": 1, "y": 5, "z": 4, "c": 2}
    assert SlotRegistry.from_json(registry.to_json()) == registry


def test_registry_refuses_by_name():
    registry = SlotRegistry(2).take_left(["a"])
    with pytest.raises(HoldfastError, match="'a' already owns slot 0"):
        registry.take_right(["a"])
    with pytest.raises(HoldfastError, match=r"no slot left for class .d.: 2 slots, 4 classes"):
        registry.take_left(["b", "d", "e"])
    with pytest.raises(HoldfastError, match="'q' owns no slot"):
        registry.slot("q")
    with pytest.raises(HoldfastError, match="slot 1 has two owners: 'a' and 'b'"):
        SlotRegistry.from_json({"num_slots": 3, "owners": {"a": 1, "b": 1}})
    with pytest.raises(HoldfastError, match=r"outside 0\.\.2"):
        SlotRegistry.from_json({"num_slots": 3, "owners": {"a": 3}})
