"""One term of one equation per function, in at least float32 under any autocast.

The main terms also exist as modules, named ``...Loss``. A module holds the options and calls its function.
"""

from holdfast.train.losses.adversarial import (
    discrimination,
    elastic_radii,
    epoch_weight,
    reversal_coefficient,
    reversed_gradient,
)
from holdfast.train.losses.anchors import anchor_contrast, anchor_distillation, earliest_anchors, known_anchors
from holdfast.train.losses.classes import class_counts, class_means, largest_radii, least_cosines
from holdfast.train.losses.compatibility_loss import CompatibilityLoss, compatibility_contrast
from holdfast.train.losses.cross_entropy import (
    SimplexCrossEntropyLoss,
    cosine_logits,
    cross_entropy,
    linear_logits,
    margin_cosine_logits,
    simplex_cross_entropy,
)
from holdfast.train.losses.distillation_losses import (
    FeatureDistillationLoss,
    NeighbourTripletLoss,
    SoftenedDistillationLoss,
    SquaredDistillationLoss,
    feature_distillation,
    neighbour_triplet,
    softened_distillation,
    squared_distillation,
)
from holdfast.train.losses.hoc import HOCLoss, hoc_loss, hoc_terms
from holdfast.train.losses.info_nce import InfoNCELoss, Negatives, info_nce
from holdfast.train.losses.old_classes import (
    OldClassCrossEntropyLoss,
    align_both_ways,
    align_rows,
    boundary_hinge,
    centre_pull,
    elastic_limit,
    old_class_cross_entropy,
)

__all__ = [
    "CompatibilityLoss",
    "FeatureDistillationLoss",
    "HOCLoss",
    "InfoNCELoss",
    "Negatives",
    "NeighbourTripletLoss",
    "OldClassCrossEntropyLoss",
    "SimplexCrossEntropyLoss",
    "SoftenedDistillationLoss",
    "SquaredDistillationLoss",
    "align_both_ways",
    "align_rows",
    "anchor_contrast",
    "anchor_distillation",
    "boundary_hinge",
    "centre_pull",
    "class_counts",
    "class_means",
    "compatibility_contrast",
    "cosine_logits",
    "cross_entropy",
    "discrimination",
    "earliest_anchors",
    "elastic_limit",
    "elastic_radii",
    "epoch_weight",
    "feature_distillation",
    "hoc_loss",
    "hoc_terms",
    "info_nce",
    "known_anchors",
    "largest_radii",
    "least_cosines",
    "linear_logits",
    "margin_cosine_logits",
    "neighbour_triplet",
    "old_class_cross_entropy",
    "reversal_coefficient",
    "reversed_gradient",
    "simplex_cross_entropy",
    "softened_distillation",
    "squared_distillation",
]
