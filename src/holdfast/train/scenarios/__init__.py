"""Scenarios: which classes each task adds, which images are replayed, and which model is the reference."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from holdfast.core.errors import HoldfastError, unknown_name
from holdfast.train.scenarios.cl2r import cl2r, class_order
from holdfast.train.scenarios.iam_cl2r import ModelSpace, iam_cl2r
from holdfast.train.scenarios.slots_of_runs import SimplexTurn, SlotRegistry
from holdfast.train.scenarios.task import Scenario, Task, next_task

SCENARIOS: dict[str, Callable[..., Scenario]] = {"cl2r": cl2r, "iam_cl2r": iam_cl2r}


def build_scenario(name: str, labels: np.ndarray, class_names: Sequence[str], **options: Any) -> Scenario:
    """The scenario ``name`` of ``SCENARIOS`` with its options; errors name the scenario."""
    if name not in SCENARIOS:
        raise unknown_name("scenario", name, SCENARIOS)
    try:
        return SCENARIOS[name](labels, class_names, **options)
    except HoldfastError as error:
        raise HoldfastError(f"scenario {name}: {error}") from error


__all__ = [
    "SCENARIOS",
    "ModelSpace",
    "Scenario",
    "SimplexTurn",
    "SlotRegistry",
    "Task",
    "build_scenario",
    "cl2r",
    "class_order",
    "iam_cl2r",
    "next_task",
]
