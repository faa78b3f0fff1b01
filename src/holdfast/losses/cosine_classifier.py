"""Softmax over cosines: a classifier whose rows and inputs live on the sphere."""

import math

from torch import Tensor
from torch.nn import functional as F

from holdfast.geometry import cosine_matrix


def cosine_logits(z: Tensor, rows: Tensor, *, scale: float) -> Tensor:
    """scale x cos(w_j, z): N x K for features N x d and rows K x d, in float32."""
    return scale * cosine_matrix(z, rows)


def margin_cosine_logits(z: Tensor, rows: Tensor, labels: Tensor, *, scale: float, margin: float) -> Tensor:
    """The same with the true class at cos(theta + margin), ArcFace's additive angle; margin 0 changes nothing.

    Beyond theta = pi - margin the cosine would rise again; there ArcFace's straight line takes its place.
    """
    cosines = cosine_matrix(z, rows)
    if margin == 0:
        return scale * cosines
    # The square root is bent away from 0: its slope there would be infinite for a feature exactly on its row.
    sines = (1 - cosines.square()).clamp(min=1e-7).sqrt()
    harder = cosines * math.cos(margin) - sines * math.sin(margin)
    harder = harder.where(cosines > -math.cos(margin), cosines - margin * math.sin(margin))
    true = F.one_hot(labels, len(rows)).bool()
    return scale * harder.where(true, cosines)
