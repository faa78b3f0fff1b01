"""New features held to the features that past models gave the same image, so that drift does not accumulate.

anchors: unit features of the first R images of a batch under M past models, R x M x d. A row is zero if the model had
not learned the image's class. ``counts`` (R x M, bool) selects the anchors that enter the mean; a mean over no anchor
is 0. Gradient flows through z only. No value is copied back to the host.
"""

import torch
from torch import Tensor

from holdfast.train.geometry import unit
from holdfast.train.losses.old_classes import masked_mean


def known_anchors(anchors: Tensor) -> Tensor:
    """R x M: true if the past model had learned the class of the image."""
    return anchors.detach().ne(0).any(-1)


def earliest_anchors(anchors: Tensor) -> Tensor:
    """R x M: true only for the first past model that had learned the class of the image."""
    known = known_anchors(anchors)
    # A class once learned stays known, so the first known anchor is the one without a known anchor before it.
    return torch.cat([known[:, :1], known[:, 1:] & ~known[:, :-1]], 1)


def anchor_distillation(z: Tensor, anchors: Tensor, counts: Tensor) -> Tensor:
    """Mean of 1 - cos(z_i, a_im) over the selected anchors; range 0..2.

    z: features, N x d with N >= R.
    """
    with torch.autocast(z.device.type, enabled=False):
        cosines = (unit(z)[: len(anchors), None] * anchors.detach()).sum(-1)
        return masked_mean(1 - cosines, counts)


def anchor_contrast(z: Tensor, anchors: Tensor, counts: Tensor, labels: Tensor, *, rho: float) -> Tensor:
    """InfoNCE with anchors instead of old features: mean of -rho cos(a_im, z_i) + log D_im over the selected anchors.

    z: features, N x d with N >= R.
    labels: N.
    rho: factor of the cosines (inverse temperature).

    D_im is the sum of exp(rho cos(a_im, z_j)) over all j of the batch of another class than i, plus exp(0) for every j
    of the class of i: the negatives "authors" of ``info_nce``.
    """
    replayed = len(anchors)
    with torch.autocast(z.device.type, enabled=False):
        features = unit(z)
        similarity = rho * (anchors.detach() @ features.T)  # R x M x N
        positive = rho * (features[:replayed, None] * anchors.detach()).sum(-1)
        same_class = labels[:replayed, None, None] == labels
        return masked_mean(torch.logsumexp(similarity.masked_fill(same_class, 0.0), -1) - positive, counts)
