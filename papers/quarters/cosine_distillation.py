"""Distillation with the cosine classifier of the study's other trainings, and FAN's map on top of it."""

from typing import final

import torch
from torch import Tensor

from holdfast import Method
from holdfast.train.losses import cosine_logits, cross_entropy, feature_distillation, softened_distillation
from holdfast.train.methods import Batch, FeaturePhase, Progress, Survey, TaskView
from holdfast.train.methods.classifiers import FirstRows, GrowingClassifier, begin_at_means
from holdfast.train.methods.interface import OldFeatures
from holdfast.train.space_map import SpaceMap


@final
class CosineDistillation(Method):
    """CE over scale x cosine + distillation of logits and of features over the whole batch.

    Without a map this is the product's ``distillation`` with ``softmax="cosine"``, except that after a replacement only
    features are distilled. The linear classifier of ``fan`` begins at random, which spoils the first version of a head
    that begins as the identity: methods would be compared by their classifier.

    scale: factor of the cosines in CE and in the distillation of logits.
    temperature: of the logit distillation.
    logits_weight, features_weight: weights of the two distillation terms.
    map_width: hidden width of a map from old features to new ones, which is trained after the task as in FAN (Iscen et
        al., ECCV 2020); 0 (default) trains none.
    alpha: weight of the cosine term in the map's loss.
    map_epochs, map_batch_size, map_lr: training of the map.
    first_rows: how the classifier's rows of new classes begin: at their "means" (default), or "random".
    """

    old_features: OldFeatures = "all"

    old_rows: Tensor

    def __init__(
        self,
        *,
        scale: float = 16.0,
        temperature: float = 2.0,
        logits_weight: float = 1.0,
        features_weight: float = 1.0,
        map_width: int = 0,
        alpha: float = 100.0,
        map_epochs: int = 40,
        map_batch_size: int = 128,
        map_lr: float = 1e-3,
        first_rows: FirstRows = "means",
    ) -> None:
        super().__init__()
        self.first_rows = first_rows
        self.scale = scale
        self.temperature = temperature
        self.logits_weight = logits_weight
        self.features_weight = features_weight
        self.map_width = map_width
        self.alpha = alpha
        self.map_epochs = map_epochs
        self.map_batch_size = map_batch_size
        self.map_lr = map_lr
        self.classifier = GrowingClassifier()
        self.adapter: SpaceMap | None = None
        self.register_buffer("old_rows", torch.empty(0, 0))

    def begin(self, task: TaskView, dim: int) -> None:
        self.old_rows = self.classifier.rows_of_previous(task)
        self.classifier.begin(task, dim)
        has_map = self.map_width > 0 and task.reference == "previous"
        self.adapter = SpaceMap(dim, dim, self.map_width) if has_map else None

    def prepare(self, task: TaskView, survey: Survey) -> None:
        if self.first_rows == "means":
            begin_at_means(self.classifier, task, survey)

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
        logits = cosine_logits(z, self.classifier.weight, scale=self.scale)
        terms = {"ce": cross_entropy(logits, batch.labels)}
        if z_old is not None:
            known = len(self.old_rows)
            if known:
                old_logits = cosine_logits(z_old, self.old_rows, scale=self.scale)
                softened = softened_distillation(logits[:, :known], old_logits, temperature=self.temperature)
                terms["logits"] = self.logits_weight * softened
            terms["features"] = self.features_weight * feature_distillation(z, z_old)
        return terms

    def feature_phase(self) -> FeaturePhase | None:
        if self.adapter is None:
            return None
        return FeaturePhase(
            list(self.adapter.parameters()), self._map_loss, self.map_epochs, self.map_batch_size, self.map_lr
        )

    def space_map(self) -> SpaceMap | None:
        return self.adapter

    def _map_loss(self, z_old: Tensor, z: Tensor, labels: Tensor) -> dict[str, Tensor]:
        assert self.adapter is not None
        mapped = self.adapter(z_old)
        logits = cosine_logits(mapped, self.classifier.weight.detach(), scale=self.scale)
        return {"map": self.alpha * feature_distillation(mapped, z), "map_ce": cross_entropy(logits, labels)}
