"""CL2R: a model is trained from scratch on some classes, then fine-tuned on more classes task after task."""

from collections.abc import Sequence

import numpy as np

from holdfast.core.errors import HoldfastError
from holdfast.core.real_arrays import real_array
from holdfast.train.scenarios.slots_of_runs import SlotRegistry
from holdfast.train.scenarios.task import Scenario, Task, buffer_indices


def cl2r(
    labels: np.ndarray,
    class_names: Sequence[str],
    *,
    num_slots: int | None = None,
    seed: int = 0,
    initial: int = 10,
    increment: int | None = None,
    tasks: int | None = None,
    order_seed: int | None = None,
    buffer_per_class: int = 20,
) -> Scenario:
    """Start with ``initial`` classes and add ``increment`` classes with each task until none is left.

    labels: labels of the training set, N.
    class_names: names of the classes; label i is class_names[i].
    num_slots: vertices of the simplex; None (default) for as many as there are classes. Classes take slots from the
        left in order of arrival.
    seed: of the replay buffer.
    initial: classes of the first task.
    increment: classes of each later task. Give it or ``tasks``.
    tasks: number of tasks; 7 tasks with 10 of 100 classes first have an increment of 15.
    order_seed: None (default) takes the classes in the order of their labels. A number shuffles them with
        ``numpy.random.RandomState(order_seed).shuffle``, as in the class-incremental literature (1993 is iCaRL's).
    buffer_per_class: images of each earlier class in the replay buffer.

    >>> import numpy as np
    >>> from holdfast import cl2r
    >>> labels = np.repeat(np.arange(6), 10)
    >>> scenario = cl2r(labels, list("abcdef"), initial=2, tasks=3, buffer_per_class=4)
    >>> [(task.number, len(task.new_indices), len(task.buffer_indices)) for task in scenario.tasks]
    [(1, 20, 0), (2, 20, 8), (3, 20, 16)]
    """
    num_classes = len(class_names)
    labels = checked_labels(labels, num_classes)
    ends = task_ends(num_classes, initial, increment, tasks)
    check_buffer(buffer_per_class)
    if num_slots is not None and num_slots < num_classes:
        raise HoldfastError(
            f"{num_slots} slots for {num_classes} classes; the method needs {num_classes} slots or more"
        )
    order = class_order(num_classes, order_seed)
    registry = SlotRegistry(num_slots or num_classes)
    built: list[Task] = []
    for end in ends:
        seen = order[:end]
        new = seen[built[-1].num_seen if built else 0 :]
        registry = registry.take_left([class_names[label] for label in new])
        built.append(
            Task(
                number=len(built) + 1,
                new_classes=new,
                seen_classes=seen,
                new_indices=np.flatnonzero(np.isin(labels, new)),
                buffer_indices=buffer_indices(labels, seen[: -len(new)], buffer_per_class, seed),
                registry=registry,
                slots=tuple(registry.slot(class_names[label]) for label in seen),
                start="previous" if built else "scratch",
                reference="previous" if built else "none",
            )
        )
    return Scenario("cl2r", tuple(built))


def class_order(num_classes: int, order_seed: int | None) -> tuple[int, ...]:
    """The labels in the order in which classes arrive.

    >>> class_order(100, 1993)[:5]
    (68, 56, 78, 8, 23)
    """
    order = np.arange(num_classes)
    if order_seed is not None:
        if not 0 <= order_seed < 2**32:
            raise HoldfastError(f"order_seed must be in 0..2^32-1, got {order_seed}")
        np.random.RandomState(order_seed).shuffle(order)
    return tuple(order.tolist())


def task_ends(num_classes: int, initial: int, increment: int | None, tasks: int | None) -> list[int]:
    """Number of classes seen at the end of each task.

    >>> task_ends(100, 10, None, 7)
    [10, 25, 40, 55, 70, 85, 100]
    """
    step = _increment(num_classes, initial, increment, tasks)
    return list(range(initial, num_classes + 1, step)) if step else [initial]


def checked_labels(labels: np.ndarray, num_classes: int) -> np.ndarray:
    """The labels as an array; an error if one has no class name, such as the last one of labels that count from 1."""
    labels = real_array(labels, "labels")
    if len(labels) and not 0 <= labels.min() <= labels.max() < num_classes:
        raise HoldfastError(
            f"labels are {labels.min()} to {labels.max()}, but there are {num_classes} class names; label i is the "
            "class of the i-th name, counted from 0"
        )
    return labels


def check_buffer(per_class: int) -> None:
    """An error if ``buffer_per_class`` is negative."""
    if per_class < 0:
        raise HoldfastError(f"buffer_per_class must be at least 0, got {per_class}")


def _increment(num_classes: int, initial: int, increment: int | None, tasks: int | None) -> int:
    if not 1 <= initial <= num_classes:
        raise HoldfastError(f"initial must be in 1..{num_classes} (the number of classes), got {initial}")
    rest = num_classes - initial
    if (increment is None) == (tasks is None):
        raise HoldfastError("give increment or tasks, and only one of the two")
    if tasks is not None:
        if tasks < 1 or (tasks == 1) != (rest == 0) or (tasks > 1 and rest % (tasks - 1)):
            raise HoldfastError(
                f"{num_classes} classes, {initial} of them first, cannot be split evenly over {tasks} tasks; "
                f"{rest} must be a multiple of tasks - 1"
            )
        return rest // (tasks - 1) if tasks > 1 else 0
    assert increment is not None
    if increment < 1 or rest % increment:
        raise HoldfastError(f"increment must divide the {rest} classes after the first task, got {increment}")
    return increment
