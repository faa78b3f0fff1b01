"""One term of one equation per function, in float32 whatever the autocast around."""

from holdfast.losses.cross_entropy import cross_entropy, simplex_cross_entropy
from holdfast.losses.distillation import feature_distillation
from holdfast.losses.hoc import hoc_loss, hoc_terms
from holdfast.losses.info_nce import Negatives, info_nce

__all__ = [
    "Negatives",
    "cross_entropy",
    "feature_distillation",
    "hoc_loss",
    "hoc_terms",
    "info_nce",
    "simplex_cross_entropy",
]
