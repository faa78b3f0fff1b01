"""A linear classifier that gains rows as classes arrive."""

import math

import torch
from torch import Tensor, nn

from holdfast.losses import linear_logits


class GrowingClassifier(nn.Module):
    """Logits w_j . z without bias or scale; one row per class seen so far.

    ``grow`` copies the old rows and draws the new ones uniformly from +-1/sqrt(d), as ``nn.Linear`` would. It makes a
    new parameter, so it must come before the optimiser is made. ``anew`` draws all of them: after a replacement old
    rows belong to another network's features.
    """

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(0, 0))

    def grow(self, rows: int, dim: int, *, anew: bool = False) -> None:
        old = self.weight.detach()[: 0 if anew else None]
        bound = 1 / math.sqrt(dim)
        fresh = torch.empty(rows - len(old), dim, device=old.device).uniform_(-bound, bound)
        self.weight = nn.Parameter(fresh if len(old) == 0 else torch.cat([old, fresh]))

    def forward(self, z: Tensor) -> Tensor:
        return linear_logits(z, self.weight)
