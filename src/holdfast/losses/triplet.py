"""CVS's coherence with the previous model."""

import torch
from torch import Tensor
from torch.nn import functional as F

from holdfast.geometry import unit


def neighbour_triplet(z: Tensor, z_old: Tensor, labels: Tensor, *, margin: float = 0.1) -> Tensor:
    """Mean of max(0, |n(z_i) - n(z_old_i)| - |n(z_i) - n(z_old_j)| + margin), Euclidean, not squared.

    j is the image of another class whose old feature is nearest to n(z_i). An image without one, as in a batch of a
    single class, does not count; if none counts the term is 0. Gradient through z only.
    """
    anchor, old = unit(z), unit(z_old.detach())
    with torch.no_grad(), torch.autocast(z.device.type, enabled=False):
        other = labels[:, None] != labels[None, :]
        hardest = (anchor @ old.T).masked_fill(~other, float("-inf")).argmax(1)
    counts = other.any(1)
    closer = (anchor - old).norm(dim=1) - (anchor - old[hardest]).norm(dim=1)
    return F.relu(closer + margin).where(counts, 0.0).sum() / counts.sum().clamp(min=1)
