"""What changes between tasks: which classes come, which images are kept, which model is the reference."""

from collections.abc import Callable

from holdfast.scenarios.cl2r import cl2r, class_order
from holdfast.scenarios.slots import SlotRegistry
from holdfast.scenarios.task import Scenario, Task

SCENARIOS: dict[str, Callable[..., Scenario]] = {"cl2r": cl2r}

__all__ = ["SCENARIOS", "Scenario", "SlotRegistry", "Task", "cl2r", "class_order"]
