"""``Method``: the interface between a training method and the training loop."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, Literal, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from holdfast.train.geometry.simplex import Layer
from holdfast.train.space_map import SpaceMap

OldFeatures = Literal["none", "replayed", "all"]


class TaskView(Protocol):
    """What a method may read of the current task.

    >>> import numpy as np
    >>> from holdfast import cl2r
    >>> task = cl2r(np.repeat(np.arange(4), 5), list("abcd"), initial=2, tasks=2, num_slots=9).tasks[1]
    >>> task.number, task.num_seen, list(task.slots)
    (2, 4, [0, 1, 2, 3])
    """

    @property
    def number(self) -> int:
        """1 for the first task."""

    @property
    def num_new(self) -> int:
        """Number of classes that this task adds."""

    @property
    def num_seen(self) -> int:
        """Number of classes seen so far, including the new ones."""

    @property
    def start(self) -> Literal["scratch", "previous", "loaded"]:
        """Where the weights come from. "loaded" is a model from outside: a pre-trained first model or a replacement."""

    @property
    def reference(self) -> Literal["none", "previous", "loaded"]:
        """The model that ``z_old`` comes from. State kept from earlier tasks belongs to the previous model's space."""

    @property
    def slots(self) -> Sequence[int]:
        """The simplex vertex of each seen class, in order of arrival."""

    @property
    def owned_slots(self) -> Sequence[int]:
        """Every vertex with an owner: those of the seen classes, and those of other models that share the space."""


class Batch(NamedTuple):
    """Labels of one batch.

    labels: N, classes numbered in order of arrival: 0 .. num_seen - 1.
    replayed: number of images from the buffer; they are the first of the N.

    >>> import torch
    >>> from holdfast.train.methods import Batch
    >>> batch = Batch(torch.tensor([0, 0, 1, 2]), replayed=2)
    >>> batch.labels[: batch.replayed].tolist()
    [0, 0]
    """

    labels: Tensor
    replayed: int


class Progress(NamedTuple):
    """How far the training of this task is.

    fraction: share of the task's steps that are done: 0 at the first step, below 1 at the last.
    epoch: number of the epoch, from 0.
    epochs: number of epochs of the task.

    ``fraction`` and ``epoch`` are tensors without dimensions, so that a captured CUDA graph reads their current values.

    >>> import torch
    >>> from holdfast.train.methods import Progress
    >>> progress = Progress(torch.tensor(0.5), torch.tensor(5), epochs=10)
    >>> float(1 - progress.fraction)  # a weight that falls during the task
    0.5
    """

    fraction: Tensor
    epoch: Tensor
    epochs: int


class Survey(Protocol):
    """Features of every image of the task and of the buffer, computed when one of the methods is called.

    Features are raw, in eval mode and float32. Labels are numbered in order of arrival. ``mirrored`` adds the mirrored
    version of each image if training mirrors images.
    """

    def new(self, *, mirrored: bool = False) -> tuple[Tensor, Tensor]:
        """Features under the model in training: M x d, and labels M."""

    def old(self, *, mirrored: bool = False) -> tuple[Tensor, Tensor] | None:
        """The same for the reference model; None if the task has none."""


class FeaturePhase(NamedTuple):
    """A second training after the task: on features, with both networks frozen, with Adam.

    parameters: what is trained.
    loss: (z_old, z, labels) of a batch of the survey -> named, weighted terms.
    epochs, batch_size, lr: options of this training.
    """

    parameters: Sequence[nn.Parameter]
    loss: Callable[[Tensor, Tensor, Tensor], dict[str, Tensor]]
    epochs: int
    batch_size: int
    lr: float


class Method(nn.Module, ABC):
    """A training method: its loss, its trainable parts and the state it keeps between tasks.

    For each task the training loop calls ``begin``, then ``prepare``, then ``loss`` on every batch, then trains the
    ``feature_phase`` if there is one, then calls ``finish``. A method never calls ``backward``. State that must survive
    a kill is kept in parameters and buffers; ``restore`` loads it.

    >>> import torch
    >>> from holdfast import Method
    >>> class Norms(Method):
    ...     def begin(self, task, dim):
    ...         pass  # parameters that depend on the number of classes are made here
    ...
    ...     def loss(self, z, batch, *, z_old=None, z_view=None, z_kept=None, progress):
    ...         return {"norm": z.square().sum(1).mean()}
    >>> terms = Norms().loss(torch.ones(2, 3), None, progress=None)
    >>> terms["norm"]
    tensor(3.)
    """

    reconstruction: ClassVar[str] = ""
    """Parts that are inferred because no public source describes them; empty if the method follows its source."""

    ours: ClassVar[bool] = False
    """Whether the method is this project's own and not from a paper."""

    # The inputs of the loss may depend on options, so an instance may set the next three, at the latest in ``begin``.

    old_features: OldFeatures = "none"
    """The images of a batch for which the loss reads the previous model's features (``z_old``)."""

    reads_view: bool = False
    """Whether the loss reads features of a second augmented view of each image (``z_view``)."""

    reads_kept: bool = False
    """Whether the loss reads the features of replayed images under past models (``z_kept``)."""

    num_slots: int | None = None
    """Number of prototypes that are fixed in advance; None if the classifier grows."""

    layer: Layer = "projection"
    """The layer between backbone and features, see ``Encoder``."""

    @property
    def turns(self) -> Sequence[tuple[str, tuple[int, ...]]]:
        """Digest and kept slots of each turn of the simplex, oldest first, as the slot registry records them."""
        return ()

    def feature_dim(self, backbone_dim: int) -> int:
        """The feature size that this method trains, for a backbone with features of size ``backbone_dim``."""
        return backbone_dim

    @abstractmethod
    def begin(self, task: TaskView, dim: int) -> None:
        """Start a task with features of size ``dim``, for example by adding classifier rows."""

    def prepare(self, task: TaskView, survey: Survey) -> None:
        """Read the data before the first step, for example the previous model's features of it."""

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
        """Named terms, already weighted; their sum is minimised.

        z: raw features, N x d.
        batch: labels, and the number of replayed images.
        z_old: the previous model's features of the images selected by ``old_features``; None without such a model.
        z_view: features of a second augmented view, N x d; None unless ``reads_view``.
        z_kept: unit features of the replayed images, not augmented, under each of the M past models in order,
            replayed x M x d; zero under a model that had not learned the image's class. None without a past model or
            buffer, and unless ``reads_kept``.
        progress: how far the training of the task is.
        """

    def feature_phase(self) -> FeaturePhase | None:
        """A training on features after the task's own training; None if there is none."""
        return None

    def finish(self, task: TaskView, survey: Survey) -> None:
        """Keep what later tasks need from this task's data, for example class centres."""

    def space_map(self) -> SpaceMap | None:
        """The map from the previous model's features to this model's; None if both share one space."""
        return None

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Load a saved state. Tensors may have other shapes than those of this method, because classifiers grow."""
        for name, tensor in state.items():
            owner, _, leaf = name.rpartition(".")
            module = self.get_submodule(owner)
            present = getattr(module, leaf)
            if present.shape != tensor.shape:
                fresh = torch.empty_like(tensor, device=present.device)
                setattr(module, leaf, nn.Parameter(fresh) if isinstance(present, nn.Parameter) else fresh)
        self.load_state_dict(dict(state))
