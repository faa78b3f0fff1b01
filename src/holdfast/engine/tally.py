"""Running sums of the loss terms that stay on the device until somebody asks."""

import math

import torch
from torch import Tensor

from holdfast.errors import HoldfastError


class Tally:
    """Sums of each term over an epoch, and the first step whose loss was not finite. Reading it is one sync.

    Its tensors stay where they are and are changed in place, so that a captured step can add to them.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self.names: list[str] = []
        self.sums = torch.zeros(0, device=device, dtype=torch.float64)
        self.first_bad_step = torch.full((), math.inf, device=device, dtype=torch.float64)

    def add(self, terms: dict[str, Tensor], step: Tensor) -> None:
        """Add the terms of one step; ``step`` is its number in the task, a tensor of no dimension."""
        values = torch.stack(list(terms.values())).double()
        if not self.names:
            self.names = list(terms)
            self.sums = torch.zeros_like(values)
        self.sums += values
        bad = step.double().where(~values.isfinite().all(), math.inf)
        torch.minimum(self.first_bad_step, bad, out=self.first_bad_step)

    def means(self, steps: int) -> dict[str, float]:
        return dict(zip(self.names, (self.sums / steps).tolist(), strict=True))

    def reset(self) -> None:
        self.sums.zero_()

    def refuse_if_bad(self, task: int, steps_per_epoch: int) -> None:
        """Raise with the place where the loss stopped being a number."""
        step = float(self.first_bad_step)
        if math.isfinite(step):
            epoch, within = divmod(int(step), steps_per_epoch)
            raise HoldfastError(
                f"the loss became NaN or infinite in task {task}, epoch {epoch + 1}, step {within + 1}; "
                "the last good checkpoint is kept; try a lower train.lr"
            )

    def restore(self, names: list[str], sums: Tensor) -> None:
        self.names = names
        self.sums = sums.to(self._device)
