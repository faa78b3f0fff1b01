"""Distillation: cross-entropy with distillation of the previous model's logits and features."""

from typing import final

import torch
from torch import Tensor

from holdfast.losses import cross_entropy, feature_distillation, linear_logits, softened_distillation
from holdfast.methods.classifiers import GrowingClassifier, class_mean_rows, emptied, old_class_features
from holdfast.methods.interface import Batch, Method, OldFeatures, Progress, Survey, TaskView


@final
class Distillation(Method):
    """CE + distillation of logits and of features over the whole batch; features are compared as they are.

    This is the training of the network in FAN (Iscen et al., ECCV 2020), without the map that FAN trains afterwards. It
    needs no simplex and no contrast, so it shows what these add.

    temperature: of the logit distillation.
    logits_weight, features_weight: weights of the two distillation terms.
    """

    old_features: OldFeatures = "all"

    old_rows: Tensor

    def __init__(self, *, temperature: float = 2.0, logits_weight: float = 1.0, features_weight: float = 1.0) -> None:
        super().__init__()
        self.temperature = temperature
        self.logits_weight = logits_weight
        self.features_weight = features_weight
        self.classifier = GrowingClassifier()
        self.register_buffer("old_rows", torch.empty(0, 0))

    def begin(self, task: TaskView, dim: int) -> None:
        rows = self.classifier.weight.detach()
        self.old_rows = rows.clone() if task.reference == "previous" else emptied(rows)
        self.classifier.grow(task.num_seen, dim, reset=task.start == "loaded")

    def prepare(self, task: TaskView, survey: Survey) -> None:
        known = old_class_features(task, survey)
        if known is not None:
            length = self.classifier.weight.detach().norm(dim=1).mean()
            self.old_rows = class_mean_rows(*known, task.num_seen - task.num_new, length)

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
        logits = self.classifier(z)
        terms = {"ce": cross_entropy(logits, batch.labels)}
        if z_old is not None:
            num_old = len(self.old_rows)
            if num_old:
                old_logits = linear_logits(z_old, self.old_rows)
                softened = softened_distillation(logits[:, :num_old], old_logits, temperature=self.temperature)
                terms["logits"] = self.logits_weight * softened
            terms["features"] = self.features_weight * feature_distillation(z, z_old)
        return terms
