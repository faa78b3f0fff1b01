"""Functions, arrays in, numbers out: compatibility, identification, verification. Numpy only; scores in [0, 1]."""

from holdfast.metrics.compatibility import (
    average_accuracy,
    average_accuracy_up_to,
    average_compatibility,
    average_compatibility_up_to,
    average_compatible_accuracy,
    compatibility_summary,
    compatible_pairs,
)
from holdfast.metrics.identification import (
    average_precision,
    mean_average_precision,
    queries_without_match,
    top_k_accuracy,
)
from holdfast.metrics.matrix_file import read_matrix
from holdfast.metrics.verification import pair_scores, roc_auc, tar_at_far, verification_pairs

__all__ = [
    "average_accuracy",
    "average_accuracy_up_to",
    "average_compatibility",
    "average_compatibility_up_to",
    "average_compatible_accuracy",
    "average_precision",
    "compatibility_summary",
    "compatible_pairs",
    "mean_average_precision",
    "pair_scores",
    "queries_without_match",
    "read_matrix",
    "roc_auc",
    "tar_at_far",
    "top_k_accuracy",
    "verification_pairs",
]
