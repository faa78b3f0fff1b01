"""d-Simplex-HOC-Views: this project's own method, an extension of the paper's d-Simplex-HOC."""

from typing import ClassVar, Literal, final

from torch import Tensor

from holdfast.train.geometry import DSimplex
from holdfast.train.geometry.simplex import Scale
from holdfast.train.losses import (
    Negatives,
    anchor_contrast,
    anchor_distillation,
    earliest_anchors,
    feature_distillation,
    hoc_terms,
    info_nce,
    known_anchors,
    simplex_cross_entropy,
)
from holdfast.train.methods.classifiers import SlotLabels
from holdfast.train.methods.interface import Batch, Method, OldFeatures, Progress, TaskView
from holdfast.train.methods.option_checks import check_choice, check_not_negative, check_positive, check_share

Anchors = Literal["all", "learned"]
AnchorForm = Literal["cosine", "nce"]


def lambda_of_share(share: float, *, scale: float, power: float) -> float:
    """lambda = scale x share^power, at most 1. share: new classes of a task divided by all classes seen so far."""
    return min(1.0, scale * share**power)


@final
class SimplexHOCViews(Method):
    """Ours: HOC, a contrast of two views of each image from the first task on, and anchors for replayed images.

    Without an old model the loss is (1 - first_view) CE + first_view NCE(z_view, z), with z_view the features of a
    second view under the same network. The gradient flows through both views. With an old model the loss is lambda CE
    + (1 - lambda) NCE(z_old, z) + view_weight NCE(z_view, z) + anchor_weight A + features_weight F. A holds replayed
    images to the features that past models gave them; F is the mean of 1 - cos(z_old, z) over all images. At a
    replacement the old model is the loaded one and the anchors are those of earlier models.

    slots: K, the number of simplex vertices, for present and future classes.
    lambda_: weight of CE, in [0, 1]; None (default) computes it as lambda_scale (num_new / num_seen)^lambda_power, at
        most 1; num_new counts as at least 1.
    lambda_scale, lambda_power: of that rule. The default scale was chosen on the validation set of CIFAR100/10.
    rho: factor of the cosines in all NCE terms.
    first_view: weight of the view term without an old model, in [0, 1].
    view_weight: weight of the view term with an old model.
    anchor_weight: weight of the anchor term.
    anchors: "all" past models that had learned the class, or only the one that "learned" it.
    anchor_form: "cosine" is the mean of 1 - cos; "nce" is a contrast with the whole batch.
    negatives: the denominator of NCE with the old model and with the view, see ``info_nce``. Anchors with "nce" always
        use "authors".
    scale: scale of the simplex, see ``DSimplex``.
    length: length to which features are scaled for CE, in every task; None (default) leaves them unscaled.
    features_weight: weight of the distillation of the old model's features; 0 (default) leaves it out.
    """

    ours: ClassVar[bool] = True
    old_features: OldFeatures = "all"

    def __init__(
        self,
        *,
        slots: int,
        lambda_: float | None = None,
        lambda_scale: float = 0.5,
        lambda_power: float = 0.7,
        rho: float = 5.0,
        first_view: float = 0.5,
        view_weight: float = 0.5,
        anchor_weight: float = 1.0,
        anchors: Anchors = "all",
        anchor_form: AnchorForm = "cosine",
        negatives: Negatives = "authors",
        scale: Scale = "unit",
        length: float | None = None,
        features_weight: float = 0.0,
    ) -> None:
        super().__init__()
        check_share(lambda_=lambda_, first_view=first_view)
        check_not_negative(view_weight=view_weight, anchor_weight=anchor_weight, features_weight=features_weight)
        check_not_negative(lambda_scale=lambda_scale, lambda_power=lambda_power)
        check_positive(rho=rho, length=length)
        check_choice(Anchors, anchors=anchors)
        check_choice(AnchorForm, anchor_form=anchor_form)
        check_choice(Negatives, negatives=negatives)
        self.simplex = DSimplex(slots, scale=scale)
        self.num_slots = slots
        self.fixed_lambda = lambda_
        self.lambda_scale = lambda_scale
        self.lambda_power = lambda_power
        self.rho = rho
        self.first_view = first_view
        self.view_weight = view_weight
        self.anchor_weight = anchor_weight
        self.anchors = anchors
        self.anchor_form = anchor_form
        self.negatives = negatives
        self.length = length
        self.features_weight = features_weight
        self.vertex = SlotLabels()
        self.lambda_ = 1.0
        self.reads_view = max(first_view, view_weight) > 0
        self.reads_kept = anchor_weight > 0

    def feature_dim(self, backbone_dim: int) -> int:
        return self.simplex.dim

    def begin(self, task: TaskView, dim: int) -> None:
        self.vertex.assign(list(task.slots))
        # An update with images of known classes only counts as one new class: cross-entropy is still trained.
        rule = lambda_of_share(max(1, task.num_new) / task.num_seen, scale=self.lambda_scale, power=self.lambda_power)
        self.lambda_ = rule if self.fixed_lambda is None else self.fixed_lambda
        # A second view costs a second pass through the network, so it is computed only if its weight is above 0.
        self.reads_view = (self.first_view if task.reference == "none" else self.view_weight) > 0

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
        vertices = self.vertex(batch.labels)
        if z_old is None:
            weight = self.first_view if z_view is not None else 0.0
            terms = {"ce": (1 - weight) * simplex_cross_entropy(z, vertices, self.simplex, length=self.length)}
        else:
            weight = self.view_weight
            terms = hoc_terms(
                z,
                z_old,
                vertices,
                self.simplex,
                lambda_=self.lambda_,
                rho=self.rho,
                negatives=self.negatives,
                length=self.length,
            )
            if self.features_weight > 0:
                terms["features"] = self.features_weight * feature_distillation(z, z_old)
        if z_view is not None and weight > 0:
            contrast = info_nce(z, z_view, vertices, rho=self.rho, negatives=self.negatives, through_both=True)
            terms["view"] = weight * contrast
        if z_kept is not None and self.anchor_weight > 0:
            terms["anchor"] = self.anchor_weight * self._anchor_term(z, z_kept, batch.labels)
        return terms

    def _anchor_term(self, z: Tensor, z_kept: Tensor, labels: Tensor) -> Tensor:
        counts = known_anchors(z_kept) if self.anchors == "all" else earliest_anchors(z_kept)
        if self.anchor_form == "cosine":
            return anchor_distillation(z, z_kept, counts)
        return anchor_contrast(z, z_kept, counts, labels, rho=self.rho)
