"""BCT-ER: backward-compatible training (Shen et al., 2020) with a replay buffer."""

from typing import ClassVar, final

import torch
from torch import Tensor

from holdfast.core.errors import HoldfastError
from holdfast.train.losses import cross_entropy, linear_logits, old_class_cross_entropy
from holdfast.train.methods.classifiers import (
    FirstRows,
    GrowingClassifier,
    begin_at_means,
    class_mean_rows,
    old_class_features,
)
from holdfast.train.methods.interface import Batch, Method, Progress, Survey, TaskView
from holdfast.train.methods.option_checks import check_choice, check_not_negative


@final
class BCT(Method):
    """CE over the classes seen + weight x CE of new features under the previous model's frozen classifier.

    The second term is over the images of classes that the previous classifier has a row for: the replayed half. If the
    reference is a loaded model, which has no classifier, the rows are its mean features of the buffer's classes.

    weight: weight of the second term.
    synthesise: add rows for the new classes to the frozen classifier, the previous model's mean feature of each class.
    first_rows: how the classifier's rows of new classes begin: "random" (default), or at the "means" of their features.
        "means" suits networks with trained weights, whose features random rows would pull elsewhere.

    Differs from the original, which trains a new network from scratch on all data. Here the network is fine-tuned and
    the buffer replaces the old data.
    """

    reconstruction: ClassVar[str] = "the -ER adaptation: fine-tuned, with the buffer in place of the old data"

    old_rows: Tensor

    def __init__(self, *, weight: float = 1.0, synthesise: bool = False, first_rows: FirstRows = "random") -> None:
        super().__init__()
        check_not_negative(weight=weight)
        check_choice(FirstRows, first_rows=first_rows)
        self.first_rows = first_rows
        self.weight = weight
        self.synthesise = synthesise
        self.classifier = GrowingClassifier()
        self.register_buffer("old_rows", torch.empty(0, 0))

    def begin(self, task: TaskView, dim: int) -> None:
        self.old_rows = self.classifier.rows_of_previous(task)
        self.classifier.begin(task, dim)

    def prepare(self, task: TaskView, survey: Survey) -> None:
        if self.first_rows == "means":
            begin_at_means(self.classifier, task, survey, keep_length=True)
        known = old_class_features(task, survey)
        if known is not None:
            self.old_rows = self.classifier.rows_at_means(*known, task.num_seen - task.num_new)
        if self.synthesise and len(self.old_rows):
            old_features = survey.old()
            if old_features is None:
                raise HoldfastError("bct: synthesise needs the previous model; pass it to fit as old")
            z_old, labels = old_features
            num_old = len(self.old_rows)
            length = self.old_rows.norm(dim=1).mean()
            synthesised = class_mean_rows(z_old, labels, task.num_seen, length)[num_old:]
            self.old_rows = torch.cat([self.old_rows, synthesised.to(self.old_rows)])

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
        if len(self.old_rows):
            terms["old"] = self.weight * old_class_cross_entropy(linear_logits(z, self.old_rows), batch.labels)
        return terms
