"""InfoNCE between the features of the new and the old model (Eq. 4 and 5)."""

from typing import Literal, get_args

import torch
from torch import Tensor

from holdfast.errors import HoldfastError
from holdfast.geometry import cosine_matrix

Negatives = Literal["authors", "paper", "masked"]


def info_nce(
    z: Tensor,
    z_old: Tensor,
    labels: Tensor,
    *,
    rho: float,
    negatives: Negatives = "authors",
    through_both: bool = False,
) -> Tensor:
    """Eq. 4: mean over i of -s_ii + log D_i with s_ij = rho cos(z_old_i, z_j) (Eq. 5); old features are the anchors.

    z, z_old: N x d raw features of the new and the old model for the same images; labels: N.
    negatives decides D_i:
      "paper"    sum over j != i of exp(s_ij); same-class images repel each other.
      "authors"  sum over y_j != y_i of exp(s_ij), plus exp(0) for every j with y_j = y_i, i itself included.
      "masked"   sum over y_j != y_i of exp(s_ij).
    Gradient flows through z only; ``through_both`` lets it flow through z_old too, for two views in one model. An
    anchor with no negative at all (a batch of one class under "masked", of one image under "paper") contributes
    nothing: its D_i is empty and its log has no value.

    Differs from the paper: mean instead of sum; the default D_i is that of the authors' code, where the similarities of
    same-class pairs are multiplied by zero and so enter as exp(0).
    """
    if negatives not in get_args(Negatives):
        raise HoldfastError(f"unknown negatives {negatives!r}; known: {', '.join(get_args(Negatives))}")
    similarity = rho * cosine_matrix(z_old if through_both else z_old.detach(), z)
    positive = similarity.diagonal()
    same_class = labels[:, None] == labels[None, :]
    if negatives == "authors":
        return (torch.logsumexp(similarity.masked_fill(same_class, 0.0), 1) - positive).mean()
    left_out = torch.eye(len(z), dtype=torch.bool, device=z.device) if negatives == "paper" else same_class
    # where, not masking by -inf alone: the gradient of logsumexp over an all -inf row is NaN.
    has_negative = ~left_out.all(1)
    left_out = left_out & has_negative[:, None]
    log_d = torch.logsumexp(similarity.masked_fill(left_out, float("-inf")), 1)
    per_anchor = torch.where(has_negative, log_d - positive, 0.0)
    return per_anchor.sum() / len(z)
