"""Cross-entropy against fixed or trainable prototypes.

Softmax over cosines: a classifier whose rows and inputs live on the sphere.
"""

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from holdfast.geometry import DSimplex, cosine_matrix, widened


def linear_logits(z: Tensor, rows: Tensor) -> Tensor:
    """w_j . z: N x K for features N x d and rows K x d, in at least float32 whatever the autocast around.

    In bf16 a logit of 20 would be rounded to the next eighth.
    """
    with torch.autocast(z.device.type, enabled=False):
        return widened(z) @ widened(rows).T


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """Mean over the batch of -log softmax(logits)[label], in float32 whatever the autocast around.

    logits: N x K; labels: N, values 0..K-1.
    """
    with torch.autocast(logits.device.type, enabled=False):
        return F.cross_entropy(widened(logits), labels)


def simplex_cross_entropy(z: Tensor, labels: Tensor, simplex: DSimplex) -> Tensor:
    """Eq. 3: cross-entropy of the raw feature z (N x (K-1)) over all K vertices, seen and future alike.

    Counting the vertices of classes that do not exist yet is what keeps their places free.

    Differs from the paper: mean over the batch where the equation prints a sum, as in the authors' code.
    """
    with torch.autocast(z.device.type, enabled=False):
        return F.cross_entropy(simplex.logits(widened(z)), labels)


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
