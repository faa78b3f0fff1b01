"""The check before a release: do people find more than with the old model, if the new model's queries search its index?

With judgements (labels, relevance or known items) it says whether the new queries are better than keeping the old
model, and whether at most so much is lost. Without them nothing is judged: it shows how much of a re-embedding the
search shows.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from holdfast.checks.agreement import agreement_with_reembedding, overlap_of_hits
from holdfast.checks.changes import changed_queries, class_changes, compare_thresholds
from holdfast.checks.estimates import (
    Estimate,
    Resampling,
    gain_estimate,
    gain_interval,
    mean_estimate,
    share_of_means,
    units_needed,
)
from holdfast.checks.exchanged_inputs import refuse_equal_queries, refuse_exchanged_queries
from holdfast.checks.inputs import CheckInputs, GroundTruths, Relevance, ground_truths, pairing_notes
from holdfast.checks.known_items import STAND_IN, known_pairs
from holdfast.checks.query_bridges import QueryBridge, bridge_record, bridged_queries, fitted_notes
from holdfast.checks.query_outcomes import GalleryOutcomes, run_queries
from holdfast.checks.result import CheckResult, Reindex, WithoutBridge
from holdfast.checks.scores import PROTOCOLS, Score, parse_score
from holdfast.checks.verdict import (
    FEWEST_UNITS,
    NO,
    NOT_JUDGED,
    VERDICTS,
    accepted_loss,
    answer_about,
    better_answer,
    share_asked,
)
from holdfast.core.errors import HoldfastError, unknown_name
from holdfast.core.real_arrays import real_array
from holdfast.core.wording import are, counted
from holdfast.metrics.intervals import repeated_queries
from holdfast.metrics.resampling import RESAMPLES
from holdfast.vectors.pairing import Pairing, Source, open_features, pair_queries
from holdfast.vectors.search import Progress, VectorProblems, unit_queries

NO_JUDGEMENTS = "no labels, relevance or known items were given, so whether people find more is unknown"


def check(
    gallery: Source,
    queries_old: Source,
    queries_new: Source,
    gallery_new: Source | None = None,
    *,
    bridge: QueryBridge | None = None,
    relevance: Relevance | None = None,
    known_items: ArrayLike | None = None,
    leave_one_out: bool = False,
    score: str = "top1",
    protocol: str = "instance",
    max_loss: float | None = None,
    min_agreement: float | None = None,
    confidence: float = 0.95,
    groups: ArrayLike | None = None,
    far: float = 0.01,
    threshold: float | None = None,
    resamples: int = RESAMPLES,
    seed: int = 0,
    device: Any = "cpu",
    progress: Progress = lambda stage, done, total: None,
) -> CheckResult:
    """Compare new and old queries on the old gallery: two answers with their evidence.

    gallery: the old model's stored vectors: a file, a ``FeatureSet``, or arrays (features, labels) or
        (features, labels, ids); any arrays that NumPy can read.
    queries_old: the old model's features of the queries, in the same forms.
    queries_new: the new model's features of the same queries; paired by id if both have ids, else row by row.
    gallery_new: the gallery embedded by the new model; with it the result says what re-embedding would add.
    bridge: a function that carries unit queries of the new model (Q x d_new) into the old space (Q x d_old), such as a
        ``Bridge``; the new queries search the old gallery through it, and ``gallery_new`` as they are.
    relevance: relevant pairs, used instead of labels: a file, or a list of (query id, gallery id).
    known_items: the id of the right item of each query, for queries that were made from items (a title, another
        view): a stand-in for real queries, used instead of labels.
    leave_one_out: the queries are items of the gallery, by id; a query does not find itself. A class with one item
        has no answer and is left out. For labels and the instance protocol.
    score: "top1", "recall@K" or "mAP".
    protocol: "instance" searches single items, "template" one mean vector per class.
    max_loss: the accepted loss, as a fraction of 1; 0.01, one point, by default. 0 asks for a gain.
    min_agreement: without judgements: the smallest accepted share of a re-embedding's first ten items; it alone can
        then give ``exit_code`` 0. Needs ``gallery_new``. It does not say whether people find more.
    confidence: of the two-sided intervals, at least 0.5 and below 1.
    groups: one label per query: those of one group (a person, a document) gain and lose together. Default: queries with
        the same right items, which are classes where there are classes.
    far: false-accept rate, with the old queries, of the score threshold that is examined.
    threshold: the score threshold to examine instead, a cosine.
    resamples, seed: of the interval at the threshold.
    device: where the search runs: "cpu", or "cuda" if torch is installed.
    progress: called with the stage, the amount done and the total.

    The gain is the score of the new queries on the old gallery minus that of the old ones: of keeping the old model.
    ``better`` answers "yes" if its interval lies above 0, and ``loss`` if it lies above ``-max_loss``; "no" if it lies
    below, and "not shown" otherwise. ``loss`` decides ``exit_code``: 0 for "yes", else 1. Without labels and relevance
    the verdict is "not judged" and ``exit_code`` 3. The interval covers the choice of queries, not what another
    training of either model would give.

    >>> import numpy as np
    >>> from holdfast import check
    >>> rng = np.random.default_rng(0)
    >>> labels = np.arange(400) % 20
    >>> items = rng.standard_normal((20, 8))[labels]
    >>> old = items + 0.8 * rng.standard_normal((400, 8))
    >>> new = items + 0.4 * rng.standard_normal((400, 8))  # the same space, with less noise
    >>> stored, queries = (old[:200], labels[:200]), labels[200:]
    >>> result = check(stored, (old[200:], queries), (new[200:], queries), resamples=200)
    >>> result.better.answer, result.loss.answer
    ('yes', 'yes')
    """
    chosen, max_loss = parse_score(score), accepted_loss(max_loss)
    check_options(protocol, confidence, resamples, seed)
    if threshold is not None and not math.isfinite(threshold):
        raise HoldfastError(f"threshold must be a number, such as 0.5; got {threshold:g}")
    if not 0 < far < 1:
        raise HoldfastError(f"far must lie between 0 and 1; got {far:g}")
    share_asked("min-agreement", min_agreement)
    inputs = CheckInputs(
        open_features(gallery, "gallery", "gallery"),
        open_features(queries_old, "queries_old", "query"),
        open_features(queries_new, "queries_new", "query"),
        None if gallery_new is None else open_features(gallery_new, "gallery_new", "gallery"),
    )
    pairing = pair_queries(inputs.old, inputs.new)
    if known_items is not None:
        if relevance is not None:
            raise HoldfastError("known items and relevance both say what is right; give one of them")
        items = real_array(known_items, "known items")
        relevance = known_pairs(pairing.names, items, len(inputs.old))
    truths = ground_truths(inputs.galleries(), pairing.names, pairing.labels, relevance, leave_one_out=leave_one_out)
    searched = _Queries.read(inputs, pairing, bridge)
    together = truths.groups() if groups is None and truths is not None else groups
    resampling = Resampling(
        confidence,
        resamples,
        seed,
        None if together is None else _query_groups(together, pairing, len(inputs.old)),
        repeated_queries(searched.sets[0], searched.plain),
    )
    facts: dict[str, Any] = {
        "protocol": protocol,
        "confidence": confidence,
        "queries": len(pairing),
        "gallery": len(inputs.gallery),
        "sources": inputs.names(),
        "unpaired": {"old": pairing.only_old, "new": pairing.only_new},
        "bridged": bridge is not None,
        "bridge": bridge_record(bridge),
        "leave_one_out": leave_one_out,
    }
    notes = pairing_notes(inputs, pairing, ceiling=truths is not None, leave_one_out=leave_one_out)
    judged_by_items = inputs.gallery_new if truths is None else None
    notes += [STAND_IN] if known_items is not None else []
    notes += fitted_notes(bridge, searched.plain, inputs.new, judged_by_items)
    if truths is None:
        if threshold is not None or score != "top1":
            what = f"the score {score}" if threshold is None else "a threshold"
            raise HoldfastError(f"{what} needs labels or relevance, which say what is right")
        return _not_judged(inputs, searched, notes, facts, min_agreement, resampling, device, progress)
    if min_agreement is not None:
        raise HoldfastError("min-agreement is for checks without judgements; leave it out, the judgements decide")
    outcomes = _search(inputs, truths, searched, chosen, protocol, device, progress)
    facts |= _problem_notes([*notes, *truths.notes], [part.problems for part in outcomes], searched.problems)
    facts |= _scores(outcomes, resampling)
    facts |= _answers(outcomes, chosen, max_loss, resampling, bridged=bridge is not None)
    before, after = outcomes[0].outcomes[:2]
    names = _names(truths, outcomes[0], inputs, protocol)
    pairs = outcomes[0].threshold_pairs
    return CheckResult(
        score=chosen.name,
        judged_by="known items" if known_items is not None else "relevance" if truths.codes is None else "classes",
        classes=None if truths.codes is None else len(np.unique(truths.codes)),
        changes=changed_queries(before, after, pairing.names, *names),
        thresholds=compare_thresholds(before, after, pairs, resampling, far=far, threshold=threshold),
        by_class=_by_class(outcomes[0], truths),
        **facts,
    )


def _query_groups(groups: ArrayLike, pairing: Pairing, count: int) -> np.ndarray:
    """The group of each paired query. groups: of the queries in the order of the old file, or of the paired ones."""
    labels = real_array(groups, "groups")
    if labels.shape not in ((len(pairing),), (count,)):
        raise HoldfastError(f"groups: {len(labels)} labels for {count} queries; one for each is needed")
    return labels if len(labels) == len(pairing) else labels[pairing.old]


def check_options(protocol: str, confidence: float, resamples: int = RESAMPLES, seed: int = 0) -> None:
    """Refuse options that no check can be made with."""
    if protocol not in PROTOCOLS:
        raise unknown_name("protocol", protocol, PROTOCOLS)
    if not 0.5 <= confidence < 1:
        raise HoldfastError(f"confidence must be at least 0.5 and below 1, for example 0.95; got {confidence:g}")
    needed = max(100, math.ceil(round(2 / (1 - confidence), 6)))  # one resample at least beyond each end
    if resamples < needed:
        raise HoldfastError(f"resamples must be at least {needed} at confidence {confidence:g}; got {resamples}")
    if seed < 0:
        raise HoldfastError(f"seed must not be negative, got {seed}")


class _Queries:
    """Unit queries as they search the old gallery (old, new and, beside bridged ones, plain new ones), and plain.

    plain: the new model's unit queries, which search the re-embedded gallery.
    """

    def __init__(self, sets: list[np.ndarray], plain: np.ndarray, problems: list[VectorProblems]) -> None:
        self.sets, self.plain, self.problems = sets, plain, problems

    @classmethod
    def read(cls, inputs: CheckInputs, pairing: Pairing, bridge: QueryBridge | None) -> "_Queries":
        """Refused: all queries unusable, queries of another size without a bridge, files in each other's place."""
        (old, old_problems), (new, new_problems) = (
            unit_queries(part, rows) for part, rows in ((inputs.old, pairing.old), (inputs.new, pairing.new))
        )
        if bridge is None and not inputs.comparable:
            raise HoldfastError(
                f"{inputs.new.name}: {inputs.new.dim} numbers per query, but {inputs.gallery.name} has "
                f"{inputs.gallery.dim}; a bridge between the two is needed: fit one with holdfast bridge, then check "
                "with --bridge"
            )
        refuse_equal_queries(inputs.old, inputs.new)
        refuse_exchanged_queries(inputs.gallery, inputs.old, inputs.new)
        sets = [old]
        if bridge is not None:
            sets.append(bridged_queries(bridge, new, inputs.new, inputs.gallery))
        if inputs.comparable:
            sets.append(new)
        return cls(sets, new, [old_problems, new_problems])


def _search(
    inputs: CheckInputs,
    truths: GroundTruths,
    queries: _Queries,
    score: Score,
    protocol: str,
    device: Any,
    progress: Progress,
) -> list[GalleryOutcomes]:
    """What is found in the old gallery, and in the new one if there is one."""
    sets = (queries.sets, [queries.plain])
    return [
        run_queries(gallery, truth, asked, score, protocol=protocol, device=device, progress=progress)
        for gallery, truth, asked in zip(inputs.galleries(), truths.per_gallery, sets)
    ]


def _not_judged(
    inputs: CheckInputs,
    queries: _Queries,
    notes: list[str],
    facts: dict[str, Any],
    min_agreement: float | None,
    resampling: Resampling,
    device: Any,
    progress: Progress,
) -> CheckResult:
    """The result without judgements: agreement with a re-embedding, or else how alike the two searches are."""
    reason = NO_JUDGEMENTS
    if inputs.gallery_new is None:
        if min_agreement is not None:
            raise HoldfastError("min-agreement is about the hits of a re-embedding; give gallery-new")
        overlap, problems = overlap_of_hits(inputs.gallery, queries.sets[:2], resampling, device, progress)
        found = _problem_notes(notes, [problems], queries.problems)
        return CheckResult(NOT_JUDGED, reason, score=None, overlap=overlap, **facts, **found)
    galleries = inputs.gallery, inputs.gallery_new
    agreement, gate_reason, gallery_problems, searched = agreement_with_reembedding(
        galleries, queries.sets[:2], queries.plain, min_agreement, resampling, device, progress
    )
    if left_out := len(inputs.gallery) - searched:
        items = counted(left_out, "item")
        notes = [*notes, f"{items} of {galleries[0].name} {are(left_out)} not in {galleries[1].name} and not searched"]
    facts |= _problem_notes(notes, gallery_problems, queries.problems) | {"gallery": searched}
    if gate_reason:
        reason = f"{reason}; {gate_reason}"
    return CheckResult(NOT_JUDGED, reason, score=None, agreement=agreement, **facts)


def _scores(searched: Sequence[GalleryOutcomes], resampling: Resampling) -> dict[str, Any]:
    """Scores of the tests, the gain, and what re-embedding the gallery would add."""
    before, after, *plain = (outcomes.values for outcomes in searched[0].outcomes)
    found: dict[str, Any] = {
        "self_test": mean_estimate(before, resampling),
        "cross_test": mean_estimate(after, resampling),
        "gain": gain_estimate(before, after, resampling),
    }
    if plain:
        found["without_bridge"] = WithoutBridge(
            mean_estimate(plain[0], resampling), gain_estimate(before, plain[0], resampling)
        )
    if len(searched) > 1:
        again = searched[1].outcomes[0].values
        adds, kept = gain_estimate(after, again, resampling), share_of_means(after, again, resampling)
        found |= {"new_self_test": mean_estimate(again, resampling), "kept": kept}
        found["reindex"] = Reindex(adds, _share_reached(found["gain"], adds), kept.value)
    return found


def _answers(
    searched: Sequence[GalleryOutcomes], score: Score, max_loss: float, resampling: Resampling, *, bridged: bool
) -> dict[str, Any]:
    """Verdict and reason, the answers to both questions, and the score of a random ranking."""
    truth = searched[0].truth
    before, after = (outcomes.values for outcomes in searched[0].outcomes[:2])
    chance = score.chance(truth.count_right()[truth.has_answer()], truth.size())
    interval = gain_interval(before, after, resampling)
    gain, units, what = Estimate.of(interval), interval.units, interval.unit
    needed = [units_needed(before, after, bound, resampling) for bound in (0.0, -max_loss)]
    better = better_answer(gain, units, what, needed[0])
    loss = answer_about(gain, max_loss, units, what, needed[1])
    old, new = mean_estimate(before, resampling), mean_estimate(after, resampling)
    if units >= FEWEST_UNITS and _at_chance(old, new, gain, chance):
        queries = "the bridged queries" if bridged else "the new queries"
        reason = f"{queries} score no better than a random ranking: the two spaces are unrelated"
        better, loss = (replace(answer, answer=NO, reason=reason, units_needed=None) for answer in (better, loss))
    return {
        "verdict": VERDICTS[better.answer],
        "reason": better.reason,
        "better": better,
        "loss": loss,
        "clustered": interval.clustered,
        "distinct": interval.distinct,
        "uncertain": interval.uncertain,
        "chance": chance,
    }


def _at_chance(old: Estimate, new: Estimate, gain: Estimate, chance: float) -> bool:
    """Whether new queries score like a random ranking, and clearly not like the old ones.

    With a high chance score or few queries, the interval of a good score reaches down to chance. So the new queries
    must also do worse, and the whole interval of their score must lie nearer to chance than to the old queries' score.
    """
    between = (old.value + chance) / 2
    return bool(old.low > chance >= new.low and new.high < between and gain.high < 0)


def _share_reached(gain: Estimate, adds: Estimate) -> float:
    possible = gain.value + adds.value
    return gain.value / possible if possible > 0 else float("nan")


def _problem_notes(
    notes: Sequence[str], galleries: Sequence[VectorProblems], queries: Sequence[VectorProblems]
) -> dict[str, Any]:
    """Notes on unusable or rescaled vectors of every feature set, and the numbers of the unusable rows."""
    found = list(notes)
    for problems in galleries:
        found += problems.notes("left out of the search")
    for problems in queries:
        found += problems.notes("they find nothing and count as wrong")
    bad = {
        problems.name: {"not_finite": problems.not_finite, "zero": problems.zero}
        for problems in (*galleries, *queries)
        if problems.not_finite or problems.zero
    }
    return {"notes": list(dict.fromkeys(found)), "bad_rows": bad}  # one file may be gallery and queries


def _by_class(searched: GalleryOutcomes, truths: GroundTruths) -> list[dict[str, Any]]:
    if truths.codes is None or truths.classes is None:
        return []
    before, after = (outcomes.values for outcomes in searched.outcomes[:2])
    return class_changes(before, after, truths.codes, truths.classes)


def _names(
    truths: GroundTruths, searched: GalleryOutcomes, inputs: CheckInputs, protocol: str
) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray] | None]:
    """The name of each possible hit, and the labels of queries and of hits."""
    if truths.codes is None or truths.classes is None:
        return inputs.gallery.names(), None
    hit_labels = truths.classes[searched.truth.gallery]  # type: ignore[attr-defined]
    hit_names = hit_labels if protocol == "template" else inputs.gallery.names()
    return hit_names, (truths.classes[truths.codes], hit_labels)
