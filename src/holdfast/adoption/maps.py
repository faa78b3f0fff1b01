"""Way (c): a linear map, without bias, from a new model's features to the old space. Also what (a) and (b) learn here.

Without a bias the map of a unit vector and of the raw one have the same direction, so it can be put behind the new
model's own projection and served as one model.
"""

import torch
from torch import Tensor, nn

from holdfast.adoption.projection import STEPS, descend
from holdfast.geometry import DSimplex, unit
from holdfast.losses import class_means, cosine_logits, cross_entropy, hoc_terms, info_nce

RIDGES = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)
"""Times the mean eigenvalue of X^T X."""
SCALE, RHO = 16.0, 5.0


def ridge_map(new: Tensor, old: Tensor, strength: float) -> Tensor:
    """D x D' with least |new M^T - old|^2 + r |M|^2, r = strength x trace(new^T new) / D'; in double inside."""
    x, y = new.double(), old.double()
    gram = x.T @ x
    penalty = strength * gram.diagonal().mean() * torch.eye(len(gram), dtype=x.dtype)
    return torch.linalg.solve(gram + penalty, x.T @ y).T.float()


def procrustes_map(new: Tensor, old: Tensor) -> Tensor:
    """D x D' with orthonormal rows or columns, whichever are fewer, that brings ``new`` nearest to ``old``."""
    u, _, vh = torch.linalg.svd(old.double().T @ new.double(), full_matrices=False)
    return (u @ vh).float()


def simplex_head(
    new: Tensor, old: Tensor, slots: Tensor, simplex: DSimplex, *, lambda_: float, seed: int, steps: int = STEPS
) -> Tensor:
    """(K-1) x D': HOC (Eq. 2) on the simplex, a linear layer on new features against old ones that are there already.

    Starts from the ridge map, as far as a map goes without classes.
    """
    weight = nn.Parameter(ridge_map(new, old, 1e-2))

    def loss(rows: Tensor) -> Tensor:
        z = _raised(new[rows] @ weight.T)
        terms = hoc_terms(z, old[rows], slots[rows], simplex, lambda_=lambda_, rho=RHO)
        return terms["ce"] + terms["nce"]

    descend([weight], loss, len(new), seed=seed, steps=steps)
    return weight.detach()


def means_head(new: Tensor, old: Tensor, labels: Tensor, *, lambda_: float, seed: int, steps: int = STEPS) -> Tensor:
    """D x D': the loss of ``means_hoc`` in the old space, a linear layer on new features; from the ridge map on."""
    _, codes = labels.unique(return_inverse=True)
    prototypes = unit(class_means(old, codes, int(codes.max()) + 1))
    weight = nn.Parameter(ridge_map(new, old, 1e-2))

    def loss(rows: Tensor) -> Tensor:
        z = new[rows] @ weight.T
        ce = cross_entropy(cosine_logits(z, prototypes, scale=SCALE), codes[rows])
        return lambda_ * ce + (1 - lambda_) * info_nce(z, old[rows], codes[rows], rho=RHO)

    descend([weight], loss, len(new), seed=seed, steps=steps)
    return weight.detach()


def _raised(z: Tensor) -> Tensor:
    """Unit rows times ``SCALE``: simplex cross-entropy reads lengths too, which a linear layer learns slowly."""
    return SCALE * unit(z)
