"""Metrics as functions of arrays: compatibility, identification, verification and intervals. Scores are in [0, 1]."""

from holdfast.metrics.compatibility import (
    average_accuracy,
    average_accuracy_up_to,
    average_compatibility,
    average_compatibility_up_to,
    average_compatible_accuracy,
    beats,
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
from holdfast.metrics.resampling import (
    draw_weights,
    exact_mcnemar,
    gain_interval,
    mean_interval,
    percentile_interval,
    resampled_means,
)
from holdfast.metrics.verification import (
    pair_scores,
    roc_auc,
    tar_at_far,
    threshold_at_far,
    verification_pairs,
    weighted_roc_auc,
    weighted_tar_at_far,
)

__all__ = [
    "average_accuracy",
    "average_accuracy_up_to",
    "average_compatibility",
    "average_compatibility_up_to",
    "average_compatible_accuracy",
    "average_precision",
    "beats",
    "compatibility_summary",
    "compatible_pairs",
    "draw_weights",
    "exact_mcnemar",
    "gain_interval",
    "mean_average_precision",
    "mean_interval",
    "pair_scores",
    "percentile_interval",
    "queries_without_match",
    "read_matrix",
    "resampled_means",
    "roc_auc",
    "tar_at_far",
    "threshold_at_far",
    "top_k_accuracy",
    "verification_pairs",
    "weighted_roc_auc",
    "weighted_tar_at_far",
]
