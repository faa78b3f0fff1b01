"""The strategies that are compared, and the numbers of one strategy at one seed.

A strategy is a way to train and a way to search vectors that an earlier version stored.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from holdfast import Bridge
from holdfast.bridges import NONE, measure_scale
from holdfast.metrics.exposure import StoredItems
from holdfast.train.space_map import SpaceMap, map_features
from papers.quarters.measure import (
    Threshold,
    blended,
    exposures,
    grown_gallery,
    one_version,
    ranking,
    rescored,
    scores,
)
from papers.quarters.study_data import TABLES, Split, StudyData
from papers.quarters.trainees import (
    CVS,
    DISTILLATION,
    DISTILLATION_RANDOM,
    FAN,
    HOC,
    OURS,
    PLAIN,
    PLAIN_RANDOM,
    RAW,
    TURNED,
)
from papers.quarters.trainings import Trained

Search = Literal[
    "never", "reembedded", "old index", "bridge", "blend", "two-stage", "two encoders", "two encoders, scaled",
    "mapped gallery",
]  # fmt: skip
CANDIDATES = 50
"""Candidates of the old query that two-stage search scores with the new model."""
BRIDGED_SHARE = 0.3
"""Weight of the bridged query's score in a blend; the old query's score has the rest. Chosen on other data."""


@dataclass(frozen=True)
class Strategy:
    """name: of its result files. title: in tables. training: a way to train. search: how old vectors are searched."""

    name: str
    title: str
    training: str
    search: Search


STRATEGIES = (
    Strategy("raw", "no training: the network's own vectors", RAW, "never"),
    Strategy("never", "never update", PLAIN, "never"),
    Strategy("plain-reembedded", "plain, everything re-embedded", PLAIN, "reembedded"),
    Strategy("plain", "plain, old index", PLAIN, "old index"),
    Strategy("plain-bridge", "plain + bridge", PLAIN, "bridge"),
    Strategy("plain-blend", "plain, blend", PLAIN, "blend"),
    Strategy("plain-two-stage", "plain, two-stage@50", PLAIN, "two-stage"),
    Strategy("plain-two-encoders", "plain, old encoders kept for queries", PLAIN, "two encoders"),
    Strategy("plain-two-encoders-scaled", "plain, old encoders kept, scores scaled", PLAIN, "two encoders, scaled"),
    Strategy("plain-random", "plain, rows from random", PLAIN_RANDOM, "old index"),
    Strategy("plain-random-bridge", "plain, rows from random, + bridge", PLAIN_RANDOM, "bridge"),
    Strategy("cvs", "CVS", CVS, "old index"),
    Strategy("fan", "FAN (maps all stored vectors)", FAN, "mapped gallery"),
    Strategy("distillation", "distillation", DISTILLATION, "old index"),
    Strategy("distillation-bridge", "distillation + bridge", DISTILLATION, "bridge"),
    Strategy("distillation-blend", "distillation, blend", DISTILLATION, "blend"),
    Strategy("distillation-two-stage", "distillation, two-stage@50", DISTILLATION, "two-stage"),
    Strategy("distillation-random", "distillation, rows from random", DISTILLATION_RANDOM, "old index"),
    Strategy("distillation-random-bridge", "distillation, rows from random, + bridge", DISTILLATION_RANDOM, "bridge"),
    Strategy("hoc", "d-Simplex-HOC as the paper has it", HOC, "old index"),
    Strategy("hoc-bridge", "d-Simplex-HOC as the paper has it + bridge", HOC, "bridge"),
    Strategy("turned", "d-Simplex-HOC, turned", TURNED, "old index"),
    Strategy("turned-bridge", "d-Simplex-HOC, turned, + bridge", TURNED, "bridge"),
    Strategy("turned-blend", "d-Simplex-HOC, turned, blend", TURNED, "blend"),
    Strategy("turned-two-stage", "d-Simplex-HOC, turned, two-stage@50", TURNED, "two-stage"),
    Strategy("ours", "Cosine-HOC", OURS, "old index"),
    Strategy("ours-bridge", "Cosine-HOC + bridge", OURS, "bridge"),
)
"""In the order of the tables."""

CEILING = "plain-reembedded"
TWO_SCORES = ("blend", "two-stage")
"""Searches that rank by scores of two models."""


class Measured:
    """One table of one training at one seed. Vectors and bridges are computed once for all strategies.

    split: queries, gallery and pairs.
    queries, gallery, pairs: their unit vectors under each version, oldest first.
    maps: for each version the map from the version before into its space, or None.
    seed: of the bridges and of the mixed gallery.
    """

    def __init__(
        self,
        split: Split,
        queries: Sequence[Tensor],
        gallery: Sequence[Tensor],
        pairs: Sequence[Tensor],
        maps: Sequence[SpaceMap | None],
        seed: int,
    ) -> None:
        self.split, self.queries, self.gallery, self.pairs, self.maps = split, queries, gallery, pairs, maps
        self.seed = seed
        self.versions = len(queries)
        self.version_of = grown_gallery(len(split.gallery), self.versions, seed)
        self._bridges: dict[tuple[int, int], Bridge] = {}

    def bridge(self, t: int, k: int) -> Bridge:
        """From version t to version k, chosen without labels; "none" is a candidate."""
        if (t, k) not in self._bridges:
            self._bridges[t, k] = Bridge.fit(new=self.pairs[t], old=self.pairs[k], seed=self.seed)
        return self._bridges[t, k]

    def searched(self, search: Search, t: int, k: int) -> "Searched":
        """How version t's users search version k's vectors."""
        queries, gallery = self.queries[t], self.gallery[k]
        if t == k:
            return Searched(queries, gallery)
        if search == "reembedded":
            return Searched(queries, self.gallery[t])
        if search in ("two encoders", "never"):
            return Searched(self.queries[k], gallery)
        if search == "two encoders, scaled":
            ours, theirs = self.pairs[t].numpy(), self.pairs[k].numpy()
            return Searched(self.queries[k], gallery, measure_scale(theirs, theirs, ours))
        if search == "mapped gallery":
            return Searched(queries, map_features(gallery, self.maps[k + 1 : t + 1]))
        if search == "bridge":
            bridge = self.bridge(t, k)
            return Searched(torch.from_numpy(bridge(queries)), gallery, bridge.scale, bridge)
        return Searched(queries, gallery)

    def scores(self, stored: Sequence[StoredItems]) -> dict[str, float]:
        return self.scores_of(ranking(stored))

    def scores_of(self, ranked: np.ndarray) -> dict[str, float]:
        return scores(ranked, self.split.query_codes, self.split.gallery_codes)

    def stored(self, search: Search, t: int, version_of: np.ndarray) -> list[StoredItems]:
        """Each version's part of a gallery as version t's users search it. version_of: of each item, from 0."""
        parts = []
        for k in np.unique(version_of).tolist():
            rows = np.flatnonzero(version_of == k)
            found = self.searched(search, t, k)
            scaled = {} if found.scale is None else {"scale": found.scale}
            parts.append(StoredItems(rows, found.gallery[rows], found.queries, **scaled))
        return parts

    def ranked(self, search: Search, t: int, version_of: np.ndarray) -> np.ndarray:
        """The ranking of all items for version t's users. version_of: the version that embedded each item."""
        if search == "blend":
            parts = [self.stored(way, t, version_of) for way in ("two encoders, scaled", "bridge")]
            return blended(parts[0], parts[1], BRIDGED_SHARE)
        if search == "two-stage":
            first = ranking(self.stored("two encoders, scaled", t, version_of))
            return rescored(first, CANDIDATES, self.queries[t], self.gallery[t])
        return ranking(self.stored(search, t, version_of))

    @cached_property
    def own(self) -> list[dict[str, float]]:
        """Each version on its own gallery."""
        return [self.scores(one_version(self.gallery[t], self.queries[t])) for t in range(self.versions)]

    @cached_property
    def fair(self) -> np.ndarray:
        """The ranking with everything re-embedded by the last version."""
        return ranking(one_version(self.gallery[-1], self.queries[-1]))

    @cached_property
    def threshold(self) -> Threshold:
        codes = self.split.query_codes, self.split.gallery_codes
        return Threshold(self.queries[0], self.gallery[0], *codes)


@dataclass(frozen=True)
class Searched:
    """Queries and stored vectors in one space, the scale of their scores in a mixed gallery, and the bridge if any."""

    queries: Tensor
    gallery: Tensor
    scale: Callable[[np.ndarray], np.ndarray] | None = None
    bridge: Bridge | None = None

    def about_bridge(self) -> dict[str, Any]:
        if self.bridge is None:
            return {}
        options = self.bridge.options if self.bridge.kind != NONE else {}
        return {"bridge": {"kind": self.bridge.kind, **options, "seconds": self.bridge.evidence.seconds}}


def numbers(measured: Measured, search: Search) -> dict[str, Any]:
    """The numbers of one table.

    own: each version on a gallery that it embedded itself.
    cells: version t's users on version k's gallery, for all t > k.
    mixed: the last version's users on a gallery that grew over all versions, and the exposure ratios at 10.
    threshold: shares of pairs that pass a threshold chosen on the first version, for the last one's users on the first
        gallery, and on a gallery that the last version re-embedded. Not for searches with scores of two kinds.
    """
    last = measured.versions - 1
    own = measured.own if search != "never" else [measured.own[0]] * measured.versions
    cells = []
    for t in range(1, measured.versions):
        for k in range(t):
            if search == "never":
                continue
            if search in TWO_SCORES:
                one_old_version = np.full(len(measured.split.gallery), k)
                score = measured.scores_of(measured.ranked(search, t, one_old_version))
                cells.append({"queries": t + 1, "gallery": k + 1, **score})
                continue
            found = measured.searched(search, t, k)
            score = own[t] if search == "reembedded" else measured.scores(one_version(found.gallery, found.queries))
            cells.append({"queries": t + 1, "gallery": k + 1, **score, **found.about_bridge()})
    table = {"own": own, "cells": cells, "mixed": _mixed(measured, search)}
    if search in TWO_SCORES:
        return table
    first = measured.searched(search, last, 0)
    return {
        **table,
        "threshold": {
            "first": measured.threshold.passed(measured.queries[0], measured.gallery[0]),
            "old_index": measured.threshold.passed(first.queries, first.gallery),
            "reembedded": measured.threshold.passed(measured.queries[last], measured.gallery[last]),
        },
    }


def _mixed(measured: Measured, search: Search) -> dict[str, Any]:
    last, version_of = measured.versions - 1, measured.version_of
    if search == "never":
        return {**measured.own[0], "exposure@10": [1.0] * measured.versions}
    ranked = measured.ranked(search, last, version_of)
    return {
        **measured.scores_of(ranked),
        "exposure@10": exposures(ranked, measured.fair, version_of, measured.versions),
    }


def tables(data: StudyData, trained: Trained, seed: int) -> Mapping[str, Measured]:
    """Both tables of one training."""
    found = {}
    for table in TABLES:
        split = data.split(table, seed)
        queries, gallery, pairs = (
            trained.embedded(data.searched(rows)) for rows in (split.queries, split.gallery, split.pairs)
        )
        found[table] = Measured(split, queries, gallery, pairs, trained.maps, seed)
    return found
