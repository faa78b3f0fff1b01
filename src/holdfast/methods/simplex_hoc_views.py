"""d-Simplex-HOC with views: this project's own method, after the paper's d-Simplex-HOC."""

from typing import ClassVar, Literal, final, get_args

from torch import Tensor

from holdfast.errors import HoldfastError
from holdfast.geometry import DSimplex
from holdfast.geometry.simplex import Scale
from holdfast.losses import (
    Negatives,
    anchor_contrast,
    anchor_distillation,
    earliest_anchors,
    hoc_terms,
    info_nce,
    known_anchors,
    simplex_cross_entropy,
)
from holdfast.methods.classifiers import SlotLabels
from holdfast.methods.interface import Batch, Method, OldFeatures, Progress, TaskView

Anchors = Literal["all", "learned"]
AnchorForm = Literal["cosine", "nce"]


def lambda_of_share(share: float, *, scale: float, power: float) -> float:
    """The rule for lambda. share: of a task's new classes in all that were seen by then."""
    return min(1.0, scale * share**power)


@final
class SimplexHOCViews(Method):
    """Ours: HOC from the first task on, contrasting two views of each image, with buffered images held to past models.

    While there is no old model: (1 - first_view) CE + first_view NCE(z_view, z), a second view through the same network
    where the old model's feature will be; gradient through both views. After that: lambda CE
    + (1 - lambda) NCE(z_old, z) + view_weight NCE(z_view, z) + anchor_weight A, where A holds replayed images to the
    features they had. At a replacement the old model is the loaded one, and the anchors stay those of earlier models.

    lambda follows from the share of new classes, lambda_scale (num_new / num_seen)^lambda_power, at most 1; a given
    lambda_ switches the rule off. The scale is what the validation set of CIFAR100/10 chose.
    anchors: the features under "all" past models that knew the class, or under the one it was "learned" with.
    anchor_form: "cosine" is the mean of 1 - cos, "nce" the contrast with the whole batch.
    negatives: of the contrasts with the old model and with the view; anchors as "nce" always have the authors'.
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
    ) -> None:
        super().__init__()
        for name, value in (("lambda", lambda_), ("first_view", first_view)):
            if value is not None and not 0 <= value <= 1:
                raise HoldfastError(f"{name} must lie in [0, 1], got {value}")
        weights = {"view_weight": view_weight, "anchor_weight": anchor_weight}
        for name, value in {**weights, "lambda_scale": lambda_scale, "lambda_power": lambda_power}.items():
            if not value >= 0:
                raise HoldfastError(f"{name} must not be negative, got {value}")
        if not rho > 0:
            raise HoldfastError(f"rho must be above 0, got {rho}")
        for name, chosen, known in (("anchors", anchors, Anchors), ("anchor_form", anchor_form, AnchorForm)):
            if chosen not in get_args(known):
                raise HoldfastError(f"{name} must be one of {', '.join(get_args(known))}, got {chosen!r}")
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
        self.vertex = SlotLabels()
        self.lambda_ = 1.0
        self.reads_view = max(first_view, view_weight) > 0
        self.reads_kept = anchor_weight > 0

    def feature_dim(self, backbone_dim: int) -> int:
        return self.simplex.dim

    def begin(self, task: TaskView, dim: int) -> None:
        self.vertex.assign(list(task.slots))
        rule = lambda_of_share(task.num_new / task.num_seen, scale=self.lambda_scale, power=self.lambda_power)
        self.lambda_ = rule if self.fixed_lambda is None else self.fixed_lambda
        # A second view is a second pass through the network: only where this task's loss has a weight for it.
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
            terms = {"ce": (1 - weight) * simplex_cross_entropy(z, vertices, self.simplex)}
        else:
            weight = self.view_weight
            lambda_, rho, negatives = self.lambda_, self.rho, self.negatives
            terms = hoc_terms(z, z_old, vertices, self.simplex, lambda_=lambda_, rho=rho, negatives=negatives)
        if z_view is not None and weight > 0:
            contrast = info_nce(z, z_view, vertices, rho=self.rho, negatives=self.negatives, through_both=True)
            terms["view"] = weight * contrast
        if z_kept is not None and self.anchor_weight > 0:
            terms["anchor"] = self.anchor_weight * self._anchored(z, z_kept, batch.labels)
        return terms

    def _anchored(self, z: Tensor, z_kept: Tensor, labels: Tensor) -> Tensor:
        counts = known_anchors(z_kept) if self.anchors == "all" else earliest_anchors(z_kept)
        if self.anchor_form == "cosine":
            return anchor_distillation(z, z_kept, counts)
        return anchor_contrast(z, z_kept, counts, labels, rho=self.rho)
