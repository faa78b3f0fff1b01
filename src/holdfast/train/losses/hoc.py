"""The Higher-Order Compatibility loss (Eq. 2)."""

from torch import Tensor, nn

from holdfast.core.errors import HoldfastError
from holdfast.train.geometry import DSimplex
from holdfast.train.losses.cross_entropy import simplex_cross_entropy
from holdfast.train.losses.info_nce import Negatives, info_nce


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
    """Eq. 2: lambda CE + (1 - lambda) NCE, a scalar. Arguments as in ``hoc_terms``.

    >>> import torch
    >>> from holdfast import DSimplex, hoc_loss
    >>> simplex, labels = DSimplex(4), torch.tensor([0, 1, 2])
    >>> z = torch.eye(3, requires_grad=True)
    >>> loss = hoc_loss(z, torch.eye(3), labels, simplex, lambda_=0.3, rho=5.0)
    >>> loss.backward()
    >>> z.grad.shape
    torch.Size([3, 3])
    """
    terms = hoc_terms(z, z_old, labels, simplex, lambda_=lambda_, rho=rho, negatives=negatives, length=length)
    return terms["ce"] + terms["nce"]


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

    z, z_old: raw features of the same images under the new and the previous model, N x (K-1).
    labels: vertex of each image, N, values 0..K-1.
    simplex: the K fixed prototypes.
    lambda_: weight of the cross-entropy, in [0, 1].
    rho: factor of the cosines in NCE (inverse temperature).
    negatives: the denominator of NCE, see ``info_nce``.
    length: length to which features are scaled for the cross-entropy; None leaves them unscaled. With a fixed length,
        shorter features do not reduce the weight of the cross-entropy relative to NCE, which ignores lengths.
    """
    return {
        "ce": lambda_ * simplex_cross_entropy(z, labels, simplex, length=length),
        "nce": (1 - lambda_) * info_nce(z, z_old, labels, rho=rho, negatives=negatives),
    }


class HOCLoss(nn.Module):
    """``hoc_loss`` as a module; call it with (z, z_old, labels).

    simplex: the K fixed prototypes.
    lambda_: weight of the cross-entropy, in [0, 1].
    rho: factor of the cosines in NCE (inverse temperature).
    negatives: the denominator of NCE, see ``info_nce``.
    length: length to which features are scaled for the cross-entropy; None leaves them unscaled.

    >>> import torch
    >>> loss = HOCLoss(DSimplex(3), lambda_=0.3)
    >>> z = torch.tensor([[1.0, 0.0], [0.0, 1.0]], requires_grad=True)
    >>> value = loss(z, z.detach(), torch.tensor([0, 1]))
    >>> value.backward()
    >>> value.shape, z.grad.shape
    (torch.Size([]), torch.Size([2, 2]))
    """

    def __init__(
        self,
        simplex: DSimplex,
        *,
        lambda_: float = 0.1,
        rho: float = 5.0,
        negatives: Negatives = "authors",
        length: float | None = None,
    ) -> None:
        super().__init__()
        if not 0 <= lambda_ <= 1:
            raise HoldfastError(f"lambda_ must lie between 0 and 1, got {lambda_:g}")
        self.simplex = simplex
        self.lambda_ = lambda_
        self.rho = rho
        self.negatives = negatives
        self.length = length

    def forward(self, z: Tensor, z_old: Tensor, labels: Tensor) -> Tensor:
        return hoc_loss(
            z,
            z_old,
            labels,
            self.simplex,
            lambda_=self.lambda_,
            rho=self.rho,
            negatives=self.negatives,
            length=self.length,
        )
