"""Without judgements: how alike two searches are. None of these numbers says whether people find more."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from holdfast.checks.estimates import Design, mean_estimate, mean_interval
from holdfast.checks.inputs import items_of_both, reembedded_hits
from holdfast.checks.query_outcomes import run_queries, usable
from holdfast.checks.result import Agreement, Overlap
from holdfast.checks.scores import OVERLAP, OVERLAP_AT, chance
from holdfast.checks.verdict import Gate, gates_answer
from holdfast.vectors.feature_set import FeatureSet
from holdfast.vectors.search import Progress, VectorProblems, search_blocks, unit_blocks


def agreement_with_reembedding(
    galleries: tuple[FeatureSet, FeatureSet],
    query_sets: Sequence[np.ndarray],
    plain: np.ndarray,
    minimum: float | None,
    design: Design,
    device: Any,
    progress: Progress,
) -> tuple[Agreement, str, list[VectorProblems], int]:
    """The share of a re-embedding's first ten items that searches of the old gallery show.

    galleries: the old one and the re-embedded one; only items of both are searched.
    query_sets: unit queries of the old model, and of the new one as they search the old gallery.
    plain: the new model's unit queries, which search the re-embedded gallery.
    minimum: the share asked for; None asks for nothing.
    Returns also the sentence about the gate, unusable vectors, and the number of items searched.
    """
    gallery, gallery_new = items_of_both(*galleries), galleries[1]
    answers, problems = reembedded_hits(gallery, gallery_new, plain, device, progress)
    chance(OVERLAP, answers, len(gallery))  # refuses what cannot differ
    searched = run_queries(gallery, answers, query_sets, OVERLAP, device=device, progress=progress)
    old, new = (mean_estimate(outcomes.values, design) for outcomes in searched.outcomes)
    gate, reason = None, ""
    if minimum is not None:
        units = mean_interval(searched.outcomes[0].values, design).distinct
        gate, reason = gates_answer([Gate("the share of a re-embedding's hits", new, minimum)], units, "queries")
    return Agreement(OVERLAP_AT, old, new, minimum, gate), reason, [searched.problems, problems], len(gallery)


HITS = 10


def overlap_of_hits(
    gallery: FeatureSet,
    query_sets: Sequence[np.ndarray],
    design: Design,
    device: Any,
    progress: Progress,
) -> tuple[Overlap, VectorProblems]:
    """The share of the first ten hits that old and new queries have in common, and how often the first is the same."""
    problems = VectorProblems(gallery.name, len(gallery))
    k = min(HITS, len(gallery))
    (old, new), _ = search_blocks(unit_blocks(gallery, problems, progress), query_sets, k, gallery.name, device)
    # A query of zeros finds nothing, in either search.
    both = usable(query_sets[0]) & usable(query_sets[1])
    shared = (old.indices[:, :, None] == new.indices[:, None, :]).any(2).mean(1) * both
    first = (old.indices[:, 0] == new.indices[:, 0]).astype(np.float64) * both
    return Overlap(k, mean_estimate(shared, design), mean_estimate(first, design)), problems
