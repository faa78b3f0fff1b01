"""Cross-entropy against fixed or trainable prototypes."""

import torch
from torch import Tensor
from torch.nn import functional as F

from holdfast.geometry import DSimplex, widened


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
