"""Both models at query time: candidates of the old index, scored by the new model. Nothing is re-embedded before."""

from holdfast.upgrade.strategies import (
    Candidates,
    blended_queries,
    candidate_scores,
    combined_scores,
    merged_candidates,
    ranked,
    standardised,
)

__all__ = [
    "Candidates",
    "blended_queries",
    "candidate_scores",
    "combined_scores",
    "merged_candidates",
    "ranked",
    "standardised",
]
