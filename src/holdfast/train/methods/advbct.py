"""AdvBCT-ER: boundary-aware backward-compatible training with an adversary (Pan et al., 2023) and a replay buffer."""

from typing import ClassVar, final

import torch
from torch import Tensor, nn

from holdfast.train.losses import (
    class_means,
    cross_entropy,
    discrimination,
    elastic_limit,
    elastic_radii,
    epoch_weight,
    largest_radii,
    reversal_coefficient,
    reversed_gradient,
)
from holdfast.train.methods.classifiers import FirstRows, GrowingClassifier, begin_at_means, emptied, old_class_features
from holdfast.train.methods.interface import Batch, Method, OldFeatures, Progress, Survey, TaskView
from holdfast.train.methods.option_checks import check_choice, check_not_negative, check_positive


@final
class AdvBCT(Method):
    """CE + an elastic limit around old class centres + a(e) x an adversary trained to tell new features from old.

    The adversary reads raw features. New features pass a gradient reversal with a coefficient that grows from 0 during
    the task. The weight a(e) falls with every epoch. The limit of a class is between its measured radius and tau, set
    by a learnable number. Adversary and limits are initialised for each task. If the reference is a loaded model,
    centres and radii are computed from the buffer through that model.

    tau: upper or lower end of the limits.
    limit: weight of the elastic limit.
    adversary: weight of the adversary, multiplied by a(e).
    hidden: width of the adversary's hidden layer.
    first_rows: how the classifier's rows of new classes begin: "random" (default), or at the "means" of their features.
        "means" suits networks with trained weights, whose features random rows would pull elsewhere.

    Differs from the original: no projection head with batch norm, because the paper compares penultimate features.
    Centres and radii are computed from the task's images and the buffer.
    """

    reconstruction: ClassVar[str] = (
        "the -ER adaptation: no projection head, centres from the buffer and the latest task"
    )
    old_features: OldFeatures = "all"

    centres: Tensor
    radii: Tensor

    def __init__(
        self,
        *,
        tau: float = 1.0,
        limit: float = 1.0,
        adversary: float = 1.0,
        hidden: int = 100,
        first_rows: FirstRows = "random",
    ) -> None:
        super().__init__()
        check_positive(hidden=hidden)
        check_not_negative(tau=tau, limit=limit, adversary=adversary)
        check_choice(FirstRows, first_rows=first_rows)
        self.first_rows = first_rows
        self.tau = tau
        self.limit = limit
        self.adversary = adversary
        self.hidden = hidden
        self.classifier = GrowingClassifier()
        self.discriminator = nn.Sequential()
        self.elasticity = nn.Parameter(torch.empty(0))
        self.register_buffer("centres", torch.empty(0, 0))
        self.register_buffer("radii", torch.empty(0))

    def begin(self, task: TaskView, dim: int) -> None:
        self.classifier.begin(task, dim)
        if task.reference != "previous":
            self.centres, self.radii = emptied(self.centres), emptied(self.radii)
        self.discriminator = nn.Sequential(
            nn.Linear(dim, self.hidden), nn.BatchNorm1d(self.hidden), nn.ReLU(inplace=True), nn.Linear(self.hidden, 2)
        )
        self.elasticity = nn.Parameter(torch.empty(task.num_seen - task.num_new).uniform_(-1, 1))

    def prepare(self, task: TaskView, survey: Survey) -> None:
        if self.first_rows == "means":
            begin_at_means(self.classifier, task, survey, keep_length=True)
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
        terms = {"ce": cross_entropy(self.classifier(z), batch.labels)}
        if z_old is not None:
            if len(self.centres):
                radii = elastic_radii(self.radii, self.elasticity, self.tau)
                terms["limit"] = self.limit * elastic_limit(z, batch.labels, self.centres, radii)
            # Two calls: batch norm must normalise new and old features separately.
            new_logits = self.discriminator(reversed_gradient(z, reversal_coefficient(progress.fraction)))
            old_logits = self.discriminator(z_old)
            weight = self.adversary * epoch_weight(progress.epoch, progress.epochs)
            terms["adversary"] = weight * discrimination(new_logits, old_logits)
        return terms

    def finish(self, task: TaskView, survey: Survey) -> None:
        self._keep(*survey.new(), task.num_seen)

    def _keep(self, z: Tensor, labels: Tensor, num_classes: int) -> None:
        self.centres = class_means(z, labels, num_classes)
        self.radii = largest_radii(z, labels, self.centres)
