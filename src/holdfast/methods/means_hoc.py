"""Means-HOC: the HOC loss in a space that was there before, whose classes lie where the old vectors' means are."""

import math
from typing import ClassVar, final

import torch
from torch import Tensor, nn

from holdfast.errors import HoldfastError
from holdfast.geometry import unit
from holdfast.losses import Negatives, class_means, cosine_logits, cross_entropy, info_nce
from holdfast.methods.classifiers import nothing
from holdfast.methods.interface import Batch, Method, OldFeatures, Progress, Survey, TaskView

_SHORTEST = 1e-6  # a mean below this is rounding: the reference gave no vector for any image of the class


@final
class MeansHOC(Method):
    """Ours: lambda CE + (1 - lambda) NCE with fixed prototypes at class means under the reference model.

    For spaces that no simplex shaped, such as that of a foreign model of which only vectors are left: stored vectors
    stay as they are and new models are trained into their space. A class gets its prototype when it arrives, from the
    reference's features of its images, and keeps it for ever. A class that the reference gave no vector for, or every
    class where there is no reference, has a trainable prototype in its first task, fixed after it.
    CE is over scale x cosine; NCE is Eq. 4 with the reference's features as anchors.

    dim: the size of the space to train into; None takes the backbone's own.
    """

    ours: ClassVar[bool] = True
    old_features: OldFeatures = "all"

    rows: Tensor

    def __init__(
        self,
        *,
        dim: int | None = None,
        lambda_: float = 0.5,
        rho: float = 5.0,
        scale: float = 16.0,
        negatives: Negatives = "authors",
    ) -> None:
        super().__init__()
        if dim is not None and dim < 1:
            raise HoldfastError(f"dim must be at least 1, got {dim}")
        if not 0 <= lambda_ <= 1:
            raise HoldfastError(f"lambda must lie in [0, 1], got {lambda_}")
        if not (rho > 0 and scale > 0):
            raise HoldfastError(f"rho and scale must be above 0, got {rho} and {scale}")
        self.dim = dim
        self.lambda_ = lambda_
        self.rho = rho
        self.scale = scale
        self.negatives = negatives
        self.register_buffer("rows", torch.empty(0, 0))
        self.free = nn.Parameter(torch.empty(0, 0))

    def feature_dim(self, backbone_dim: int) -> int:
        return backbone_dim if self.dim is None else self.dim

    def begin(self, task: TaskView, dim: int) -> None:
        if task.reference != "previous":  # what was fixed before lies in another model's space
            self.rows = nothing(self.rows)
        kept = self.rows if len(self.rows) else self.rows.new_zeros(0, dim)
        self.rows = torch.cat([kept, kept.new_zeros(task.num_seen - len(kept), dim)])
        bound = 1 / math.sqrt(dim)
        self.free = nn.Parameter(torch.empty(task.num_seen, dim, device=self.rows.device).uniform_(-bound, bound))

    def prepare(self, task: TaskView, survey: Survey) -> None:
        found = survey.old() if task.reference != "none" else None
        if found is None:
            return
        means = class_means(*found, task.num_seen)
        arrived = ~self._fixed() & (means.norm(dim=1, keepdim=True) > _SHORTEST)
        self.rows = torch.where(arrived, unit(means), self.rows)

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
        ce = cross_entropy(cosine_logits(z, self.prototypes(), scale=self.scale), batch.labels)
        if z_old is None:
            return {"ce": ce}
        nce = info_nce(z, z_old, batch.labels, rho=self.rho, negatives=self.negatives)
        return {"ce": self.lambda_ * ce, "nce": (1 - self.lambda_) * nce}

    def finish(self, task: TaskView, survey: Survey) -> None:
        self.rows = self.prototypes().detach().clone()

    def prototypes(self) -> Tensor:
        """One unit row for each class seen so far: fixed, or still free."""
        return torch.where(self._fixed(), self.rows, unit(self.free))

    def _fixed(self) -> Tensor:
        return self.rows.any(1, keepdim=True)
