"""What a method is: the part of training that one paper differs in from another."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Literal, NamedTuple, Protocol

from torch import Tensor, nn


class TaskView(Protocol):
    """What a method may know of the task at hand."""

    @property
    def number(self) -> int:
        """1 for the first task."""

    @property
    def num_new(self) -> int:
        """Classes that this task brings."""

    @property
    def num_seen(self) -> int:
        """Classes seen so far, the new ones included."""

    @property
    def slots(self) -> Sequence[int]:
        """The simplex vertex of each seen class, in order of arrival."""


class Batch(NamedTuple):
    """Labels of one batch.

    labels: N; classes numbered in order of arrival, so that the classes seen so far are 0 .. num_seen - 1.
    replayed: how many of the N images, the first ones, come from the buffer.
    """

    labels: Tensor
    replayed: int


class Progress(NamedTuple):
    """How far the training of this task is; tensors of no dimension, so that a captured step reads them anew."""

    fraction: Tensor
    """Of all steps of the task, 0 at the first, below 1 at the last."""
    epoch: Tensor
    """0-based."""
    epochs: int


class Method(nn.Module, ABC):
    """One method: its loss, its trainable parts and what it keeps between tasks.

    The engine calls ``begin`` before each task, ``loss`` on every batch, and never asks which method it has. A method
    never calls ``backward``. What must survive a kill lives in parameters and buffers whose shapes ``begin`` restores.
    """

    old_features: ClassVar[Literal["none", "replayed", "all"]] = "none"
    """For which images of a batch the loss reads the previous model's features (``z_old``)."""

    reads_view: ClassVar[bool] = False
    """Whether the loss reads features of a second augmented view of each image (``z_view``)."""

    num_slots: int | None = None
    """How many prototypes are fixed in advance; None when the classifier grows."""

    @abstractmethod
    def feature_dim(self, backbone_dim: int) -> int:
        """The feature size this method needs of an encoder whose backbone gives ``backbone_dim``."""

    @abstractmethod
    def begin(self, task: TaskView, dim: int) -> None:
        """Prepare for a task with features of size ``dim``: grow what grows, keep what is kept."""

    @abstractmethod
    def loss(
        self,
        z: Tensor,
        batch: Batch,
        *,
        z_old: Tensor | None = None,
        z_view: Tensor | None = None,
        progress: Progress,
    ) -> dict[str, Tensor]:
        """Named terms, already weighted; their sum is what is minimised.

        z: N x d raw features. z_old: previous model's features of the images ``old_features`` asks for, None when
        there is no previous model. z_view: N x d, given when ``reads_view``.
        """
