"""Labels in order of arrival turned into vertices of the simplex."""

import torch
from torch import Tensor, nn


class SlotLabels(nn.Module):
    """The vertex of each class seen so far, kept where the labels are."""

    slots: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("slots", torch.empty(0, dtype=torch.long))

    def assign(self, slots: list[int]) -> None:
        self.slots = torch.tensor(slots, dtype=torch.long, device=self.slots.device)

    def forward(self, labels: Tensor) -> Tensor:
        return self.slots[labels]
