"""d-Simplex-HOC: fixed prototypes and the Higher-Order Compatibility loss, the paper's method."""

from typing import final

from torch import Tensor

from holdfast.train.geometry import DSimplex
from holdfast.train.geometry.simplex import Layer, Scale
from holdfast.train.losses import Negatives, hoc_terms, simplex_cross_entropy
from holdfast.train.methods.classifiers import SlotLabels
from holdfast.train.methods.interface import Batch, Method, OldFeatures, Progress, Survey, TaskView
from holdfast.train.methods.option_checks import check_choice, check_positive, check_share
from holdfast.train.methods.turned_slots import Placing, TurnedSlots


@final
class SimplexHOC(Method):
    """Eq. 2: lambda CE + (1 - lambda) NCE over the whole batch; CE only while there is no previous model.

    The previous model reads the same augmented view as the new one.

    slots: K, the number of simplex vertices, for present and future classes.
    lambda_: weight of CE, in [0, 1]. A larger value gives more accuracy and less compatibility.
    rho: factor of the cosines in NCE.
    negatives: the denominator of NCE, see ``info_nce``.
    scale: scale of the simplex, see ``DSimplex``.
    length: length to which features are scaled for CE, from the second model on; None (default, as in the paper)
        leaves them unscaled. Used to study the effect of shorter features (docs/reproduction-details.md).
    first_length: the same for the first model, which has no previous model.
    placing: where the vertices of new classes are. "sequence" (default, as in the paper): where the simplex has them.
        "means": the simplex is turned before the task, so that they lie next to the means of the old model's features
        of these classes (the network's own in the first task); vertices with owners stay in place.
    layer: between the backbone's features and the simplex. "projection" (default, as in the paper): linear, random at
        first. "identity": begins as the centred features, for networks with trained weights; it needs at least one
        slot more than the backbone has features.

    Differs from the paper: means instead of sums, unit rows instead of the listing's Frobenius scale, and the negatives
    of the authors' code. ``scale`` and ``negatives`` can be set.
    """

    old_features: OldFeatures = "all"

    def __init__(
        self,
        *,
        slots: int,
        lambda_: float = 0.1,
        rho: float = 5.0,
        negatives: Negatives = "authors",
        scale: Scale = "unit",
        length: float | None = None,
        first_length: float | None = None,
        placing: Placing = "sequence",
        layer: Layer = "projection",
    ) -> None:
        super().__init__()
        check_share(lambda_=lambda_)
        check_choice(Negatives, negatives=negatives)
        check_positive(rho=rho, length=length, first_length=first_length)
        check_choice(Placing, placing=placing)
        check_choice(Layer, layer=layer)
        self.built_simplex = DSimplex(slots, scale=scale)
        self.turned = TurnedSlots(slots, scale) if placing == "means" else None
        self.layer = layer
        self.num_slots = slots
        self.lambda_ = lambda_
        self.rho = rho
        self.negatives = negatives
        self.length = length
        self.first_length = first_length
        self.vertex = SlotLabels()

    @property
    def simplex(self) -> DSimplex:
        return self.built_simplex if self.turned is None else self.turned.simplex

    @property
    def turns(self) -> tuple[tuple[str, tuple[int, ...]], ...]:
        return () if self.turned is None else self.turned.turns

    def feature_dim(self, backbone_dim: int) -> int:
        return self.built_simplex.dim

    def begin(self, task: TaskView, dim: int) -> None:
        self.vertex.assign(list(task.slots))
        if self.turned is not None:
            self.turned.begin()

    def prepare(self, task: TaskView, survey: Survey) -> None:
        if self.turned is not None:
            self.turned.place_at_means(task, survey)

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
            return {"ce": simplex_cross_entropy(z, vertices, self.simplex, length=self.first_length)}
        return hoc_terms(
            z,
            z_old,
            vertices,
            self.simplex,
            lambda_=self.lambda_,
            rho=self.rho,
            negatives=self.negatives,
            length=self.length,
        )
