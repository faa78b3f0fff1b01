"""A linear classifier that gains rows as classes arrive.

Labels in order of arrival turned into vertices of the simplex.

Old classes through a model that was brought in: all that is known of them where nothing was learned in its space.
"""

import math

import torch
from torch import Tensor, nn

from holdfast.geometry import unit
from holdfast.losses import class_means, linear_logits
from holdfast.methods.interface import Survey, TaskView


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


def old_classes_through_loaded(task: TaskView, survey: Survey) -> tuple[Tensor, Tensor] | None:
    """The loaded model's features of the buffer's images, and their labels.

    None where no model was loaded, where there is no older class (the first task), and where no buffer is kept: what a
    method would take from them is then left out of its loss.
    """
    num_old = task.num_seen - task.num_new
    if task.reference != "loaded" or num_old == 0:
        return None
    found = survey.old()
    if found is None:
        return None
    z, labels = found
    of_old_class = labels < num_old
    return (z[of_old_class], labels[of_old_class]) if bool(of_old_class.any()) else None


def mean_rows(z: Tensor, labels: Tensor, num_classes: int, length: Tensor) -> Tensor:
    """A classifier of class means: the direction of each mean, and the length that rows of a classifier have.

    Means of raw features would be longer than any row that was trained, and the softmax over them a hard choice.
    """
    return unit(class_means(z, labels, num_classes)) * length


def nothing(like: Tensor) -> Tensor:
    """A kept tensor emptied: 0 x 0, or 0 for a vector."""
    return torch.empty([0] * like.ndim, dtype=like.dtype, device=like.device)
