"""Running sums of the loss terms that stay on the device until somebody asks."""

import math

import torch
from torch import Tensor

from holdfast.errors import HoldfastError


class Tally:
    """Sums of each term over an epoch, and the first step whose loss was not finite. Reading it is one sync."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self.names: list[str] = []
        self.sums = torch.zeros(0, device=device, dtype=torch.float64)
        self.steps = 0
        self.first_bad_step = torch.full((), math.inf, device=device)

    def add(self, terms: dict[str, Tensor], step: int) -> None:
        values = torch.stack(list(terms.values())).double()
        if not self.names:
            self.names = list(terms)
            self.sums = torch.zeros_like(values)
        self.sums += values
        self.steps += 1
        bad = torch.where(values.isfinite().all(), math.inf, float(step))
        self.first_bad_step = torch.minimum(self.first_bad_step, bad)

    def means(self) -> dict[str, float]:
        return dict(zip(self.names, (self.sums / max(self.steps, 1)).tolist(), strict=True))

    def reset(self) -> None:
        self.sums = torch.zeros_like(self.sums)
        self.steps = 0

    def refuse_if_bad(self, task: int, steps_per_epoch: int) -> None:
        """Raise with the place where the loss stopped being a number."""
        step = float(self.first_bad_step)
        if math.isfinite(step):
            epoch, within = divmod(int(step), steps_per_epoch)
            raise HoldfastError(
                f"the loss became NaN or infinite in task {task}, epoch {epoch + 1}, step {within + 1}; "
                "the last good checkpoint is kept; try a lower train.lr"
            )

    def state(self) -> dict[str, Tensor]:
        return {"sums": self.sums, "steps": torch.tensor(self.steps)}

    def restore(self, names: list[str], state: dict[str, Tensor]) -> None:
        self.names = names
        self.sums = state["sums"].to(self._device)
        self.steps = int(state["steps"])
