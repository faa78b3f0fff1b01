"""Old classes through a model that was brought in: all that is known of them where nothing was learned in its space."""

import torch
from torch import Tensor

from holdfast.geometry import unit
from holdfast.losses import class_means
from holdfast.methods.interface import Survey, TaskView


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
