"""d-Simplex-FD: fixed prototypes and feature distillation (Biondi et al., CL2R, 2022)."""

import math
from typing import ClassVar, Literal, final

from torch import Tensor

from holdfast.errors import HoldfastError
from holdfast.geometry import DSimplex
from holdfast.geometry.simplex import Scale
from holdfast.losses import feature_distillation, simplex_cross_entropy
from holdfast.methods.interface import Batch, Method, Progress, TaskView
from holdfast.methods.slots import SlotLabels


@final
class SimplexFD(Method):
    """CE over all K vertices + w_t FD, with FD = mean(1 - cos) between new and old features of replayed images.

    w_t = base sqrt(N_new / N_old). The first task has no previous model and is CE alone.

    Differs from the paper: the text calls FD a mean square error; the authors' code is the cosine form used here,
    which for unit vectors is half the squared distance.
    """

    old_features: ClassVar[Literal["none", "replayed", "all"]] = "replayed"

    def __init__(self, *, slots: int, base: float = 5.0, scale: Scale = "unit") -> None:
        super().__init__()
        if base < 0:
            raise HoldfastError(f"base must not be negative, got {base}")
        self.simplex = DSimplex(slots, scale=scale)
        self.num_slots = slots
        self.base = base
        self.vertex = SlotLabels()
        self.weight = 0.0

    def feature_dim(self, backbone_dim: int) -> int:
        return self.simplex.dim

    def begin(self, task: TaskView, dim: int) -> None:
        self.vertex.assign(list(task.slots))
        num_old = task.num_seen - task.num_new
        self.weight = self.base * math.sqrt(task.num_new / num_old) if num_old else 0.0

    def loss(
        self,
        z: Tensor,
        batch: Batch,
        *,
        z_old: Tensor | None = None,
        z_view: Tensor | None = None,
        progress: Progress,
    ) -> dict[str, Tensor]:
        terms = {"ce": simplex_cross_entropy(z, self.vertex(batch.labels), self.simplex)}
        if z_old is not None:
            terms["fd"] = self.weight * feature_distillation(z[: batch.replayed], z_old)
        return terms
