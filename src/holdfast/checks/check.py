"""The check before a release: do people find more than with the old model, if the new model's queries search its index?

With judgements (labels, relevance or known items) it says whether the new queries are better than keeping the old
model, and whether at most so much is lost. Without them nothing is judged: it shows how much of a re-embedding the
search shows.
"""

import functools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from holdfast.checks.agreement import agreement_with_reembedding, overlap_of_hits
from holdfast.checks.changes import changed_queries, class_changes
from holdfast.checks.estimates import (
    Design,
    Estimate,
    gain_estimate,
    gain_interval,
    mean_estimate,
    share_of_means,
    units_needed,
)
from holdfast.checks.exchanged_inputs import refuse_equal_queries, refuse_exchanged_queries
from holdfast.checks.inputs import CheckInputs, own_rows, pairing_notes, stored_queries
from holdfast.checks.known_items import STAND_IN, known_pairs
from holdfast.checks.query_bridges import QueryBridge, bridge_record, bridged_queries, fitted_notes
from holdfast.checks.query_outcomes import GalleryOutcomes, run_queries
from holdfast.checks.result import CheckResult, Reindex, WithoutBridge
from holdfast.checks.right_answers import ClassAnswers, Judgement, Relevance, judgement
from holdfast.checks.scores import BY_CLASS, BY_RELEVANCE, PROTOCOLS, chance, chosen_score
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
from holdfast.metrics.ranking import RankingScore
from holdfast.vectors.feature_set import shorten
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
    score: str | None = None,
    protocol: str = "instance",
    max_loss: float | None = None,
    min_agreement: float | None = None,
    confidence: float = 0.95,
    groups: ArrayLike | None = None,
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
    score: "nDCG@K", "MRR@K", "recall@K", "hit@K", "P@K" or "mAP", see ``holdfast.metrics.ranking``. Default: nDCG@10
        with relevance, whose grades count, and hit@1 (which papers also call recall@1 or top-1) with labels and known
        items. Exact ties count by their expected value.
    protocol: "instance" searches single items, "template" one mean vector per class.
    max_loss: the accepted loss, as a fraction of 1; 0.01, one point, by default. 0 asks for a gain.
    min_agreement: without judgements: the smallest accepted share of a re-embedding's first ten items; it alone can
        then give ``exit_code`` 0. Needs ``gallery_new``. It does not say whether people find more.
    confidence: of the two-sided intervals, at least 0.5 and below 1.
    groups: one label per query: those of one group (a person, a document) gain and lose together. Default: queries with
        the same right items, which are classes where there are classes.
    device: where the search runs: "cpu", or "cuda" if torch is installed.
    progress: called with the stage, the amount done and the total.

    The gain is the score of the new queries on the old gallery minus that of the old ones: of keeping the old model.
    ``better`` answers "yes" if its interval lies above 0, and ``loss`` if it lies above ``-max_loss``; "no" if it lies
    below, and "not shown" otherwise. ``loss`` decides ``exit_code``: 0 for "yes", else 1. Without labels and relevance
    the verdict is "not judged" and ``exit_code`` 3. The interval covers the choice of queries, not what another
    training of either model would give.

    With labels a query that is an item of the gallery (the same id and vector) does not find itself.

    >>> import numpy as np
    >>> from holdfast import check
    >>> rng = np.random.default_rng(0)
    >>> labels = np.arange(400) % 20
    >>> items = rng.standard_normal((20, 8))[labels]
    >>> old = items + 0.8 * rng.standard_normal((400, 8))
    >>> new = items + 0.4 * rng.standard_normal((400, 8))  # the same space, with less noise
    >>> stored, queries = (old[:200], labels[:200]), labels[200:]
    >>> result = check(stored, (old[200:], queries), (new[200:], queries))
    >>> result.better.answer, result.loss.answer
    ('yes', 'yes')
    """
    max_loss = accepted_loss(max_loss)
    check_options(protocol, confidence)
    share_asked("min-agreement", min_agreement)
    inputs = CheckInputs(
        open_features(gallery, "gallery", "gallery"),
        open_features(queries_old, "queries_old", "query"),
        open_features(queries_new, "queries_new", "query"),
        None if gallery_new is None else open_features(gallery_new, "gallery_new", "gallery"),
    )
    pairing = pair_queries(inputs.old, inputs.new)
    chosen = chosen_score(score, BY_CLASS if relevance is None else BY_RELEVANCE)
    if known_items is not None:
        if relevance is not None:
            raise HoldfastError("known items and relevance both say what is right; give one of them")
        relevance = known_pairs(pairing.names, real_array(known_items, "known items"), len(inputs.old))
    stored = stored_queries(inputs, pairing)
    alone = stored if relevance is None and pairing.labels is not None and protocol == "instance" else None
    judged = judgement(inputs.galleries(), pairing.names, pairing.labels, relevance, own_rows(inputs, pairing, alone))
    searched = _Queries.read(inputs, pairing, bridge)
    together = judged.answers.groups() if groups is None and judged is not None else groups
    design = Design(
        confidence,
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
        "stored_queries": 0 if alone is None else int((alone >= 0).sum()),
    }
    notes = pairing_notes(inputs, pairing, ceiling=judged is not None)
    if stored is not None and alone is None:
        names = [str(name) for name in pairing.names[stored >= 0]]
        notes.append(f"{counted(len(names), 'query')} {are(len(names))} in the gallery themselves: {shorten(names)}")
    judged_by_items = inputs.gallery_new if judged is None else None
    notes += [STAND_IN] if known_items is not None else []
    notes += fitted_notes(bridge, searched.plain, inputs.new, judged_by_items)
    if judged is None:
        if score is not None:
            raise HoldfastError(f"the score {score} needs labels or relevance, which say what is right")
        return _not_judged(inputs, searched, notes, facts, min_agreement, design, device, progress)
    if min_agreement is not None:
        raise HoldfastError("min-agreement is for checks without judgements; leave it out, the judgements decide")
    outcomes = [
        run_queries(part, answers, asked, chosen, protocol=protocol, device=device, progress=progress)
        for part, answers, asked in zip(inputs.galleries(), judged.per_gallery, (searched.sets, [searched.plain]))
    ]
    facts |= _problem_notes([*notes, *judged.notes], [part.problems for part in outcomes], searched.problems)
    facts |= _scores(outcomes, design)
    facts |= _answers(outcomes[0], chosen, max_loss, design, bridged=bridge is not None)
    before, after = outcomes[0].outcomes[:2]
    hit_names, labels = _names(judged, outcomes[0], inputs, protocol)
    classes, codes = judged.classes, judged.answers.groups()
    return CheckResult(
        score=chosen.name,
        judged_by="known items" if known_items is not None else "relevance" if classes is None else "classes",
        classes=None if classes is None else len(np.unique(codes)),
        changes=changed_queries(before, after, pairing.names, hit_names, labels),
        by_class=[] if classes is None else class_changes(before.values, after.values, codes, classes),
        **facts,
    )


def _query_groups(groups: ArrayLike, pairing: Pairing, count: int) -> np.ndarray:
    """The group of each paired query. groups: of the queries in the order of the old file, or of the paired ones."""
    labels = real_array(groups, "groups")
    if labels.shape not in ((len(pairing),), (count,)):
        raise HoldfastError(f"groups: {len(labels)} labels for {count} queries; one for each is needed")
    return labels if len(labels) == len(pairing) else labels[pairing.old]


def check_options(protocol: str, confidence: float) -> None:
    """Refuse options that no check can be made with."""
    if protocol not in PROTOCOLS:
        raise unknown_name("protocol", protocol, PROTOCOLS)
    if not 0.5 <= confidence < 1:
        raise HoldfastError(f"confidence must be at least 0.5 and below 1, for example 0.95; got {confidence:g}")


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


def _not_judged(
    inputs: CheckInputs,
    queries: _Queries,
    notes: list[str],
    facts: dict[str, Any],
    min_agreement: float | None,
    design: Design,
    device: Any,
    progress: Progress,
) -> CheckResult:
    """The result without judgements: agreement with a re-embedding, or else how alike the two searches are."""
    reason = NO_JUDGEMENTS
    if inputs.gallery_new is None:
        if min_agreement is not None:
            raise HoldfastError("min-agreement is about the hits of a re-embedding; give gallery-new")
        overlap, problems = overlap_of_hits(inputs.gallery, queries.sets[:2], design, device, progress)
        found = _problem_notes(notes, [problems], queries.problems)
        return CheckResult(NOT_JUDGED, reason, score=None, overlap=overlap, **facts, **found)
    galleries = inputs.gallery, inputs.gallery_new
    agreement, gate_reason, gallery_problems, searched = agreement_with_reembedding(
        galleries, queries.sets[:2], queries.plain, min_agreement, design, device, progress
    )
    if left_out := len(inputs.gallery) - searched:
        items = counted(left_out, "item")
        notes = [*notes, f"{items} of {galleries[0].name} {are(left_out)} not in {galleries[1].name} and not searched"]
    facts |= _problem_notes(notes, gallery_problems, queries.problems) | {"gallery": searched}
    if gate_reason:
        reason = f"{reason}; {gate_reason}"
    return CheckResult(NOT_JUDGED, reason, score=None, agreement=agreement, **facts)


def _scores(searched: Sequence[GalleryOutcomes], design: Design) -> dict[str, Any]:
    """Scores of the tests, the gain, and what re-embedding the gallery would add."""
    before, after, *plain = (outcomes.values for outcomes in searched[0].outcomes)
    found: dict[str, Any] = {
        "self_test": mean_estimate(before, design),
        "cross_test": mean_estimate(after, design),
        "gain": gain_estimate(before, after, design),
    }
    if plain:
        found["without_bridge"] = WithoutBridge(
            mean_estimate(plain[0], design), gain_estimate(before, plain[0], design)
        )
    if len(searched) > 1:
        again = searched[1].outcomes[0].values
        adds, kept = gain_estimate(after, again, design), share_of_means(after, again, design)
        found |= {"new_self_test": mean_estimate(again, design), "kept": kept}
        found["reindex"] = Reindex(adds, _share_reached(found["gain"], adds))
    return found


def _answers(
    searched: GalleryOutcomes, score: RankingScore, max_loss: float, design: Design, *, bridged: bool
) -> dict[str, Any]:
    """Verdict and reason, the answers to both questions, and the score of a random ranking."""
    before, after = (outcomes.values for outcomes in searched.outcomes[:2])
    by_chance = chance(score, searched.answers, searched.answers.items)
    interval = gain_interval(before, after, design)
    gain, units, what = Estimate.of(interval), interval.units, interval.unit
    needed = functools.partial(units_needed, before, after, design)
    better = better_answer(gain, units, what, needed)
    loss = answer_about(gain, max_loss, units, what, needed)
    old, new = mean_estimate(before, design), mean_estimate(after, design)
    if units >= FEWEST_UNITS and _at_chance(old, new, gain, by_chance):
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
        "chance": by_chance,
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


def _names(
    judged: Judgement, searched: GalleryOutcomes, inputs: CheckInputs, protocol: str
) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray] | None]:
    """The name of each possible hit, and the labels of queries and of hits."""
    if judged.classes is None or not isinstance(searched.answers, ClassAnswers):
        return inputs.gallery.names(), None
    hit_labels = judged.classes[searched.answers.gallery]
    hit_names = hit_labels if protocol == "template" else inputs.gallery.names()
    return hit_names, (judged.classes[searched.answers.query], hit_labels)
