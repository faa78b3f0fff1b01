"""Means-HOC: the HOC loss in an existing feature space, with prototypes at the class means of the stored vectors."""

import math
from typing import ClassVar, final

import torch
from torch import Tensor, nn

from holdfast.core.errors import HoldfastError
from holdfast.train.geometry import unit
from holdfast.train.losses import Negatives, class_means, cosine_logits, cross_entropy, info_nce
from holdfast.train.methods.classifiers import emptied
from holdfast.train.methods.interface import Batch, Method, OldFeatures, Progress, Survey, TaskView
from holdfast.train.methods.option_checks import check_choice, check_positive, check_share

_SHORTEST = 1e-6  # a shorter mean is rounding error: the reference has no vector for any image of the class


@final
class MeansHOC(Method):
    """Ours: lambda CE + (1 - lambda) NCE with fixed prototypes at class means under the reference model.

    For spaces that were not trained with a simplex, for example the vectors of a model that no longer exists. Stored
    vectors stay unchanged and new models are trained into their space. The prototype of a class is computed when the
    class arrives, from the reference's features of its images, and is permanent. A class without reference vectors has
    a trainable prototype in its first task, which is fixed afterwards. CE is over scale x cosine. NCE is Eq. 4 with the
    reference's features as anchors.

    dim: size of the space to train into; None takes the backbone's feature size.
    lambda_: weight of CE, in [0, 1].
    rho: factor of the cosines in NCE.
    scale: factor of the cosines in CE.
    negatives: the denominator of NCE, see ``info_nce``.
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
        check_share(lambda_=lambda_)
        check_choice(Negatives, negatives=negatives)
        check_positive(scale=scale, rho=rho)
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
        if task.reference != "previous":  # the fixed rows belong to another model's space
            self.rows = emptied(self.rows)
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
        """Unit prototypes of the classes seen so far, fixed or trainable: num_seen x d."""
        return torch.where(self._fixed(), self.rows, unit(self.free))

    def _fixed(self) -> Tensor:
        return self.rows.any(1, keepdim=True)
