"""Way (a): a bias-free projection that leads stored vectors into a simplex."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from holdfast.geometry import DSimplex
from holdfast.losses import class_means, simplex_cross_entropy

PULLS = (float("inf"), 10.0, 1.0, 0.1)
"""How strongly the projection is held to an isometry, strongest first; infinity is the isometry itself."""
STEPS = 300
BATCH = 512
_RATE = 0.01
_FIRST_SCALE = 10.0  # unit vectors on unit vertices give logits of at most 1, with which nothing is ever learned


def aligned_isometry(vectors: Tensor, slots: Tensor, simplex: DSimplex) -> Tensor:
    """The (K-1) x D matrix with orthonormal columns that leads class means nearest to their vertices (Procrustes).

    Where K - 1 >= D it keeps every cosine between stored vectors exactly; where K - 1 < D its rows are orthonormal,
    and what lies outside K - 1 dimensions is lost.
    vectors: N x D unit. slots: the vertex of each.
    """
    classes, codes = slots.unique(return_inverse=True)
    means = class_means(vectors, codes, len(classes)).double()
    u, _, vh = torch.linalg.svd(_free_directions(simplex.prototypes(classes).double().T @ means), full_matrices=False)
    return (u @ vh).float()


def _free_directions(cross: Tensor) -> Tensor:
    """A touch of a fixed random matrix: where classes are fewer than dimensions, the SVD must still choose the rest."""
    noise = torch.randn(cross.shape, generator=torch.Generator().manual_seed(0), dtype=cross.dtype)
    return cross + 1e-6 * cross.abs().mean() * noise


def fit_projection(
    vectors: Tensor, slots: Tensor, simplex: DSimplex, *, pull: float, seed: int, steps: int = STEPS
) -> Tensor:
    """P, (K-1) x D: simplex cross-entropy of s A h over the stored vectors h, with A pulled to the isometry A_0.

    Minimises CE(s A h) + pull x |A - A_0|^2 / min(D, K-1) over A and the scale s by Adam; gives A, because only
    directions are compared. An infinite pull gives A_0 without any training.
    """
    start = aligned_isometry(vectors, slots, simplex)
    if pull == float("inf"):
        return start
    matrix = nn.Parameter(start.clone())
    log_scale = nn.Parameter(torch.tensor(_FIRST_SCALE).log())

    def loss(rows: Tensor) -> Tensor:
        held = (matrix - start).square().sum() / min(start.shape)
        return simplex_cross_entropy(log_scale.exp() * vectors[rows] @ matrix.T, slots[rows], simplex) + pull * held

    descend([matrix, log_scale], loss, len(vectors), seed=seed, steps=steps)
    return matrix.detach()


def descend(
    parameters: Sequence[nn.Parameter], loss: Callable[[Tensor], Tensor], count: int, *, seed: int, steps: int = STEPS
) -> None:
    """Adam over random batches of ``count`` rows, with a rate that falls to 0 along a cosine; the same for one seed."""
    draw = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam(parameters, lr=_RATE)
    falling = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for _ in range(steps):
        rows = torch.randint(count, (min(count, BATCH),), generator=draw)
        optimizer.zero_grad(set_to_none=True)
        loss(rows).backward()
        optimizer.step()
        falling.step()
