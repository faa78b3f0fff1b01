"""Terms over images of classes that the previous model was trained on. Other images are left out of the means.

Classes are numbered in order of arrival. The previous model's classes are 0 .. n - 1, with n the number of its
classifier rows, centres or bounds. A mean over no image is 0. No value is copied back to the host.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from holdfast.train.geometry import at_least_float32, unit


def old_class_cross_entropy(old_logits: Tensor, labels: Tensor) -> Tensor:
    """BCT: cross-entropy of new features under the previous, frozen classifier.

    old_logits: the frozen classifier's logits of the new model's features, N x n.
    labels: N, in order of arrival; labels of n and above are left out.
    """
    counts = labels < old_logits.shape[1]
    targets = labels.where(counts, 0)
    with torch.autocast(old_logits.device.type, enabled=False):
        return masked_mean(F.cross_entropy(at_least_float32(old_logits), targets, reduction="none"), counts)


class OldClassCrossEntropyLoss(nn.Module):
    """``old_class_cross_entropy`` as a module.

    >>> loss = OldClassCrossEntropyLoss()
    >>> round(loss(torch.zeros(2, 2), torch.tensor([0, 5])).item(), 4)  # class 5 is new and left out: log 2
    0.6931
    """

    def forward(self, old_logits: Tensor, labels: Tensor) -> Tensor:
        return old_class_cross_entropy(old_logits, labels)


def boundary_hinge(z: Tensor, labels: Tensor, centres: Tensor, bounds: Tensor) -> Tensor:
    """LCE: mean of max(0, b_y - cos(z, c_y)), which is 0 for a feature inside its class boundary.

    z: features, N x d.
    labels: N.
    centres: unit rows c, n x d.
    bounds: smallest cosine b allowed for each class, n.

    Differs from the original code, which does not normalise the features and clamps the product instead.
    """
    counts = labels < len(centres)
    own = labels.where(counts, 0)
    return masked_mean(F.relu(bounds[own] - (unit(z) * centres[own]).sum(1)), counts)


def elastic_limit(z: Tensor, labels: Tensor, centres: Tensor, radii: Tensor) -> Tensor:
    """AdvBCT: |n(z) - c_y| - r_y, averaged over the images that are outside the radius of their class.

    z: features, N x d.
    labels: N.
    centres: class means c of unit features, n x d.
    radii: r, n; infinity for a class without a limit.
    """
    known = labels < len(centres)
    own = labels.where(known, 0)
    excess = (unit(z) - centres[own]).norm(dim=1) - radii[own]
    outside = known & (excess > 0)
    return masked_mean(excess.where(outside, 0.0), outside)


def centre_pull(z: Tensor, labels: Tensor, centres: Tensor) -> Tensor:
    """CVS: mean squared distance of n(z) from the centre that its class had when it was learned.

    z: features, N x d.
    labels: N.
    centres: n x d.
    """
    counts = labels < len(centres)
    own = labels.where(counts, 0)
    return masked_mean((unit(z) - centres[own]).square().sum(1), counts)


def align_rows(rows: Tensor, centres: Tensor) -> Tensor:
    """LCE: mean squared error over all entries between the unit classifier rows of old classes and their unit centres.

    rows, centres: n x d.

    The mean over entries equals (2/d) x mean(1 - cos), hence the large weight of this term in LCE.
    """
    return F.mse_loss(unit(rows), centres)


def align_both_ways(rows: Tensor, centres: Tensor, mapped_rows: Tensor, mapped_centres: Tensor) -> Tensor:
    """LCE with learned maps: mean of ``align_rows`` in the new model's space and in the old one's.

    rows, centres: as for ``align_rows``, n x d.
    mapped_rows: the rows, mapped to the old model's space, n x d; compared with the centres, not normalised.
    mapped_centres: the centres, mapped to the new model's space, n x d; compared with the unit rows, not normalised.
    """
    forward = F.mse_loss(at_least_float32(mapped_centres), unit(rows))
    backward = F.mse_loss(at_least_float32(mapped_rows), centres)
    return (forward + backward) / 2


def masked_mean(values: Tensor, counts: Tensor) -> Tensor:
    """Mean of ``values`` where ``counts`` is true; 0 if it is true nowhere."""
    return values.where(counts, 0.0).sum() / counts.sum().clamp(min=1)
