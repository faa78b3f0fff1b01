"""d-Simplex-FD: fixed prototypes and feature distillation (Biondi et al., CL2R, 2022)."""

import math
from typing import Literal, final

from torch import Tensor

from holdfast.train.geometry import DSimplex
from holdfast.train.geometry.simplex import Layer, Scale
from holdfast.train.losses import feature_distillation, simplex_cross_entropy, squared_distillation
from holdfast.train.methods.classifiers import SlotLabels
from holdfast.train.methods.interface import Batch, Method, OldFeatures, Progress, Survey, TaskView
from holdfast.train.methods.option_checks import check_choice, check_not_negative, check_positive
from holdfast.train.methods.turned_slots import Placing, TurnedSlots

On = Literal["replayed", "all"]
Distance = Literal["cosine", "squared"]


@final
class SimplexFD(Method):
    """CE over all K vertices + w_t FD, with FD = mean(1 - cos) between new and old features of replayed images.

    w_t = base sqrt(N_new / N_old); both numbers of classes count as at least 1. Without a previous model, or with no
    image to distil, the loss is CE only.

    slots: K, the number of simplex vertices, for present and future classes.
    base: factor of w_t.
    on: the images that are distilled: "replayed" or "all".
    distance: "cosine", or "squared" for the mean squared difference of raw features over images and entries.
    scale: scale of the simplex, see ``DSimplex``.
    length: length to which features are scaled for CE, from the first model on; None (default) leaves them unscaled.
    placing, layer: as for ``SimplexHOC``.

    Differs from the paper: its text calls FD a mean square error. The authors' code uses the cosine form used here,
    which for unit vectors is half the squared distance. CE is a mean and rows have unit length, as in ``SimplexHOC``.
    """

    old_features: OldFeatures = "replayed"

    def __init__(
        self,
        *,
        slots: int,
        base: float = 5.0,
        on: On = "replayed",
        distance: Distance = "cosine",
        scale: Scale = "unit",
        length: float | None = None,
        placing: Placing = "sequence",
        layer: Layer = "projection",
    ) -> None:
        super().__init__()
        check_choice(On, on=on)
        check_choice(Distance, distance=distance)
        check_not_negative(base=base)
        check_positive(length=length)
        check_choice(Placing, placing=placing)
        check_choice(Layer, layer=layer)
        self.built_simplex = DSimplex(slots, scale=scale)
        self.turned = TurnedSlots(slots, scale) if placing == "means" else None
        self.layer = layer
        self.length = length
        self.num_slots = slots
        self.base = base
        self.old_features = on
        self.distil = feature_distillation if distance == "cosine" else squared_distillation
        self.vertex = SlotLabels()
        self.weight = 0.0

    @property
    def simplex(self) -> DSimplex:
        return self.built_simplex if self.turned is None else self.turned.simplex

    @property
    def turns(self) -> tuple[tuple[str, tuple[int, ...]], ...]:
        return () if self.turned is None else self.turned.turns

    def feature_dim(self, backbone_dim: int) -> int:
        return self.built_simplex.dim

    def prepare(self, task: TaskView, survey: Survey) -> None:
        if self.turned is not None:
            self.turned.place_at_means(task, survey)

    def begin(self, task: TaskView, dim: int) -> None:
        self.vertex.assign(list(task.slots))
        if self.turned is not None:
            self.turned.begin()
        if task.reference == "none":
            self.weight = 0.0
            return
        # An update with images of known classes only counts as one new class, a model without classes as one old class.
        num_new, num_old = max(1, task.num_new), max(1, task.num_seen - task.num_new)
        self.weight = self.base * math.sqrt(num_new / num_old)

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
        terms = {"ce": simplex_cross_entropy(z, vertices, self.simplex, length=self.length)}
        if z_old is not None:
            terms["fd"] = self.weight * self.distil(z[: len(z_old)], z_old)
        return terms
