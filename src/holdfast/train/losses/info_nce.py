"""InfoNCE between the features of the new and the old model (Eq. 4 and 5)."""

from typing import Literal, get_args

import torch
from torch import Tensor, nn

from holdfast.core.errors import HoldfastError
from holdfast.train.geometry import cosine_matrix

Negatives = Literal["authors", "paper", "masked"]


def info_nce(
    z: Tensor,
    z_old: Tensor,
    labels: Tensor,
    *,
    rho: float = 5.0,
    negatives: Negatives = "authors",
    through_both: bool = False,
) -> Tensor:
    """Eq. 4: mean over i of -s_ii + log D_i with s_ij = rho cos(z_old_i, z_j) (Eq. 5); old features are the anchors.

    z, z_old: raw features of the same images under the new and the old model, N x d.
    labels: N.
    rho: factor of the cosines (inverse temperature).
    negatives: the denominator D_i:
        "paper"    sum over j != i of exp(s_ij); images of one class repel each other.
        "authors"  sum over y_j != y_i of exp(s_ij), plus exp(0) for every j with y_j = y_i, including i.
        "masked"   sum over y_j != y_i of exp(s_ij).
    through_both: let the gradient flow through z_old too, for two views under one model. By default it flows through
        z only.

    An anchor without negatives (a batch of one class with "masked", of one image with "paper") contributes 0.

    Differs from the paper: a mean instead of a sum. The default D_i is that of the authors' code, which multiplies the
    similarities of same-class pairs by zero, so that they enter as exp(0).

    >>> import torch
    >>> from holdfast import info_nce
    >>> z_old, labels = torch.eye(3), torch.tensor([0, 1, 2])
    >>> bool(info_nce(z_old, z_old, labels) < info_nce(z_old.roll(1, 0), z_old, labels))  # lower if both models agree
    True
    """
    if negatives not in get_args(Negatives):
        raise HoldfastError(f"unknown negatives {negatives!r}; known: {', '.join(get_args(Negatives))}")
    check_features(z, z_old)
    similarity = rho * cosine_matrix(z_old if through_both else z_old.detach(), z)
    positive = similarity.diagonal()
    same_class = labels[:, None] == labels[None, :]
    if negatives == "authors":
        return (torch.logsumexp(similarity.masked_fill(same_class, 0.0), 1) - positive).mean()
    excluded = torch.eye(len(z), dtype=torch.bool, device=z.device) if negatives == "paper" else same_class
    # where, not masking by -inf alone: the gradient of logsumexp over a row of -inf is NaN.
    has_negative = ~excluded.all(1)
    excluded = excluded & has_negative[:, None]
    log_d = torch.logsumexp(similarity.masked_fill(excluded, float("-inf")), 1)
    per_anchor = torch.where(has_negative, log_d - positive, 0.0)
    return per_anchor.sum() / len(z)


def check_features(z: Tensor, z_old: Tensor) -> None:
    """Refuse features that are not of the same items, or of different sizes."""
    if z.ndim != 2 or z_old.ndim != 2 or len(z) != len(z_old):
        shapes = f"{tuple(z.shape)} and {tuple(z_old.shape)}"
        raise HoldfastError(f"new and old features must be N x d of the same N items, got {shapes}")
    if z.shape[1] != z_old.shape[1]:
        raise HoldfastError(
            f"the new model gives {z.shape[1]} numbers per item and the old one {z_old.shape[1]}; train with the same "
            "size, or use a bridge (holdfast.Bridge) between models of different sizes"
        )


class InfoNCELoss(nn.Module):
    """``info_nce`` as a module; call it with (z, z_old, labels).

    rho: factor of the cosines (inverse temperature).
    negatives: the denominator, see ``info_nce``.
    through_both: let the gradient flow through z_old too.

    >>> z = torch.eye(2)
    >>> round(InfoNCELoss(rho=1.0)(z, z, torch.tensor([0, 1])).item(), 4)  # log 2 - 1
    -0.3069
    """

    def __init__(self, *, rho: float = 5.0, negatives: Negatives = "authors", through_both: bool = False) -> None:
        super().__init__()
        self.rho = rho
        self.negatives = negatives
        self.through_both = through_both

    def forward(self, z: Tensor, z_old: Tensor, labels: Tensor) -> Tensor:
        return info_nce(z, z_old, labels, rho=self.rho, negatives=self.negatives, through_both=self.through_both)
