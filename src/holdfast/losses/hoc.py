"""The Higher-Order Compatibility loss (Eq. 2)."""

from typing import Literal

from torch import Tensor

from holdfast.geometry import DSimplex, unit, widened
from holdfast.losses.cross_entropy import simplex_cross_entropy
from holdfast.losses.info_nce import Negatives, info_nce

Length = Literal["free", "old"]
"""At which length cross-entropy sees a feature: its own, or the one that the previous model gave the same image."""


def hoc_terms(
    z: Tensor,
    z_old: Tensor,
    labels: Tensor,
    simplex: DSimplex,
    *,
    lambda_: float = 0.1,
    rho: float = 5.0,
    negatives: Negatives = "authors",
    length: Length = "free",
) -> dict[str, Tensor]:
    """The two weighted terms of Eq. 2: {"ce": lambda CE, "nce": (1 - lambda) NCE}. Their sum is the loss.

    z, z_old: N x (K-1) raw features of the new and the previous model; labels: N vertices of the simplex.
    length: with "old" cross-entropy cannot be lowered by making features shorter, beside which the contrast, which does
    not see lengths, would weigh more.
    """
    seen = at_length_of(z, z_old) if length == "old" else z
    return {
        "ce": lambda_ * simplex_cross_entropy(seen, labels, simplex),
        "nce": (1 - lambda_) * info_nce(z, z_old, labels, rho=rho, negatives=negatives),
    }


def at_length_of(z: Tensor, z_old: Tensor) -> Tensor:
    """Rows of ``z``, each as long as the same row of ``z_old``."""
    return widened(z_old).norm(dim=1, keepdim=True) * unit(z)


def hoc_loss(
    z: Tensor,
    z_old: Tensor,
    labels: Tensor,
    simplex: DSimplex,
    *,
    lambda_: float = 0.1,
    rho: float = 5.0,
    negatives: Negatives = "authors",
    length: Length = "free",
) -> Tensor:
    """Eq. 2: lambda CE + (1 - lambda) NCE, one number to call ``backward`` on."""
    terms = hoc_terms(z, z_old, labels, simplex, lambda_=lambda_, rho=rho, negatives=negatives, length=length)
    return terms["ce"] + terms["nce"]
