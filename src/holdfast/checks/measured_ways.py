"""The ways to serve an upgrade, measured: the score of every query by each way, and what the way costs."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.bridges import Bridge, IndexMap
from holdfast.bridges.choice import FEWEST_PAIRS
from holdfast.checks.judged_queries import JudgedQueries
from holdfast.core.errors import HoldfastError
from holdfast.metrics.intervals import repeated_queries
from holdfast.metrics.ranking import RankingScore
from holdfast.upgrade.strategies import (
    BLEND_WEIGHT,
    Candidates,
    blended_queries,
    candidate_scores,
    combined_scores,
    merged_candidates,
    ranked,
)
from holdfast.vectors.feature_set import FeatureSet
from holdfast.vectors.lengths import unit
from holdfast.vectors.neighbours import merge_neighbours, nearest
from holdfast.vectors.search import Progress, VectorProblems, float32, search_blocks, unit_blocks

Floats = NDArray[np.float64]
COUNTS = (20, 50, 100, 200)
SHARES = (0.1, 0.5, 0.9)
TESTED_COUNT = 50
SOURCES = ("old", "bridge", "both")
_WEIGHTS = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
_QUERIES_AT_ONCE = 16


class Searches:
    """The vectors of one comparison, and the searches that its ways share."""

    def __init__(
        self,
        old: FeatureSet,
        new: FeatureSet,
        old_queries: NDArray[np.float32],
        new_queries: NDArray[np.float32],
        judged: JudgedQueries,
        score: RankingScore,
        progress: Progress,
        draw: np.random.Generator,
    ) -> None:
        self.old, self.new, self.judged, self.score = old, new, judged, score
        self.old_queries, self.new_queries = old_queries, new_queries
        self.progress, self.draw = progress, draw
        self.repeats = repeated_queries(old_queries, new_queries)

    def blocks(self, part: FeatureSet, convert: Callable[[Any], Any] | None = None) -> Any:
        for numbers, features in unit_blocks(part, VectorProblems(part.name, len(part)), self.progress):
            yield numbers, features if convert is None else convert(features)

    def search(self, part: FeatureSet, query_sets: Sequence[Any], depth: int, convert: Any = None) -> list[Candidates]:
        hits, _ = search_blocks(self.blocks(part, convert), query_sets, min(depth, len(part)), part.name)
        return [Candidates(found.indices, found.scores.astype(np.float64)) for found in hits]

    def mixed(self, bridge: Bridge, shares: Sequence[float], depth: int) -> list[Candidates]:
        """An index of which a share was re-embedded at random: old items by bridged queries, on the new scale."""
        place = self.draw.random(len(self.old))
        bridged = bridge.transform(self.new_queries)
        best: list[Any] = [None] * len(shares)
        for part, queries, is_new in ((self.old, bridged, False), (self.new, self.new_queries, True)):
            for numbers, features in self.blocks(part):
                for i, share in enumerate(shares):
                    rows = np.flatnonzero((place[numbers] < share) == is_new)
                    if len(rows):
                        hits = nearest(queries, features[rows], min(depth, len(rows)))
                        scores = hits.scores if is_new else bridge.scale(hits.scores).astype(np.float32)
                        hits = type(hits)(scores, numbers[rows][hits.indices])
                        best[i] = hits if best[i] is None else merge_neighbours(best[i], hits, depth)
        return [Candidates(found.indices, found.scores.astype(np.float64)) for found in best]

    def new_scores(self, found: Candidates) -> Floats:
        """Cosines by the new model of each query with its candidates: Q x C."""
        scores = np.full(found.items.shape, -np.inf)
        for start in range(0, len(scores), _QUERIES_AT_ONCE):
            rows = slice(start, start + _QUERIES_AT_ONCE)
            numbers, place = np.unique(found.items[rows], return_inverse=True)
            vectors = float32(self.new.rows.take(numbers))
            scores[rows] = candidate_scores(self.new_queries[rows], vectors[place.reshape(found.items[rows].shape)])
        return np.where(found.scores > -np.inf, scores, -np.inf)

    def values(self, hits: Candidates) -> Floats:
        """The score of each query."""
        return self.judged.values(self.score, hits.items, hits.scores)


@dataclass(frozen=True)
class FittedBridges:
    """The map of queries, the map of stored vectors, and the number of pairs they were fitted on."""

    query: Bridge | None
    index: IndexMap | None
    pairs: int


def fitted_bridges(run: Searches, bridge: Bridge | None, pairs: int) -> FittedBridges:
    if bridge is not None and tuple(bridge.dims) != (run.new.dim, run.old.dim):
        raise HoldfastError(
            f"the bridge goes from {bridge.dims[0]} to {bridge.dims[1]} numbers, but the new model has {run.new.dim} "
            f"and the old one {run.old.dim}"
        )
    count = min(pairs, len(run.old))
    if count < FEWEST_PAIRS:
        return FittedBridges(bridge, None, 0)
    rows = np.sort(run.draw.choice(len(run.old), count, replace=False))
    old, new = (float32(part.rows.take(rows)) for part in (run.old, run.new))
    usable = np.isfinite(old).all(1) & np.isfinite(new).all(1) & old.any(1) & new.any(1)
    old, new = unit(old[usable]), unit(new[usable])
    if len(old) < FEWEST_PAIRS:
        return FittedBridges(bridge, None, 0)
    items = len(run.old) if len(run.old) > len(old) else None
    query = bridge or Bridge.fit(new=new, old=old, items=items)
    return FittedBridges(query, IndexMap.fit(new=new, old=old), len(old))


@dataclass(frozen=True)
class Cost:
    """What a way costs; see ``Way``."""

    now: int = 0
    per_query: int = 0
    ms: float = 0.0
    storage: int = 0


def way_name(source: str, count: int, weight: float) -> str:
    """The name of the row of a two-stage search.

    >>> way_name("old", 50, 0.7), way_name("both", 20, 1.0)
    ('two-stage@50, old query, both scores (0.7)', 'two-stage@20, both queries, new score')
    """
    by = {"old": "old query", "bridge": "bridged query", "both": "both queries"}[source]
    scored = "new score" if weight == 1 else f"both scores ({weight:g})"
    return f"two-stage@{count}, {by}, {scored}"


def measured_ways(
    run: Searches, fitted: FittedBridges, weight: float, kind: str, policy: Mapping[str, Any], seed: int
) -> tuple[dict[str, Floats], dict[str, Cost]]:
    """The score of every query by every way that can be measured, and its cost."""
    deepest = max(*COUNTS, policy["candidates"] if kind == "two-stage" else 0)
    queries = len(run.judged.rows)
    new_bytes, whole = 4 * run.new.dim, len(run.old)
    kept = Cost(per_query=0)
    values: dict[str, Floats] = {}
    costs: dict[str, Cost] = {}

    def add(name: str, hits: Candidates, cost: Cost) -> None:
        values[name], costs[name] = run.values(hits), cost

    def per_query(begin: float) -> float:
        return 1000 * (time.perf_counter() - begin) / queries

    begin = time.perf_counter()
    (by_old,) = run.search(run.old, [run.old_queries], deepest)
    search_ms = per_query(begin)
    add("keep", by_old, kept)
    if run.old.dim == run.new.dim:
        add("swap", run.search(run.old, [run.new_queries], deepest)[0], kept)
    by_source = {"old": by_old}
    bridge_ms = 0.0
    if fitted.query is not None:
        begin = time.perf_counter()
        bridged = fitted.query.transform(run.new_queries)
        bridge_ms = per_query(begin)
        mixture = blended_queries(run.old_queries, bridged, BLEND_WEIGHT)
        by_source["bridge"], blend = run.search(run.old, [bridged, mixture], deepest)
        add("bridge", by_source["bridge"], Cost(fitted.pairs, ms=bridge_ms))
        add("blend", blend, Cost(fitted.pairs, ms=bridge_ms))
    source_ms = {"old": 0.0, "bridge": bridge_ms, "both": bridge_ms + search_ms}
    scored: dict[tuple[str, int], tuple[Candidates, Floats, Cost]] = {}
    new_scores: dict[str, Floats] = {}
    score_ms: dict[str, float] = {}
    for source, found in by_source.items():
        begin = time.perf_counter()
        new_scores[source] = run.new_scores(found)
        score_ms[source] = per_query(begin) / found.items.shape[1]
    counts = sorted({*COUNTS, policy["candidates"]} if kind == "two-stage" else COUNTS)
    for count in (number for number in counts if number <= whole or number == counts[0]):
        for source in SOURCES:
            if source == "both" and "bridge" in by_source:
                parts = [by_source[name].first(count) for name in ("old", "bridge")]
                found = merged_candidates(parts[0], parts[1], count)
                new = _looked_up(found, by_source, new_scores, count)
            elif source in by_source:
                found = by_source[source].first(count)
                new = new_scores[source][:, :count]
            else:
                continue
            pairs = 0 if source == "old" else fitted.pairs
            ms = source_ms[source] + count * score_ms["old"]
            scored[source, count] = found, new, Cost(pairs, count, ms, whole * new_bytes)
    for (source, count), (found, new, cost) in scored.items():
        for used in sorted({1.0, weight}, reverse=True):
            add(way_name(source, count, used), ranked(found.items, combined_scores(found.scores, new, used)), cost)
    for source in SOURCES:
        if (source, TESTED_COUNT) in scored:
            found, new, cost = scored[source, TESTED_COUNT]
            tried = [run.values(ranked(found.items, combined_scores(found.scores, new, used))) for used in _WEIGHTS]
            name = f"two-stage@{TESTED_COUNT}, {way_name(source, 1, 1.0).split(', ')[1]}, weight chosen on half"
            values[name], costs[name] = _cross_fitted(np.stack(tried), np.random.default_rng(seed)), cost
    if fitted.index is not None:
        (converted,) = run.search(run.old, [run.new_queries], deepest, fitted.index)
        add("converted index", converted, Cost(fitted.pairs, storage=whole * new_bytes))
    if fitted.query is not None:
        for share, hits in zip(SHARES, run.mixed(fitted.query, SHARES, deepest), strict=True):
            again = round(share * whole)
            now = min(whole, again + round((1 - share) * fitted.pairs))
            add(mixed_name(share), hits, Cost(now, ms=bridge_ms, storage=again * new_bytes))
    add("re-embed", run.search(run.new, [run.new_queries], deepest)[0], Cost(whole, storage=whole * new_bytes))
    return values, costs


def mixed_name(share: float) -> str:
    return f"mixed, {100 * share:g} % re-embedded"


def _looked_up(
    found: Candidates, by_source: Mapping[str, Candidates], scores: Mapping[str, Floats], count: int
) -> Floats:
    """The new scores of merged candidates, each of which is among the first ``count`` of one source."""
    out = np.full(found.items.shape, -np.inf)
    for source, single in by_source.items():
        same = found.items[:, :, None] == single.items[:, None, :count]
        row, place, column = np.nonzero(same & (single.scores[:, None, :count] > -np.inf))
        out[row, place] = scores[source][row, column]
    return np.where(found.scores > -np.inf, out, -np.inf)


def _cross_fitted(tried: Floats, draw: np.random.Generator) -> Floats:
    """The scores (Q) with a setting that was chosen on the other half of the queries. tried: settings x Q."""
    order = draw.permutation(tried.shape[1])
    halves = order[: len(order) // 2], order[len(order) // 2 :]
    values = np.empty(tried.shape[1])
    for mine, other in (halves, halves[::-1]):
        best = int(np.nanmean(tried[:, other], axis=1).argmax()) if len(other) else 0
        values[mine] = tried[best, mine]
    return values
