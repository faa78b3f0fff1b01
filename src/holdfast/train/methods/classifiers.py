"""Parts that several methods share: a growing classifier, labels as simplex vertices, statistics of old classes."""

import math
from typing import Literal

import torch
from torch import Tensor, nn

from holdfast.train.geometry import unit
from holdfast.train.losses import class_means, linear_logits
from holdfast.train.methods.interface import Survey, TaskView

Softmax = Literal["cosine", "linear"]
"""What a classifier's logits are: cosines with its rows, times a scale, or inner products."""
FirstRows = Literal["random", "means"]
"""How the rows of new classes begin: drawn at random, or in the directions of the classes' means."""


class GrowingClassifier(nn.Module):
    """Linear classifier without bias or scale: logits w_j . z, with one row w_j per class seen so far.

    >>> import torch
    >>> from holdfast.train.methods.classifiers import GrowingClassifier
    >>> classifier = GrowingClassifier()
    >>> classifier.grow(3, 8)
    >>> classifier.grow(5, 8)  # two more classes; the rows of the first three stay
    >>> classifier(torch.zeros(2, 8)).shape
    torch.Size([2, 5])
    """

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(0, 0))

    def grow(self, rows: int, dim: int, *, reset: bool = False) -> None:
        """Copy the old rows and draw new ones uniformly from +-1/sqrt(d), as ``nn.Linear`` does.

        rows: number of classes seen so far.
        dim: feature size d.
        reset: draw all rows. After a replacement the old rows belong to the features of another network.

        This creates a new parameter, so call it before the optimiser is created.
        """
        old = self.weight.detach()[: 0 if reset else None]
        bound = 1 / math.sqrt(dim)
        fresh = torch.empty(rows - len(old), dim, device=old.device).uniform_(-bound, bound)
        self.weight = nn.Parameter(fresh if len(old) == 0 else torch.cat([old, fresh]))

    def begin(self, task: TaskView, dim: int) -> None:
        """Grow to all classes of ``task``; draw all rows if the task starts from a loaded model."""
        self.grow(task.num_seen, dim, reset=task.start == "loaded")

    def rows_of_previous(self, task: TaskView) -> Tensor:
        """A copy of the rows, to be made before ``begin``; empty unless the task's old model is the previous one."""
        rows = self.weight.detach()
        return rows.clone() if task.reference == "previous" else emptied(rows)

    def rows_at_means(self, z: Tensor, labels: Tensor, num_classes: int) -> Tensor:
        """Rows in the directions of the class means, as long as the classifier's rows are on average.

        Raw means are longer than trained rows, and the softmax over their logits would be close to one-hot.
        """
        return class_mean_rows(z, labels, num_classes, self.weight.detach().norm(dim=1).mean())

    def forward(self, z: Tensor) -> Tensor:
        return linear_logits(z, self.weight)


def begin_at_means(classifier: GrowingClassifier, task: TaskView, survey: Survey, *, keep_length: bool = False) -> None:
    """Set the rows of new classes to the directions of their class means; of all classes after a replacement.

    keep_length: let rows be as long as those that were drawn are on average, for logits that depend on it. Default: 1.

    The first steps then do not pull features to random directions. A class without samples keeps its row.
    """
    first = 0 if task.start == "loaded" else task.num_seen - task.num_new
    drawn = classifier.weight.detach()[first:]  # shares its memory with the parameter
    means = unit(class_means(*survey.new(), task.num_seen))[first:]
    if keep_length and len(drawn):
        means = means * drawn.norm(dim=1).mean()
    drawn.copy_(torch.where(means.any(1, keepdim=True), means, drawn))


class SlotLabels(nn.Module):
    """Maps labels, in order of arrival, to vertices of the simplex."""

    slots: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("slots", torch.empty(0, dtype=torch.long))

    def assign(self, slots: list[int]) -> None:
        self.slots = torch.tensor(slots, dtype=torch.long, device=self.slots.device)

    def forward(self, labels: Tensor) -> Tensor:
        return self.slots[labels]


def old_class_features(task: TaskView, survey: Survey) -> tuple[Tensor, Tensor] | None:
    """The loaded model's features of the task's images of old classes, most of them the buffer's, and their labels.

    They are all that is known of old classes in the space of a model that was loaded. None if no model was loaded,
    in the first task, and without a buffer. A method then leaves out the terms that need these features.
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


def class_mean_rows(z: Tensor, labels: Tensor, num_classes: int, length: Tensor) -> Tensor:
    """Classifier rows in the directions of the class means, all of the same ``length``."""
    return unit(class_means(z, labels, num_classes)) * length


def emptied(tensor: Tensor) -> Tensor:
    """An empty tensor with the same number of dimensions, dtype and device."""
    return torch.empty([0] * tensor.ndim, dtype=tensor.dtype, device=tensor.device)
