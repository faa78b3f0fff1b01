"""Maps between the spaces of two models, judged by real queries against keeping the old model."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from holdfast.checks.exchanged_inputs import refuse_equal_queries, refuse_exchanged_queries
from holdfast.checks.judged_queries import Relevance, judged_queries
from holdfast.checks.query_bridges import bridged_queries, fitted_notes
from holdfast.metrics.intervals import Interval, gain_interval, mean_interval, repeated_queries
from holdfast.metrics.ranking import ranking_score
from holdfast.vectors.feature_set import FeatureSet
from holdfast.vectors.pairing import pair_queries
from holdfast.vectors.search import VectorProblems, search_blocks, unit_blocks, unit_queries

KEEP = "keep the old model"


@dataclass(frozen=True)
class JudgedMaps:
    """What judged queries find with the old model (``KEEP``) and by each map.

    score: its name. queries: judged ones. values: by name. gains: over keeping, by name of a map.
    notes: what the numbers rest on, and warnings.
    """

    score: str
    queries: int
    values: dict[str, Interval]
    gains: dict[str, Interval]
    notes: list[str]


def judge_maps(
    index: FeatureSet,
    queries_old: FeatureSet,
    queries_new: FeatureSet,
    query_maps: Mapping[str, Callable[[Any], Any]],
    index_maps: Mapping[str, Callable[[Any], Any]] | None = None,
    *,
    relevance: Relevance | None = None,
    confidence: float = 0.95,
) -> JudgedMaps | None:
    """The score of the same queries by the old model and by each map, on the index of the old model.

    query_maps: new queries to the old space, by name. index_maps: stored vectors to the new space, by name.
    relevance: judgements, as ``compare`` takes them: nDCG@10. Without it classes decide: hit@1.
    Returns None if it is not known what the queries should find.
    """
    refuse_equal_queries(queries_old, queries_new)
    refuse_exchanged_queries(index, queries_old, queries_new)
    pairing = pair_queries(queries_old, queries_new)
    judged = judged_queries(relevance, pairing.names, pairing.labels, index)
    if judged is None:
        return None
    score, notes = ranking_score("hit@1" if relevance is None else "nDCG@10"), list(judged.notes)
    old, new = (
        unit_queries(part, numbers[judged.rows])[0]
        for part, numbers in ((queries_old, pairing.old), (queries_new, pairing.new))
    )
    bridged = {name: bridged_queries(fitted, new, queries_new, index) for name, fitted in query_maps.items()}
    searches: list[tuple[Any, dict[str, Any]]] = [(None, {KEEP: old, **bridged})]
    searches += [(convert, {name: new}) for name, convert in (index_maps or {}).items()]
    values = {}
    for convert, asked in searches:
        blocks = unit_blocks(index, VectorProblems(index.name, len(index)), lambda stage, done, total: None)
        converted = ((rows, part if convert is None else convert(part)) for rows, part in blocks)
        hits, _ = search_blocks(converted, list(asked.values()), score.k or 1, index.name)
        for name, found in zip(asked, hits, strict=True):
            values[name] = judged.values(score, found.indices, found.scores.astype(np.float64))
    for fitted in query_maps.values():
        notes += fitted_notes(fitted, new, queries_new, None)
    options: dict[str, Any] = {"groups": judged.groups, "repeats": repeated_queries(old, new), "confidence": confidence}
    return JudgedMaps(
        score.name,
        len(judged.rows),
        {name: mean_interval(part, **options) for name, part in values.items()},
        {name: gain_interval(values[KEEP], part, **options) for name, part in values.items() if name != KEEP},
        notes,
    )
