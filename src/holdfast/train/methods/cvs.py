"""CVS: continual learning for visual search (Wan et al., CVPR 2022)."""

from typing import ClassVar, final

import torch
from torch import Tensor

from holdfast.train.losses import centre_pull, class_means, cosine_logits, cross_entropy, info_nce, neighbour_triplet
from holdfast.train.methods.classifiers import FirstRows, GrowingClassifier, begin_at_means, emptied, old_class_features
from holdfast.train.methods.interface import Batch, Method, OldFeatures, Progress, Survey, TaskView
from holdfast.train.methods.option_checks import check_choice, check_not_negative, check_positive


@final
class CVS(Method):
    """Cosine softmax + coherence x triplet loss to the previous model + centre x distance to fixed class centres.

    A class's centre is its mean feature at the end of its first task. It is never updated, which ties a model to all
    earlier ones and not only to the last. A loaded model starts a new space: there the centres of old classes are its
    mean features of the buffer.

    scale: factor of the cosines in the softmax.
    coherence: weight of the triplet loss.
    centre: weight of the distance to the centres.
    margin: margin of the triplet loss.
    view_weight: weight of InfoNCE between two views of each image, for an ablation; 0 (default) leaves it out.
    rho: factor of the cosines in that term.
    first_rows: how the classifier's rows of new classes begin: "random" (default), or at the "means" of their features.
        "means" suits networks with trained weights, whose features random rows would pull elsewhere.

    Differs from the original: no embedding layer, AutoAugment, herding or choice of the best checkpoint. The buffer
    and the schedule are those of all methods here.
    """

    reconstruction: ClassVar[str] = "adapted to the common backbone, buffer and schedule"
    old_features: OldFeatures = "all"

    centres: Tensor

    def __init__(
        self,
        *,
        scale: float = 20.0,
        coherence: float = 10.0,
        centre: float = 1.0,
        margin: float = 0.1,
        view_weight: float = 0.0,
        rho: float = 5.0,
        first_rows: FirstRows = "random",
    ) -> None:
        super().__init__()
        check_positive(scale=scale, rho=rho)
        check_not_negative(coherence=coherence, centre=centre, margin=margin, view_weight=view_weight)
        check_choice(FirstRows, first_rows=first_rows)
        self.first_rows = first_rows
        self.scale = scale
        self.coherence = coherence
        self.centre = centre
        self.margin = margin
        self.view_weight = view_weight
        self.rho = rho
        self.reads_view = view_weight > 0
        self.classifier = GrowingClassifier()
        self.register_buffer("centres", torch.empty(0, 0))

    def begin(self, task: TaskView, dim: int) -> None:
        self.classifier.begin(task, dim)
        if task.reference != "previous":
            self.centres = emptied(self.centres)

    def prepare(self, task: TaskView, survey: Survey) -> None:
        if self.first_rows == "means":
            begin_at_means(self.classifier, task, survey)
        known = old_class_features(task, survey)
        if known is not None:
            self.centres = class_means(*known, task.num_seen - task.num_new)

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
            terms["triplet"] = self.coherence * neighbour_triplet(z, z_old, batch.labels, margin=self.margin)
            if len(self.centres):
                terms["centre"] = self.centre * centre_pull(z, batch.labels, self.centres)
        if self.reads_view and z_view is not None:
            terms["view"] = self.view_weight * info_nce(z, z_view, batch.labels, rho=self.rho, through_both=True)
        return terms

    def finish(self, task: TaskView, survey: Survey) -> None:
        z, labels = survey.new()
        learned_now = class_means(z, labels, task.num_seen)[len(self.centres) :]
        self.centres = torch.cat([self.centres, learned_now]) if len(self.centres) else learned_now
