"""Feature distillation: new features held near the old ones.

CVS's coherence with the previous model.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from holdfast.geometry import paired_cosine, unit, widened


def feature_distillation(z: Tensor, z_old: Tensor) -> Tensor:
    """Mean over the batch of 1 - cos(z_i, z_old_i); range 0..2. Gradient through z only. An empty batch gives 0.

    For unit vectors this is half the squared Euclidean distance, which is why the papers call it a mean square error.
    """
    if len(z) == 0:
        return z.sum() * 0.0
    return (1 - paired_cosine(z, z_old.detach())).mean()


def squared_distillation(z: Tensor, z_old: Tensor) -> Tensor:
    """Mean over the batch and the d entries of (z - z_old)^2, raw features, in float32. Gradient through z only.

    An empty batch gives 0.
    """
    if len(z) == 0:
        return z.sum() * 0.0
    return (widened(z) - widened(z_old.detach())).square().mean()


def softened_distillation(logits: Tensor, old_logits: Tensor, *, temperature: float = 2.0) -> Tensor:
    """Mean over the batch of the cross-entropy between softmax(old / T) and softmax(new / T), N x n each, in float32.

    Gradient through ``logits`` only.
    """
    with torch.autocast(logits.device.type, enabled=False):
        targets = F.softmax(widened(old_logits.detach()) / temperature, dim=1)
        return F.cross_entropy(widened(logits) / temperature, targets)


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
