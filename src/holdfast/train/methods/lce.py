"""LCE-ER: learning compatible embeddings (Meng et al., 2021) with a replay buffer."""

from typing import ClassVar, final

import torch
from torch import Tensor

from holdfast.core.errors import HoldfastError
from holdfast.train.geometry import unit
from holdfast.train.losses import (
    align_both_ways,
    align_rows,
    boundary_hinge,
    class_means,
    cross_entropy,
    least_cosines,
    linear_logits,
    margin_cosine_logits,
)
from holdfast.train.methods.classifiers import (
    FirstRows,
    GrowingClassifier,
    Softmax,
    begin_at_means,
    emptied,
    old_class_features,
)
from holdfast.train.methods.interface import Batch, Method, Progress, Survey, TaskView
from holdfast.train.methods.option_checks import check_choice, check_not_negative, check_positive
from holdfast.train.space_map import SpaceMap

BLOCKS, HIDDEN = 4, 16
"""Residual blocks of a transformation, and the width of their bottlenecks, as in the released code."""


@final
class LCE(Method):
    """Cosine softmax + align x (rows to old centres) + bound x (features inside the old boundary of their class).

    Centres are the unit means of the previous model's unit features. The boundary is the smallest cosine of a class's
    features with its centre. Both are computed after each task from its images and the buffer, and used in the next
    task. If the reference is a loaded model, they are computed before the task from the buffer through that model.

    softmax: "cosine" (default), or "linear" for inner products of raw features and rows.
    scale: factor of the cosines in the softmax.
    margin: additive angle of the true class, in radians.
    align: weight of the distance between rows and old centres.
    bound: weight of the boundary term.
    transformations: whether to train two maps with the network, from the old model's space to the new one's and back;
        default: no. The rows are then aligned with the forward-mapped centres and the backward-mapped rows with the
        centres, and the boundary holds for backward-mapped features. Old galleries are searched after each stored
        feature has passed the forward maps of all later models. Needs at least two old classes. If the reference is a
        loaded model, there are no maps, because they would start from that model and not from the one that embedded the
        galleries.
    first_rows: how the classifier's rows of new classes begin: "random" (default), or at the "means" of their features.
        "means" suits networks with trained weights, whose features random rows would pull elsewhere.

    Differs from the original: by default the identity replaces its learned transformations. The released code never
    trains them; here they are new in each task, begin as the identity and are trained by the optimiser of the network.
    Features are normalised in the boundary term, before and after the map; the released code does not normalise them.
    The margin is 0 instead of 0.1, which lowers accuracy with few classes per task.
    """

    reconstruction: ClassVar[str] = "the -ER adaptation: identity map, centres from the buffer and the latest task"

    centres: Tensor
    bounds: Tensor

    def __init__(
        self,
        *,
        softmax: Softmax = "cosine",
        scale: float = 16.0,
        margin: float = 0.0,
        align: float = 100.0,
        bound: float = 1.0,
        transformations: bool = False,
        first_rows: FirstRows = "random",
    ) -> None:
        super().__init__()
        check_choice(Softmax, softmax=softmax)
        check_positive(scale=scale)
        check_not_negative(margin=margin, align=align, bound=bound)
        check_choice(FirstRows, first_rows=first_rows)
        self.first_rows = first_rows
        self.softmax = softmax
        self.scale = scale
        self.margin = margin
        self.align = align
        self.bound = bound
        self.transformations = transformations
        self.forward_map: SpaceMap | None = None
        self.backward_map: SpaceMap | None = None
        self.classifier = GrowingClassifier()
        self.register_buffer("centres", torch.empty(0, 0))
        self.register_buffer("bounds", torch.empty(0))

    def begin(self, task: TaskView, dim: int) -> None:
        self.classifier.begin(task, dim)
        if task.reference != "previous":
            self.centres, self.bounds = emptied(self.centres), emptied(self.bounds)
        self.forward_map = self.backward_map = None
        if self.transformations and task.reference == "previous":
            self.forward_map = SpaceMap(dim, dim, HIDDEN, blocks=BLOCKS)
            self.backward_map = SpaceMap(dim, dim, HIDDEN, blocks=BLOCKS)

    def prepare(self, task: TaskView, survey: Survey) -> None:
        if self.first_rows == "means":
            begin_at_means(self.classifier, task, survey, keep_length=True)
        if self.forward_map is not None and task.num_seen - task.num_new < 2:
            raise HoldfastError(
                "transformations need at least two old classes, because their batch norm is over class centres; "
                "set transformations to false"
            )
        known = old_class_features(task, survey)
        if known is not None:
            self._keep(*known, task.num_seen - task.num_new)

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
        rows = self.classifier.weight
        if self.softmax == "linear":
            logits = linear_logits(z, rows)
        else:
            logits = margin_cosine_logits(z, rows, batch.labels, scale=self.scale, margin=self.margin)
        terms = {"ce": cross_entropy(logits, batch.labels)}
        if len(self.centres):
            old_rows = rows[: len(self.centres)]
            if self.forward_map is None or self.backward_map is None:
                align, old_z = align_rows(old_rows, self.centres), z
            else:
                # Two calls of the backward map: batch norm must normalise rows and features separately.
                mapped_rows, mapped_centres = self.backward_map(old_rows), self.forward_map(self.centres)
                align = align_both_ways(old_rows, self.centres, mapped_rows, mapped_centres)
                old_z = self.backward_map(z)
            terms["align"] = self.align * align
            terms["bound"] = self.bound * boundary_hinge(old_z, batch.labels, self.centres, self.bounds)
        return terms

    def finish(self, task: TaskView, survey: Survey) -> None:
        self._keep(*survey.new(), task.num_seen)
        if self.forward_map is not None:
            self.forward_map.eval()  # from now on it is applied, not trained

    def space_map(self) -> SpaceMap | None:
        return self.forward_map

    def _keep(self, z: Tensor, labels: Tensor, num_classes: int) -> None:
        self.centres = unit(class_means(z, labels, num_classes))
        self.bounds = least_cosines(z, labels, self.centres)
