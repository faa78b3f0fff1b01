"""Statistics of classes from a model's features of their images: centre, boundary, radius."""

import torch
from torch import Tensor

from holdfast.train.geometry import unit


def class_means(z: Tensor, labels: Tensor, num_classes: int) -> Tensor:
    """Mean of the unit features of each class: num_classes x d, not normalised again; zero for an absent class."""
    features = unit(z)
    sums = features.new_zeros(num_classes, features.shape[1]).index_add_(0, labels, features)
    return sums / class_counts(labels, num_classes).clamp(min=1)[:, None]


def class_counts(labels: Tensor, num_classes: int) -> Tensor:
    """Number of ``labels`` equal to 0, 1, ... num_classes - 1."""
    return torch.bincount(labels, minlength=num_classes)


def least_cosines(z: Tensor, labels: Tensor, centres: Tensor) -> Tensor:
    """LCE's boundary: smallest cosine of each class's features with its unit centre; 1 for an absent class."""
    cosines = (unit(z) * centres[labels]).sum(1)
    return cosines.new_ones(len(centres)).scatter_reduce_(0, labels, cosines, "amin")


def largest_radii(z: Tensor, labels: Tensor, centres: Tensor) -> Tensor:
    """AdvBCT's radius: for each class the largest distance of its unit features from its centre, without outliers.

    An outlier is more than 1.5 interquartile ranges above the third quartile of its class. The lower fence cannot
    change the maximum. NaN for a class with fewer than two features.
    """
    distances = (unit(z) - centres[labels]).norm(dim=1)
    radii = distances.new_full((len(centres),), torch.nan)
    for label in labels.unique().tolist():
        own = distances[labels == label]
        if len(own) > 1:
            low, high = torch.quantile(own, torch.tensor([0.25, 0.75], dtype=own.dtype, device=own.device))
            # where, not a selection: a quartile of equal distances may round to just below them, and select none.
            radii[label] = own.where(own <= high + 1.5 * (high - low), own.min()).max()
    return radii
