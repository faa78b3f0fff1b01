"""The check of a gallery whose items were embedded by several models: accuracy, and how often each version is shown."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from holdfast.checks.check import NO_JUDGEMENTS, check_options
from holdfast.checks.estimates import (
    Estimate,
    Resampling,
    gain_interval,
    mean_estimate,
    mean_interval,
    share_of_means,
    units_needed,
)
from holdfast.checks.exchanged_inputs import refuse_equal_queries
from holdfast.checks.inputs import AGREEMENT, GroundTruths, Relevance, ground_truths
from holdfast.checks.query_bridges import QueryBridge, bridge_record, bridged_queries, fitted_notes
from holdfast.checks.query_outcomes import ClassGroundTruth, GroundTruth, RelevanceGroundTruth, usable
from holdfast.checks.result import MixedResult, MixedVersion, VersionSearch
from holdfast.checks.scores import OVERLAP, Score, parse_score
from holdfast.checks.verdict import (
    NOT_JUDGED,
    VERDICTS,
    Gate,
    accepted_loss,
    answer_about,
    better_answer,
    gates_answer,
    share_asked,
)
from holdfast.core.errors import HoldfastError
from holdfast.metrics.exposure import EXPOSURE_AT, StoredItems, same_scores, search_mixed
from holdfast.metrics.intervals import repeated_queries
from holdfast.vectors.feature_set import FeatureSet, rows_of_ids, shorten
from holdfast.vectors.lengths import unit
from holdfast.vectors.pairing import Source, open_features, pair_queries
from holdfast.vectors.search import Progress, VectorProblems, float32, unit_queries

Scale = Callable[[np.ndarray], np.ndarray]
"""From cosines of a version to scores that can be compared between versions; increasing."""

Part = tuple[Source, QueryBridge | None, Scale | None]
"""The stored vectors of one version, the bridge that its queries take, and the scale of its scores."""

WITHOUT_OLD_MODEL = (
    "the old model's vectors of all items and of the queries were not given (gallery-old and queries-old), so whether "
    "the mixed gallery finds more than keeping it is unknown"
)
FIRST = 10
_SCORES_AT_ONCE = 1 << 22


def check_mixed(
    parts: Sequence[Part],
    queries: Source,
    gallery_new: Source,
    *,
    gallery_old: Source | None = None,
    queries_old: Source | None = None,
    relevance: Relevance | None = None,
    score: str = "top1",
    confidence: float = 0.95,
    max_loss: float | None = None,
    min_exposure: float | None = None,
    min_kept: float | None = None,
    min_agreement: float | None = None,
    device: Any = "cpu",
    progress: Progress = lambda stage, done, total: None,
) -> MixedResult:
    """Compare the search in a gallery of several versions with keeping the old model, and with a full re-embedding.

    parts: (vectors, bridge, scale) of each version, oldest first; the last is the newest model's. vectors are a file, a
        ``FeatureSet`` or arrays (features, labels, ids), with ids. bridge carries queries into the version's space and
        scale makes its cosines comparable with those of the newest version; None leaves them as they are.
    queries: the newest model's features of the queries.
    gallery_new: all items of all parts, embedded by the newest model, with ids.
    gallery_old, queries_old: all items and the queries, embedded by the old model; with them the result says whether
        the mixed gallery is better than keeping it.
    relevance: relevant pairs, used instead of labels: a file, or a list of (query id, item id).
    score: "top1", "recall@K" or "mAP". Without labels and relevance it is left out, and "overlap@10" with the
        re-embedded hits is measured.
    confidence: of the two-sided intervals, at least 0.5 and below 1.
    max_loss: the accepted loss against keeping the old model; as in ``check``.
    min_exposure: smallest accepted exposure ratio of every version, at 1 and at 10; None does not judge it.
    min_kept: smallest accepted share of the re-embedded score; None does not judge it.
    min_agreement: without judgements: the smallest accepted share of the re-embedded hits; only with it the exit status
        can then be 0.
    device: where the search runs.
    progress: called with the stage, the amount done and the total.

    ``better`` and ``loss`` are the answers of ``check``, against keeping the old model; None without it, or without
    labels and relevance. ``gates`` is "reached" if the intervals of all that was asked for lie at or above it, "missed"
    if one lies below, else "not shown". All vectors are held in memory. Refused: an item in two parts, or one that
    ``gallery_new`` lacks.

    >>> import numpy as np
    >>> from holdfast import check_mixed
    >>> rng = np.random.default_rng(0)
    >>> labels, ids = np.arange(400) % 20, np.arange(400).astype(str)
    >>> items = rng.standard_normal((20, 8))[labels]
    >>> old = items + 0.8 * rng.standard_normal((400, 8))
    >>> new = items + 0.4 * rng.standard_normal((400, 8))
    >>> def part(vectors, first, last):
    ...     return vectors[first:last], labels[first:last], ids[first:last]
    >>> parts = [(part(old, 0, 100), None, None), (part(new, 100, 200), None, None)]
    >>> kept = {"gallery_old": part(old, 0, 200), "queries_old": part(old, 200, 400)}
    >>> result = check_mixed(parts, part(new, 200, 400), part(new, 0, 200), **kept)
    >>> result.better.answer, [version.items for version in result.versions]
    ('yes', [100, 100])
    """
    chosen = parse_score(score)
    check_options("instance", confidence)
    max_loss = accepted_loss(max_loss)
    for name, value in (("min-exposure", min_exposure), ("min-kept", min_kept), ("min-agreement", min_agreement)):
        share_asked(name, value)
    if (gallery_old is None) != (queries_old is None):
        raise HoldfastError("gallery-old and queries-old go together: they are what keeping the old model would show")
    asked = open_features(queries, "queries", "query")
    stored = _Stored.read(parts, open_features(gallery_new, "gallery_new", "gallery"), asked)
    plain, query_problems = unit_queries(asked, np.arange(len(asked)))
    searches = {"mixed": stored.versions(plain, asked), "fair": stored.reembedded(plain)}
    if any(bridge is not None or scale is not None for _, bridge, scale in parts):
        searches["raw"] = stored.as_they_are(plain)
    if gallery_old is not None and queries_old is not None:
        searches["keep"] = stored.kept(
            open_features(gallery_old, "gallery_old", "gallery"),
            open_features(queries_old, "queries_old", "query"),
            asked,
        )
    truths = ground_truths([stored.items], asked.names(), asked.labels, relevance)
    answered = usable(plain)
    decides = stored.items if truths is None else None  # what decides which hits are right, without labels
    if truths is None:
        if score != "top1":
            raise HoldfastError(f"the score {score} needs labels or relevance; without them {OVERLAP.name} is measured")
        fair = search_mixed(searches["fair"], OVERLAP.k, device=device).rows
        truths = GroundTruths([RelevanceGroundTruth.of_hits(fair, answered, len(stored.items))], [AGREEMENT])
        chosen = OVERLAP
        searches.pop("keep", None)
    elif min_agreement is not None:
        raise HoldfastError("min-agreement is for checks without judgements; leave it out, the judgements decide")
    truth = truths.per_gallery[0]
    chosen.chance(truth.count_right()[truth.has_answer()], truth.size())
    groups = None if chosen is OVERLAP else truths.groups()
    resampling = Resampling(confidence, 0, 0, groups, repeated_queries(plain))
    found: dict[str, _Outcome] = {}
    for name, items in searches.items():
        progress("searching", len(found), len(searches))
        found[name] = _search(items, truth, chosen, answered, device)
    progress("searching", len(searches), len(searches))

    scores = {name: mean_estimate(one.values, resampling) for name, one in found.items()}
    kept = {name: share_of_means(one.values, found["fair"].values, resampling) for name, one in found.items()}
    versions = [
        MixedVersion(
            source=part.name,
            items=len(part),
            bridge=bridge_record(bridge),
            bridged=bridge is not None,
            mixed=_version_search(found["mixed"], found["fair"], stored.version_of == number, truth, resampling),
            raw=None
            if "raw" not in found
            else _version_search(found["raw"], found["fair"], stored.version_of == number, truth, resampling),
            recall_reembedded=_recall(found["fair"], stored.version_of == number, truth),
        )
        for number, (part, (_, bridge, _)) in enumerate(zip(stored.parts, parts, strict=True))
    ]
    lowest = {"the share of the re-embedded score": min_kept, "the share of the re-embedded hits": min_agreement}
    gates = [Gate(name, kept["mixed"], least) for name, least in lowest.items() if least is not None]
    if min_exposure is not None:
        gates += [
            Gate(f"the exposure of version {number} at {k}", ratio, min_exposure, of_version=True)
            for number, version in enumerate(versions, start=1)
            for k, ratio in version.mixed.exposure.items()
        ]
    units = mean_interval(found["fair"].values, resampling).distinct
    reached, gates_reason = gates_answer(gates, units, "queries") if gates else (None, "")
    better = loss = gain = None
    clustered = False
    if "keep" in found:
        before, after = found["keep"].values, found["mixed"].values
        interval = gain_interval(before, after, resampling)
        gain, units, what = Estimate.of(interval), interval.units, interval.unit
        clustered = interval.clustered
        needed = [units_needed(before, after, bound, resampling) for bound in (0.0, -max_loss)]
        better = better_answer(gain, units, what, needed[0])
        loss = answer_about(gain, max_loss, units, what, needed[1])
    reason = NO_JUDGEMENTS if chosen is OVERLAP else WITHOUT_OLD_MODEL if better is None else better.reason
    fitted = [note for _, bridge, _ in parts for note in fitted_notes(bridge, plain, asked, decides)]
    consequences = [(one, "they are never found") for one in stored.problems]
    consequences.append((query_problems, "they find nothing and count as wrong"))
    return MixedResult(
        verdict=NOT_JUDGED if better is None else VERDICTS[better.answer],
        reason=reason,
        score=chosen.name,
        confidence=confidence,
        min_exposure=min_exposure,
        min_kept=min_kept,
        min_agreement=min_agreement,
        gates=reached,
        gates_reason=gates_reason,
        better=better,
        loss=loss,
        gain=gain,
        keep=scores.get("keep"),
        clustered=clustered,
        queries=len(asked),
        gallery=len(stored.items),
        classes=None if truths.codes is None else len(np.unique(truths.codes)),
        agreement=chosen is OVERLAP,
        sources={"queries": asked.name, "gallery_new": stored.items.name},
        notes=[
            *stored.notes,
            *truths.notes,
            *dict.fromkeys(fitted),
            *(note for one, what in consequences for note in one.notes(what)),
        ],
        accuracy=scores["mixed"],
        reembedded=scores["fair"],
        kept=kept["mixed"],
        raw_accuracy=scores.get("raw"),
        raw_kept=kept.get("raw"),
        versions=versions,
    )


@dataclass(frozen=True)
class _Stored:
    """The items of all parts, numbered in the parts' order.

    parts: the vectors of each version. given: the same as the caller gave them, with bridges and scales.
    vectors: the usable unit vectors of each version; rows: their numbers.
    version_of: the version of each item, from 0.
    items: all items embedded by the newest model, with labels and ids.
    """

    parts: list[FeatureSet]
    given: Sequence[Part]
    vectors: list[np.ndarray]
    rows: list[np.ndarray]
    version_of: np.ndarray
    items: FeatureSet
    problems: list[VectorProblems]
    notes: list[str]

    @classmethod
    def read(cls, given: Sequence[Part], new: FeatureSet, queries: FeatureSet) -> "_Stored":
        if not given:
            raise HoldfastError("a mixed gallery needs at least one part")
        parts = [open_features(source, f"part {i}", "gallery") for i, (source, _, _) in enumerate(given, start=1)]
        if new.dim != queries.dim:
            raise HoldfastError(
                f"{new.name}: {new.dim} numbers per vector, but the queries have {queries.dim}; "
                "both must come from the newest model"
            )
        for part, (_, bridge, _) in zip(parts, given):
            if bridge is None and part.dim != queries.dim:
                raise HoldfastError(
                    f"{part.name}: {part.dim} numbers per vector, but the queries have {queries.dim}; give its bridge"
                )
        for one in (*parts, new):
            if one.ids is None:
                raise HoldfastError(f"{one.name}: has no ids; the parts of a mixed gallery are matched by id")
        _refuse_shared(parts)
        ids = np.concatenate([part.names().astype(str) for part in parts])
        where = np.concatenate([rows_of_ids(part.names(), new, part.name) for part in parts])
        notes = []
        if len(new) > len(ids):
            notes.append(f"{new.name}: {len(new) - len(ids):,} of {len(new):,} items are in no part; left out")
        items = replace(new.chosen(where), labels=_labels(parts, new, where), ids=ids)
        vectors, rows, problems, start = [], [], [], 0
        for part in parts:
            raw = float32(part.rows.block(0, len(part)))
            problems.append(VectorProblems(part.name, len(part)))
            usable = problems[-1].inspect(np.arange(len(part)), raw)
            vectors.append(unit(raw[usable]))
            rows.append(start + np.flatnonzero(usable))
            start += len(part)
        version_of = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
        return cls(parts, given, vectors, rows, version_of, items, problems, notes)

    def versions(self, queries: np.ndarray, asked: FeatureSet) -> list[StoredItems]:
        """What a mixed search finds: each version with its own bridge and scale."""
        found = []
        for part, (_, bridge, scale), vectors, rows in zip(self.parts, self.given, self.vectors, self.rows):
            own = queries if bridge is None else bridged_queries(bridge, queries, asked, part)
            found.append(StoredItems(rows, vectors, own, scale or same_scores))
        return found

    def as_they_are(self, queries: np.ndarray) -> list[StoredItems]:
        """The same without bridges and scales; a version with vectors of another size is never found."""
        size = queries.shape[1]
        return [
            StoredItems(rows, vectors, queries)
            for vectors, rows in zip(self.vectors, self.rows)
            if vectors.shape[1] == size
        ]

    def reembedded(self, queries: np.ndarray) -> list[StoredItems]:
        """All items embedded by the newest model."""
        raw = float32(self.items.rows.block(0, len(self.items)))
        self.problems.append(VectorProblems(self.items.name, len(self.items)))
        usable = self.problems[-1].inspect(self.items.row_numbers(0, len(self.items)), raw)
        if not usable.any():
            raise HoldfastError(f"{self.items.name}: holds no usable vector; all are zero or not finite")
        return [StoredItems(np.flatnonzero(usable), unit(raw[usable]), queries)]

    def kept(self, gallery: FeatureSet, queries: FeatureSet, asked: FeatureSet) -> list[StoredItems]:
        """All items and queries of the old model: what is shown if nothing is changed."""
        if gallery.ids is None:
            raise HoldfastError(f"{gallery.name}: has no ids; its items are matched with those of the parts by id")
        if gallery.dim != queries.dim:
            raise HoldfastError(
                f"{gallery.name}: {gallery.dim} numbers per vector, but {queries.name} has {queries.dim}; both must "
                "come from the old model"
            )
        pairing = pair_queries(queries, asked)
        if len(pairing) < len(asked):
            raise HoldfastError(f"{queries.name}: lacks {len(asked) - len(pairing)} of the queries of {asked.name}")
        refuse_equal_queries(queries, asked)
        order = np.argsort(pairing.new)
        old_queries, problems = unit_queries(queries, pairing.old[order])
        rows = rows_of_ids(self.items.names(), gallery, self.items.name)
        raw = float32(gallery.rows.take(rows))
        self.problems.extend([VectorProblems(gallery.name, len(gallery)), problems])
        good = self.problems[-2].inspect(rows, raw)
        return [StoredItems(np.flatnonzero(good), unit(raw[good]), old_queries)]


def _refuse_shared(parts: Sequence[FeatureSet]) -> None:
    for i, first in enumerate(parts):
        for second in parts[i + 1 :]:
            both = np.intersect1d(first.names().astype(str), second.names().astype(str))
            if len(both):
                raise HoldfastError(
                    f"{first.name}, {second.name}: {len(both)} ids are in both ({shorten(both)}); "
                    "an item is stored by one version"
                )


def _labels(parts: Sequence[FeatureSet], new: FeatureSet, where: np.ndarray) -> np.ndarray | None:
    """The class of each item: those of ``new``, else those of the parts; None without them. They must agree."""
    own = [part.labels for part in parts if part.labels is not None]
    if len(own) < len(parts):
        return None if new.labels is None else new.labels[where]
    if len({labels.dtype.kind for labels in own}) > 1:
        raise HoldfastError("the labels of some parts are numbers and of others text; use one kind")
    stored = np.concatenate(own)
    if new.labels is None:
        return stored
    unequal = np.flatnonzero(stored.astype(str) != new.labels[where].astype(str))
    if len(unequal):
        names = np.concatenate([part.names().astype(str) for part in parts])[unequal]
        raise HoldfastError(f"{new.name}: {len(unequal)} items have another label than in their part: {shorten(names)}")
    return new.labels[where]


@dataclass(frozen=True)
class _Outcome:
    """One search of all queries.

    hits: Q x k numbers of items, -1 for none. right: whether each hit is right. values: the score of each query, NaN
    if it does not count.
    """

    hits: np.ndarray
    right: np.ndarray
    values: np.ndarray


def _search(
    items: Sequence[StoredItems], truth: GroundTruth, score: Score, answered: np.ndarray, device: Any
) -> _Outcome:
    """answered: queries that can be compared; the others find nothing."""
    wanted = truth.count_right()
    counts = truth.has_answer() & (wanted > 0) if score.kind == "mAP" else truth.has_answer()
    if not any(len(one.rows) for one in items):
        nothing = np.full((len(answered), 1), -1)
        return _Outcome(nothing, nothing >= 0, np.where(counts, 0.0, np.nan))
    found = search_mixed(items, max(FIRST, score.k), device=device).rows
    hits = np.where(answered[:, None], found, -1)
    right = truth.right(np.arange(len(hits)), hits)
    if score.kind == "mAP":
        values = _average_precisions(items, truth, wanted, device)
        values[~answered] = 0.0
    elif score.kind == "overlap":
        values = np.asarray(right[:, : score.k].sum(1) / wanted.clip(1, score.k))
    else:
        values = np.asarray(right[:, : score.k].any(1), dtype=np.float64)
    return _Outcome(hits, right, np.where(counts, values, np.nan))


def _average_precisions(
    items: Sequence[StoredItems], truth: GroundTruth, wanted: np.ndarray, device: Any
) -> np.ndarray:
    """Average precision over the whole ranking; an item that is never found counts as missed."""
    total = sum(len(one.rows) for one in items)
    count = len(items[0].queries)
    block = max(1, _SCORES_AT_ONCE // total)
    values = np.zeros(count)
    for start in range(0, count, block):
        part = [replace(one, queries=one.queries[start : start + block]) for one in items]
        ranked = search_mixed(part, total, device=device).rows
        right = truth.right(np.arange(start, start + len(ranked)), ranked)
        precision = right.cumsum(1) / np.arange(1, ranked.shape[1] + 1)
        values[start : start + len(ranked)] = (precision * right).sum(1)
    return values / wanted.clip(1)


def _version_search(
    found: _Outcome, fair: _Outcome, members: np.ndarray, truth: GroundTruth, resampling: Resampling
) -> VersionSearch:
    """members: which items belong to the version, N."""
    shown, wanted, ratio = {}, {}, {}
    for k in (k for k in EXPOSURE_AT if k <= fair.hits.shape[1]):
        taken, due = (np.asarray(_belongs(one.hits[:, :k], members).sum(1) / k) for one in (found, fair))
        shown[k], wanted[k] = float(taken.mean()), float(due.mean())
        ratio[k] = share_of_means(taken, due, resampling)
    return VersionSearch(ratio, shown, wanted, _recall(found, members, truth))


def _belongs(hits: np.ndarray, members: np.ndarray) -> np.ndarray:
    return members[hits] & (hits >= 0)


def _recall(found: _Outcome, members: np.ndarray, truth: GroundTruth) -> float:
    """Mean over queries of the share of the version's right items among the first ten hits; of at most ten."""
    if isinstance(truth, ClassGroundTruth):
        wanted = ClassGroundTruth(truth.query, truth.gallery[members]).count_right()
    else:
        assert isinstance(truth, RelevanceGroundTruth)
        query, row = np.divmod(truth.keys, truth.gallery_rows)
        wanted = np.bincount(query[members[row]], minlength=truth.queries)
    counts = wanted > 0
    if not counts.any():
        return float("nan")
    hits, right = found.hits[counts, :FIRST], found.right[counts, :FIRST]
    return float(((_belongs(hits, members) & right).sum(1) / wanted[counts].clip(max=FIRST)).mean())
