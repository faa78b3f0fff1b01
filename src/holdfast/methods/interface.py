"""What a method is: the part of training that one paper differs in from another."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, Literal, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from holdfast.space_map import SpaceMap

OldFeatures = Literal["none", "replayed", "all"]


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
    def start(self) -> Literal["scratch", "previous", "loaded"]:
        """Where the weights come from: "loaded" is a model brought in from outside, the first one or a replacement."""

    @property
    def reference(self) -> Literal["none", "previous", "loaded"]:
        """The model that ``z_old`` comes from. What was kept of earlier tasks lives in the previous one's space."""

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


class Survey(Protocol):
    """Features of every image of the task and of the buffer; ``mirrored`` adds each one mirrored, where training flips.

    Raw, in eval mode and float32, with labels by arrival; computed when asked for, so nobody pays for what is not read.
    """

    def new(self, *, mirrored: bool = False) -> tuple[Tensor, Tensor]:
        """Features under the model in training: M x d, and labels M."""

    def old(self, *, mirrored: bool = False) -> tuple[Tensor, Tensor] | None:
        """The same images under the reference model, or None where there is none."""


class FeaturePhase(NamedTuple):
    """A second training that follows the task: on features, with both networks frozen, by Adam."""

    parameters: Sequence[nn.Parameter]
    loss: Callable[[Tensor, Tensor, Tensor], dict[str, Tensor]]
    """(z_old, z, labels) of a batch of the survey -> named, weighted terms."""
    epochs: int
    batch_size: int
    lr: float


class Method(nn.Module, ABC):
    """One method: its loss, its trainable parts and what it keeps between tasks.

    For each task the engine calls ``begin``, then ``prepare``, then ``loss`` on every batch, then trains the
    ``feature_phase`` if there is one, then calls ``finish``; it never asks which method it has. A method never calls
    ``backward``. What must survive a kill lives in parameters and buffers; ``restore`` brings it back.
    """

    reconstruction: ClassVar[str] = ""
    """What is inferred because no public source says it; empty for a method followed from its source."""

    ours: ClassVar[bool] = False
    """Whether it is this project's own, in no paper."""

    # What the loss reads may depend on the options, so an instance may decide it, at the latest in ``begin``.

    old_features: OldFeatures = "none"
    """For which images of a batch the loss reads the previous model's features (``z_old``)."""

    reads_view: bool = False
    """Whether the loss reads features of a second augmented view of each image (``z_view``)."""

    reads_kept: bool = False
    """Whether the loss reads the features that replayed images had under past models (``z_kept``)."""

    num_slots: int | None = None
    """How many prototypes are fixed in advance; None when the classifier grows."""

    def feature_dim(self, backbone_dim: int) -> int:
        """The feature size this method needs of an encoder whose backbone gives ``backbone_dim``: the same, mostly."""
        return backbone_dim

    @abstractmethod
    def begin(self, task: TaskView, dim: int) -> None:
        """Prepare for a task with features of size ``dim``: grow what grows, keep what is kept."""

    def prepare(self, task: TaskView, survey: Survey) -> None:
        """Look at the data before the first step, for instance through the previous model."""

    @abstractmethod
    def loss(
        self,
        z: Tensor,
        batch: Batch,
        *,
        z_old: Tensor | None = None,
        z_view: Tensor | None = None,
        z_kept: Tensor | None = None,
        progress: Progress,
    ) -> dict[str, Tensor]:
        """Named terms, already weighted; their sum is what is minimised.

        z: N x d raw features. z_old: previous model's features of the images ``old_features`` asks for, None when
        there is no previous model. z_view: N x d, given when ``reads_view``. z_kept: replayed x M x d, unit features
        of the replayed images, not augmented, under each of the M past models in order; zero under a model that had
        not learned the image's class; None where there is no past model or no buffer, or not ``reads_kept``.
        """

    def feature_phase(self) -> FeaturePhase | None:
        """What is still to be trained on features once the task's own training is done."""
        return None

    def finish(self, task: TaskView, survey: Survey) -> None:
        """Keep what later tasks need of this task's data, such as class centres."""

    def space_map(self) -> SpaceMap | None:
        """The map from the previous model's features to this one's; None where both live in one space."""
        return None

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Load a saved state whose tensors may have other shapes than this method's: what grows has grown since."""
        for name, tensor in state.items():
            owner, _, leaf = name.rpartition(".")
            module = self.get_submodule(owner)
            present = getattr(module, leaf)
            if present.shape != tensor.shape:
                fresh = torch.empty_like(tensor, device=present.device)
                setattr(module, leaf, nn.Parameter(fresh) if isinstance(present, nn.Parameter) else fresh)
        self.load_state_dict(dict(state))
