"""Both models at query time: candidates of the old index, scored by the new model. Nothing is re-embedded before."""

from holdfast.upgrade.new_vectors import NewVectors, content_hash
from holdfast.upgrade.strategies import (
    Candidates,
    blended_queries,
    candidate_scores,
    combined_scores,
    merged_candidates,
    ranked,
    standardised,
)
from holdfast.upgrade.upgrade import Upgrade, UpgradeAnswer, UpgradeHit

__all__ = [
    "Candidates",
    "NewVectors",
    "Upgrade",
    "UpgradeAnswer",
    "UpgradeHit",
    "blended_queries",
    "candidate_scores",
    "combined_scores",
    "content_hash",
    "merged_candidates",
    "ranked",
    "standardised",
]
