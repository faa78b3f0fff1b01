"""Distillation: features or logits of the new model held near those of the previous model.

Gradient flows through the new model's tensors only. An empty batch gives 0.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from holdfast.train.geometry import at_least_float32, paired_cosine, unit


def feature_distillation(z: Tensor, z_old: Tensor) -> Tensor:
    """Mean over the batch of 1 - cos(z_i, z_old_i); range 0..2.

    z, z_old: features of the same images under the new and the previous model, N x d.

    For unit vectors this is half the squared Euclidean distance. The papers call it a mean square error for this
    reason.

    >>> import torch
    >>> from holdfast import feature_distillation
    >>> feature_distillation(torch.tensor([[2.0, 0.0], [0.0, 1.0]]), torch.tensor([[1.0, 0.0], [1.0, 0.0]]))
    tensor(0.5000)
    """
    if len(z) == 0:
        return z.sum() * 0.0
    return (1 - paired_cosine(z, z_old.detach())).mean()


class FeatureDistillationLoss(nn.Module):
    """``feature_distillation`` as a module.

    >>> FeatureDistillationLoss()(torch.tensor([[2.0, 0.0]]), torch.tensor([[0.0, 1.0]])).item()
    1.0
    """

    def forward(self, z: Tensor, z_old: Tensor) -> Tensor:
        return feature_distillation(z, z_old)


def squared_distillation(z: Tensor, z_old: Tensor) -> Tensor:
    """Mean over the batch and the d entries of (z - z_old)^2, in at least float32.

    z, z_old: raw features of the same images under the new and the previous model, N x d.
    """
    if len(z) == 0:
        return z.sum() * 0.0
    return (at_least_float32(z) - at_least_float32(z_old.detach())).square().mean()


class SquaredDistillationLoss(nn.Module):
    """``squared_distillation`` as a module.

    >>> SquaredDistillationLoss()(torch.tensor([[2.0, 0.0]]), torch.tensor([[0.0, 0.0]])).item()
    2.0
    """

    def forward(self, z: Tensor, z_old: Tensor) -> Tensor:
        return squared_distillation(z, z_old)


def softened_distillation(logits: Tensor, old_logits: Tensor, *, temperature: float = 2.0) -> Tensor:
    """Mean cross-entropy between softmax(old_logits / T) and softmax(logits / T), in at least float32.

    logits, old_logits: logits of the same images under the new and the previous model, N x n.
    temperature: T.
    """
    if len(logits) == 0:
        return logits.sum() * 0.0
    with torch.autocast(logits.device.type, enabled=False):
        targets = F.softmax(at_least_float32(old_logits.detach()) / temperature, dim=1)
        return F.cross_entropy(at_least_float32(logits) / temperature, targets)


class SoftenedDistillationLoss(nn.Module):
    """``softened_distillation`` as a module.

    temperature: T.

    >>> round(SoftenedDistillationLoss()(torch.zeros(1, 2), torch.zeros(1, 2)).item(), 4)  # log 2
    0.6931
    """

    def __init__(self, *, temperature: float = 2.0) -> None:
        super().__init__()
        self.temperature = temperature

    def forward(self, logits: Tensor, old_logits: Tensor) -> Tensor:
        return softened_distillation(logits, old_logits, temperature=self.temperature)


def neighbour_triplet(z: Tensor, z_old: Tensor, labels: Tensor, *, margin: float = 0.1) -> Tensor:
    """CVS: mean of max(0, |n(z_i) - n(z_old_i)| - |n(z_i) - n(z_old_j)| + margin), with n(.) the unit vector.

    z, z_old: features of the same images under the new and the previous model, N x d.
    labels: N.
    margin: in units of the Euclidean distance, which is not squared.

    j is the image of another class with the old feature nearest to n(z_i). An image without such a j is left out of
    the mean. If all are left out (a batch of one class), the term is 0.
    """
    if len(z) == 0:
        return z.sum() * 0.0
    anchor, old = unit(z), unit(z_old.detach())
    with torch.no_grad(), torch.autocast(z.device.type, enabled=False):
        other = labels[:, None] != labels[None, :]
        hardest = (anchor @ old.T).masked_fill(~other, float("-inf")).argmax(1)
    counts = other.any(1)
    closer = (anchor - old).norm(dim=1) - (anchor - old[hardest]).norm(dim=1)
    return F.relu(closer + margin).where(counts, 0.0).sum() / counts.sum().clamp(min=1)


class NeighbourTripletLoss(nn.Module):
    """``neighbour_triplet`` as a module.

    margin: in units of the Euclidean distance.

    >>> z = torch.eye(2)
    >>> NeighbourTripletLoss(margin=0.5)(z, z, torch.tensor([0, 1])).item()  # sqrt 2 apart: outside the margin
    0.0
    """

    def __init__(self, *, margin: float = 0.1) -> None:
        super().__init__()
        self.margin = margin

    def forward(self, z: Tensor, z_old: Tensor, labels: Tensor) -> Tensor:
        return neighbour_triplet(z, z_old, labels, margin=self.margin)
