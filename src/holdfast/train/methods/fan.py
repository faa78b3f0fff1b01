"""FAN: feature adaptation networks (Iscen et al., ECCV 2020), reconstructed."""

from typing import ClassVar, final

import torch
from torch import Tensor

from holdfast.train.losses import cross_entropy, feature_distillation, linear_logits, softened_distillation
from holdfast.train.methods.classifiers import FirstRows, GrowingClassifier, begin_at_means, old_class_features
from holdfast.train.methods.interface import Batch, FeaturePhase, Method, OldFeatures, Progress, Survey, TaskView
from holdfast.train.methods.option_checks import check_choice, check_not_negative, check_positive
from holdfast.train.space_map import SpaceMap


@final
class FAN(Method):
    """CE + distillation of logits and features; afterwards an MLP A is trained to map old features to new ones.

    Old galleries are searched after each stored feature has passed the maps of all later models. The loss of the map is
    alpha x mean(1 - cos(A(z_old), z)) + CE of the frozen new classifier on A(z_old). If the reference is a loaded
    model, there is no map, because it would start from that model and not from the one that embedded the galleries.
    Features of equal size are then compared directly.

    temperature: of the logit distillation.
    logits_weight, features_weight: weights of the two distillation terms.
    alpha: weight of the cosine term in the map's loss.
    widening: hidden width of the map, as a multiple of the feature size.
    map_epochs, map_batch_size, map_lr: training of the map.
    first_rows: how the classifier's rows of new classes begin: "random" (default), or at the "means" of their features.
        "means" suits networks with trained weights, whose features random rows would pull elsewhere.

    Differs from the original: its code is not public. Weights, width and depth are inferred. The buffer holds images
    instead of features. The map reads unit features, because galleries store unit vectors.
    """

    reconstruction: ClassVar[str] = "no public code: structure from the literature, weights and sizes inferred"
    old_features: OldFeatures = "all"

    old_rows: Tensor

    def __init__(
        self,
        *,
        temperature: float = 2.0,
        logits_weight: float = 1.0,
        features_weight: float = 1.0,
        alpha: float = 100.0,
        widening: int = 16,
        map_epochs: int = 40,
        map_batch_size: int = 128,
        map_lr: float = 1e-3,
        first_rows: FirstRows = "random",
    ) -> None:
        super().__init__()
        check_positive(temperature=temperature, widening=widening, map_batch_size=map_batch_size, map_lr=map_lr)
        check_positive(map_epochs=map_epochs)
        check_not_negative(logits_weight=logits_weight, features_weight=features_weight, alpha=alpha)
        check_choice(FirstRows, first_rows=first_rows)
        self.first_rows = first_rows
        self.temperature = temperature
        self.logits_weight = logits_weight
        self.features_weight = features_weight
        self.alpha = alpha
        self.widening = widening
        self.map_epochs = map_epochs
        self.map_batch_size = map_batch_size
        self.map_lr = map_lr
        self.classifier = GrowingClassifier()
        self.adapter: SpaceMap | None = None
        self.register_buffer("old_rows", torch.empty(0, 0))

    def begin(self, task: TaskView, dim: int) -> None:
        self.old_rows = self.classifier.rows_of_previous(task)
        self.classifier.begin(task, dim)
        self.adapter = SpaceMap(dim, dim, self.widening * dim) if task.reference == "previous" else None

    def prepare(self, task: TaskView, survey: Survey) -> None:
        if self.first_rows == "means":
            begin_at_means(self.classifier, task, survey, keep_length=True)
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
        frozen = self.classifier.weight.detach()
        return {
            "map": self.alpha * feature_distillation(mapped, z),
            "map_ce": cross_entropy(linear_logits(mapped, frozen), labels),
        }
