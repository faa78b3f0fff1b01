"""The Higher-Order Compatibility loss (Eq. 2)."""

from torch import Tensor

from holdfast.geometry import DSimplex, unit
from holdfast.losses.cross_entropy import simplex_cross_entropy
from holdfast.losses.info_nce import Negatives, info_nce


def hoc_terms(
    z: Tensor,
    z_old: Tensor,
    labels: Tensor,
    simplex: DSimplex,
    *,
    lambda_: float = 0.1,
    rho: float = 5.0,
    negatives: Negatives = "authors",
    length: float | None = None,
) -> dict[str, Tensor]:
    """The two weighted terms of Eq. 2: {"ce": lambda CE, "nce": (1 - lambda) NCE}. Their sum is the loss.

    z, z_old: N x (K-1) raw features of the new and the previous model; labels: N vertices of the simplex.
    length: at which cross-entropy sees every feature; None for its own. With one, nothing is won by shorter features,
    beside which the contrast, which does not see lengths, would weigh more.
    """
    seen = z if length is None else length * unit(z)
    return {
        "ce": lambda_ * simplex_cross_entropy(seen, labels, simplex),
        "nce": (1 - lambda_) * info_nce(z, z_old, labels, rho=rho, negatives=negatives),
    }


def hoc_loss(
    z: Tensor,
    z_old: Tensor,
    labels: Tensor,
    simplex: DSimplex,
    *,
    lambda_: float = 0.1,
    rho: float = 5.0,
    negatives: Negatives = "authors",
    length: float | None = None,
) -> Tensor:
    """Eq. 2: lambda CE + (1 - lambda) NCE, one number to call ``backward`` on."""
    terms = hoc_terms(z, z_old, labels, simplex, lambda_=lambda_, rho=rho, negatives=negatives, length=length)
    return terms["ce"] + terms["nce"]
