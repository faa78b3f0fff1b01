"""Cross-entropy over class logits, and the logits of linear, cosine and simplex classifiers."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from holdfast.train.geometry import DSimplex, at_least_float32, cosine_matrix, unit


def simplex_cross_entropy(z: Tensor, labels: Tensor, simplex: DSimplex, *, length: float | None = None) -> Tensor:
    """Eq. 3: mean cross-entropy over all K vertices of the simplex, including those of future classes.

    z: raw features, N x (K-1).
    labels: vertex of each image, N, values 0..K-1.
    simplex: the K fixed prototypes.
    length: length to which features are scaled first; None leaves them unscaled.

    The vertices of future classes are in the softmax, so features stay away from them until their classes arrive.

    Differs from the paper: a mean over the batch, as in the authors' code, instead of the sum in the equation.

    >>> import torch
    >>> from holdfast import DSimplex, simplex_cross_entropy
    >>> simplex = DSimplex(3)
    >>> labels = torch.arange(3)
    >>> z = 9 * simplex.prototypes(labels).float()  # features at their vertices, and long
    >>> bool(simplex_cross_entropy(z, labels, simplex) < 0.01)
    True
    """
    scaled = z if length is None else length * unit(z)
    with torch.autocast(z.device.type, enabled=False):
        return F.cross_entropy(simplex.logits(at_least_float32(scaled)), labels)


class SimplexCrossEntropyLoss(nn.Module):
    """``simplex_cross_entropy`` as a module.

    simplex: the K fixed prototypes.

    >>> loss = SimplexCrossEntropyLoss(DSimplex(3))
    >>> round(loss(torch.zeros(4, 2), torch.tensor([0, 1, 2, 0])).item(), 4)  # log 3
    1.0986
    """

    def __init__(self, simplex: DSimplex) -> None:
        super().__init__()
        self.simplex = simplex

    def forward(self, z: Tensor, labels: Tensor) -> Tensor:
        return simplex_cross_entropy(z, labels, self.simplex)


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """Mean over the batch of -log softmax(logits)[label], in at least float32 under any autocast.

    logits: N x K.
    labels: N, values 0..K-1.
    """
    with torch.autocast(logits.device.type, enabled=False):
        return F.cross_entropy(at_least_float32(logits), labels)


def linear_logits(z: Tensor, rows: Tensor) -> Tensor:
    """Inner products w_j . z: N x K, in at least float32 under any autocast.

    z: features, N x d.
    rows: classifier rows w_j, K x d.

    In bf16 a logit of 20 would be rounded to a multiple of 1/8.
    """
    with torch.autocast(z.device.type, enabled=False):
        return at_least_float32(z) @ at_least_float32(rows).T


def cosine_logits(z: Tensor, rows: Tensor, *, scale: float) -> Tensor:
    """scale x cos(w_j, z): N x K, in at least float32.

    z: features, N x d.
    rows: classifier rows w_j, K x d.
    scale: factor of all cosines (inverse temperature).
    """
    return scale * cosine_matrix(z, rows)


def margin_cosine_logits(z: Tensor, rows: Tensor, labels: Tensor, *, scale: float, margin: float) -> Tensor:
    """``cosine_logits`` with cos(theta + margin) for the true class, as in ArcFace.

    labels: N, values 0..K-1.
    margin: additive angle in radians; 0 gives ``cosine_logits``.

    Above theta = pi - margin the cosine would rise again. There ArcFace's linear continuation is used.
    """
    cosines = cosine_matrix(z, rows)
    if margin == 0:
        return scale * cosines
    # The clamp keeps the slope of the square root finite for a feature exactly on its row.
    sines = (1 - cosines.square()).clamp(min=1e-7).sqrt()
    harder = cosines * math.cos(margin) - sines * math.sin(margin)
    harder = harder.where(cosines > -math.cos(margin), cosines - margin * math.sin(margin))
    true_class = F.one_hot(labels, len(rows)).bool()
    return scale * harder.where(true_class, cosines)
