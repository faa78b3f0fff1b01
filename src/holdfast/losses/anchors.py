"""New features held to what past models gave the same image: anchors that stay, so that drift cannot add up.

kept: R x M x d, unit features of the first R images of a batch under M past models, zero under a model that had not
learned the image's class. Means are over the anchors that count, and 0 where none does; gradient through z only, and
nothing is read back to the host.
"""

import torch
from torch import Tensor

from holdfast.geometry import unit


def known_anchors(kept: Tensor) -> Tensor:
    """Which anchors there are: R x M, true where the past model had learned the class."""
    return kept.detach().ne(0).any(-1)


def earliest_anchors(kept: Tensor) -> Tensor:
    """Of each image only the anchor of the model that learned its class, the first there is: R x M."""
    known = known_anchors(kept)
    # A class once learned stays known, so the first is the one without another before it.
    return torch.cat([known[:, :1], known[:, 1:] & ~known[:, :-1]], 1)


def anchor_distillation(z: Tensor, kept: Tensor, counts: Tensor) -> Tensor:
    """Mean of 1 - cos(z_i, a_im) over the anchors that count (R x M, bool); range 0..2. z: N x d, N >= R."""
    with torch.autocast(z.device.type, enabled=False):
        cosines = (unit(z)[: len(kept), None] * kept.detach()).sum(-1)
        return _mean(1 - cosines, counts)


def anchor_contrast(z: Tensor, kept: Tensor, counts: Tensor, labels: Tensor, *, rho: float) -> Tensor:
    """InfoNCE with an anchor in the old feature's place: mean of -rho cos(a_im, z_i) + log D_im over those that count.

    D_im = sum over the whole batch, j of another class than i, of exp(rho cos(a_im, z_j)), plus exp(0) for every j of
    i's own class: the negatives of the authors' code (``info_nce``).
    """
    replayed = len(kept)
    with torch.autocast(z.device.type, enabled=False):
        features = unit(z)
        similarity = rho * (kept.detach() @ features.T)  # R x M x N
        positive = rho * (features[:replayed, None] * kept.detach()).sum(-1)
        same_class = labels[:replayed, None, None] == labels
        return _mean(torch.logsumexp(similarity.masked_fill(same_class, 0.0), -1) - positive, counts)


def _mean(values: Tensor, counts: Tensor) -> Tensor:
    return values.where(counts, 0.0).sum() / counts.sum().clamp(min=1)
