"""The check of a gallery whose items were embedded by several models: accuracy, and how often each version is shown."""

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from holdfast.checks.check import NO_JUDGEMENTS, check_options
from holdfast.checks.estimates import (
    Design,
    Estimate,
    gain_interval,
    mean_estimate,
    mean_interval,
    share_of_means,
    units_needed,
)
from holdfast.checks.exchanged_inputs import refuse_equal_queries
from holdfast.checks.query_bridges import QueryBridge, bridge_record, bridged_queries, fitted_notes
from holdfast.checks.query_outcomes import ROWS_AT_ONCE, usable
from holdfast.checks.result import MixedResult, MixedVersion, VersionSearch
from holdfast.checks.right_answers import Ints, Judgement, ListedAnswers, Relevance, RightAnswers, judgement
from holdfast.checks.scores import (
    BY_CLASS,
    BY_RELEVANCE,
    OVERLAP,
    OVERLAP_AT,
    chance,
    chosen_score,
    depth,
    query_values,
)
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
from holdfast.metrics.ranking import RankingScore
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
AGREEMENT = (
    "no labels and no relevance: what counts are the ten items that the new model shows when everything is "
    "re-embedded; whether people find more with these was not measured"
)
FIRST = 10


def check_mixed(
    parts: Sequence[Part],
    queries: Source,
    gallery_new: Source,
    *,
    gallery_old: Source | None = None,
    queries_old: Source | None = None,
    relevance: Relevance | None = None,
    score: str | None = None,
    confidence: float = 0.95,
    max_loss: float | None = None,
    min_exposure: float | None = None,
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
    score: as in ``check``. Without labels and relevance it is left out, and "overlap@10" with the re-embedded hits is
        measured.
    confidence: of the two-sided intervals, at least 0.5 and below 1.
    max_loss: the accepted loss against keeping the old model; as in ``check``.
    min_exposure: smallest accepted exposure ratio of every version, at 1 and at 10; None does not judge it.
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
    chosen = chosen_score(score, BY_CLASS if relevance is None else BY_RELEVANCE)
    check_options("instance", confidence)
    max_loss = accepted_loss(max_loss)
    for name, value in (("min-exposure", min_exposure), ("min-agreement", min_agreement)):
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
    judged = judgement([stored.items], asked.names(), asked.labels, relevance)
    answered = usable(plain)
    decides = stored.items if judged is None else None  # what decides which hits are right, without labels
    agreement = judged is None
    if judged is None:
        if score is not None:
            raise HoldfastError(f"the score {score} needs labels or relevance; without them {OVERLAP.name} is measured")
        fair = search_mixed(searches["fair"], OVERLAP_AT, device=device).rows
        judged = Judgement([ListedAnswers.of_hits(fair, answered, len(stored.items))], [AGREEMENT])
        chosen = OVERLAP
        searches.pop("keep", None)
    elif min_agreement is not None:
        raise HoldfastError("min-agreement is for checks without judgements; leave it out, the judgements decide")
    answers = judged.answers
    chance(chosen, answers, len(stored.items))  # refuses what cannot differ
    design = Design(confidence, None if agreement else answers.groups(), repeated_queries(plain))
    found: dict[str, _Outcome] = {}
    for name, items in searches.items():
        progress("searching", len(found), len(searches))
        found[name] = _search(items, answers, chosen, answered, device)
    progress("searching", len(searches), len(searches))

    scores = {name: mean_estimate(search.values, design) for name, search in found.items()}
    kept = {name: share_of_means(search.values, found["fair"].values, design) for name, search in found.items()}
    versions = [
        MixedVersion(
            source=part.name,
            items=len(part),
            bridge=bridge_record(bridge),
            bridged=bridge is not None,
            mixed=_version_search(found["mixed"], found["fair"], stored.version_of == number, answers, design),
            raw=None
            if "raw" not in found
            else _version_search(found["raw"], found["fair"], stored.version_of == number, answers, design),
            recall_reembedded=_recall(found["fair"], stored.version_of == number, answers),
        )
        for number, (part, (_, bridge, _)) in enumerate(zip(stored.parts, parts, strict=True))
    ]
    gates = []
    if min_agreement is not None:
        gates.append(Gate("the share of the re-embedded hits", kept["mixed"], min_agreement))
    if min_exposure is not None:
        gates += [
            Gate(f"the exposure of version {number} at {k}", ratio, min_exposure, of_version=True)
            for number, version in enumerate(versions, start=1)
            for k, ratio in version.mixed.exposure.items()
        ]
    units = mean_interval(found["fair"].values, design).distinct
    reached, gates_reason = gates_answer(gates, units, "queries") if gates else (None, "")
    better = loss = gain = None
    clustered = False
    if "keep" in found:
        before, after = found["keep"].values, found["mixed"].values
        interval = gain_interval(before, after, design)
        gain, units, what = Estimate.of(interval), interval.units, interval.unit
        clustered = interval.clustered
        needed = functools.partial(units_needed, before, after, design)
        better = better_answer(gain, units, what, needed)
        loss = answer_about(gain, max_loss, units, what, needed)
    reason = NO_JUDGEMENTS if agreement else WITHOUT_OLD_MODEL if better is None else better.reason
    fitted = [note for _, bridge, _ in parts for note in fitted_notes(bridge, plain, asked, decides)]
    consequences = [(problems, "they are never found") for problems in stored.problems]
    consequences.append((query_problems, "they find nothing and count as wrong"))
    return MixedResult(
        verdict=NOT_JUDGED if better is None else VERDICTS[better.answer],
        reason=reason,
        score=chosen.name,
        confidence=confidence,
        min_exposure=min_exposure,
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
        classes=None if judged.classes is None else len(np.unique(answers.groups())),
        agreement=agreement,
        sources={"queries": asked.name, "gallery_new": stored.items.name},
        notes=[
            *stored.notes,
            *judged.notes,
            *dict.fromkeys(fitted),
            *(note for problems, what in consequences for note in problems.notes(what)),
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

    hits: Q x k numbers of items, -1 for none. grades: of the hits, 0 if not right. values: the score of each query, NaN
    if it does not count.
    """

    hits: np.ndarray
    grades: np.ndarray
    values: np.ndarray


def _search(
    items: Sequence[StoredItems], answers: RightAnswers, score: RankingScore, answered: np.ndarray, device: Any
) -> _Outcome:
    """answered: queries that can be compared; the others find nothing."""
    total = sum(len(part.rows) for part in items)
    if not total:
        nothing = np.full((len(answered), 1), -1)
        return _Outcome(nothing, np.zeros(nothing.shape), np.where(answers.counts() > 0, 0.0, np.nan))
    found = search_mixed(items, max(FIRST, depth(score, total)), device=device)
    hits = np.where(answered[:, None], found.rows, -1)
    scores = np.where(answered[:, None], found.scores, np.float32(-np.inf))

    def blocks(queries: Ints) -> Iterator[tuple[Ints, np.ndarray]]:
        for part in items:
            asked = part.queries[queries]
            for start in range(0, len(part.rows), ROWS_AT_ONCE):
                some = slice(start, start + ROWS_AT_ONCE)
                yield part.rows[some], part.scale(asked @ part.vectors[some].T)

    return _Outcome(hits, answers.grades(hits), query_values(score, answers, hits, scores, blocks, total))


def _version_search(
    found: _Outcome, fair: _Outcome, members: np.ndarray, answers: RightAnswers, design: Design
) -> VersionSearch:
    """members: which items belong to the version, N."""
    shown, wanted, ratio = {}, {}, {}
    for k in (k for k in EXPOSURE_AT if k <= fair.hits.shape[1]):
        taken, due = (np.asarray(_belongs(search.hits[:, :k], members).sum(1) / k) for search in (found, fair))
        shown[k], wanted[k] = float(taken.mean()), float(due.mean())
        ratio[k] = share_of_means(taken, due, design)
    return VersionSearch(ratio, shown, wanted, _recall(found, members, answers))


def _belongs(hits: np.ndarray, members: np.ndarray) -> np.ndarray:
    return members[hits] & (hits >= 0)


def _recall(found: _Outcome, members: np.ndarray, answers: RightAnswers) -> float:
    """Mean over queries of the share of the version's right items among the first ten hits; of at most ten."""
    query, item, _ = answers.pairs()
    of_version = (item >= 0) & members[item]
    wanted = np.bincount(query[of_version], minlength=len(found.hits))
    counts = wanted > 0
    if not counts.any():
        return float("nan")
    hits, right = found.hits[counts, :FIRST], found.grades[counts, :FIRST] > 0
    return float(((_belongs(hits, members) & right).sum(1) / wanted[counts].clip(max=FIRST)).mean())
