"""Terms that speak of classes the previous model knew; images of other classes do not count.

Classes are numbered by arrival, so those the previous model knew are 0 .. n - 1 with n the number of its rows, centres
or bounds. Every mean is over the images that count, and 0 where none does. Nothing is read back to the host.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from holdfast.geometry import unit, widened


def old_class_cross_entropy(old_logits: Tensor, labels: Tensor) -> Tensor:
    """BCT: cross-entropy of new features under the previous, frozen classifier (logits N x n)."""
    counts = labels < old_logits.shape[1]
    targets = labels.where(counts, 0)
    with torch.autocast(old_logits.device.type, enabled=False):
        return _mean(F.cross_entropy(widened(old_logits), targets, reduction="none"), counts)


def boundary_hinge(z: Tensor, labels: Tensor, centres: Tensor, bounds: Tensor) -> Tensor:
    """LCE: max(0, b_y - cos(z, c_y)); nothing while the feature is inside the boundary. centres: unit rows, n x d.

    Differs from the original code: it forgets to normalise the features and clamps the product instead.
    """
    counts = labels < len(centres)
    own = labels.where(counts, 0)
    return _mean(F.relu(bounds[own] - (unit(z) * centres[own]).sum(1)), counts)


def elastic_limit(z: Tensor, labels: Tensor, centres: Tensor, radii: Tensor) -> Tensor:
    """AdvBCT: max(0, |n(z) - c_y| - r_y), the mean over the images that are outside."""
    known = labels < len(centres)
    own = labels.where(known, 0)
    excess = (unit(z) - centres[own]).norm(dim=1) - radii[own]
    outside = known & (excess > 0)
    return _mean(excess.where(outside, 0.0), outside)


def centre_pull(z: Tensor, labels: Tensor, centres: Tensor) -> Tensor:
    """CVS: squared distance of n(z) from the centre its class had when it was learned."""
    counts = labels < len(centres)
    own = labels.where(counts, 0)
    return _mean((unit(z) - centres[own]).square().sum(1), counts)


def align_rows(rows: Tensor, centres: Tensor) -> Tensor:
    """LCE: mean squared error, over all entries, between the unit rows of old classes and their unit centres.

    The mean over entries makes it (2/d) x mean(1 - cos), hence the large weight it is used with.
    """
    return F.mse_loss(unit(rows), centres)


def _mean(values: Tensor, counts: Tensor) -> Tensor:
    return values.where(counts, 0.0).sum() / counts.sum().clamp(min=1)
