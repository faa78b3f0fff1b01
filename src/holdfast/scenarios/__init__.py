"""What changes between tasks: which classes come, which images are kept, which model is the reference."""

from collections.abc import Callable

from holdfast.scenarios.cl2r import cl2r, class_order
from holdfast.scenarios.iam_cl2r import ModelCard, iam_cl2r
from holdfast.scenarios.slots import SlotRegistry
from holdfast.scenarios.task import Scenario, Task

SCENARIOS: dict[str, Callable[..., Scenario]] = {"cl2r": cl2r, "iam_cl2r": iam_cl2r}

__all__ = ["SCENARIOS", "ModelCard", "Scenario", "SlotRegistry", "Task", "cl2r", "class_order", "iam_cl2r"]
