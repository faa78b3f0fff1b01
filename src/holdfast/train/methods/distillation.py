"""Distillation: cross-entropy with distillation of the previous model's logits and features."""

from typing import final

import torch
from torch import Tensor

from holdfast.train.losses import (
    cosine_logits,
    cross_entropy,
    feature_distillation,
    linear_logits,
    softened_distillation,
)
from holdfast.train.methods.classifiers import FirstRows, GrowingClassifier, Softmax, begin_at_means, old_class_features
from holdfast.train.methods.interface import Batch, Method, OldFeatures, Progress, Survey, TaskView
from holdfast.train.methods.option_checks import check_choice, check_not_negative, check_positive


@final
class Distillation(Method):
    """CE + distillation of logits and of features over the whole batch; features are compared as they are.

    This is the training of the network in FAN (Iscen et al., ECCV 2020), without the map that FAN trains afterwards. It
    needs no simplex and no contrast, so it shows what these add.

    temperature: of the logit distillation.
    logits_weight, features_weight: weights of the two distillation terms.
    softmax: "linear" (default), as in FAN. "cosine": scale x cosine.
    scale: factor of the cosines.
    first_rows: how the classifier's rows of new classes begin: "random", or at the "means" of their features, which
        suits networks with trained weights. None (default) is "means" with "cosine" and "random" with "linear".
    """

    old_features: OldFeatures = "all"

    old_rows: Tensor

    def __init__(
        self,
        *,
        temperature: float = 2.0,
        logits_weight: float = 1.0,
        features_weight: float = 1.0,
        softmax: Softmax = "linear",
        scale: float = 16.0,
        first_rows: FirstRows | None = None,
    ) -> None:
        super().__init__()
        check_choice(Softmax, softmax=softmax)
        first_rows = first_rows or ("means" if softmax == "cosine" else "random")
        check_choice(FirstRows, first_rows=first_rows)
        self.first_rows = first_rows
        check_positive(scale=scale, temperature=temperature)
        check_not_negative(logits_weight=logits_weight, features_weight=features_weight)
        self.temperature = temperature
        self.logits_weight = logits_weight
        self.features_weight = features_weight
        self.softmax = softmax
        self.scale = scale
        self.classifier = GrowingClassifier()
        self.register_buffer("old_rows", torch.empty(0, 0))

    def begin(self, task: TaskView, dim: int) -> None:
        self.old_rows = self.classifier.rows_of_previous(task)
        self.classifier.begin(task, dim)

    def prepare(self, task: TaskView, survey: Survey) -> None:
        if self.first_rows == "means":
            begin_at_means(self.classifier, task, survey, keep_length=self.softmax == "linear")
        known = old_class_features(task, survey)
        if known is not None:
            self.old_rows = self.classifier.rows_at_means(*known, task.num_seen - task.num_new)

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
        logits = self._logits(z, self.classifier.weight)
        terms = {"ce": cross_entropy(logits, batch.labels)}
        if z_old is not None:
            num_old = len(self.old_rows)
            if num_old:
                old_logits = self._logits(z_old, self.old_rows)
                softened = softened_distillation(logits[:, :num_old], old_logits, temperature=self.temperature)
                terms["logits"] = self.logits_weight * softened
            terms["features"] = self.features_weight * feature_distillation(z, z_old)
        return terms

    def _logits(self, z: Tensor, rows: Tensor) -> Tensor:
        return cosine_logits(z, rows, scale=self.scale) if self.softmax == "cosine" else linear_logits(z, rows)
