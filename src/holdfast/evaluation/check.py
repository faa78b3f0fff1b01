"""May the new model's queries be used on the old model's gallery, as it is?

Who changed: queries that were right and become wrong, and the classes that lose most.

Does the score threshold tuned for the old model still keep strangers out?

Without classes or relevance: how alike are the hits? A look, not a judgement.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from holdfast.errors import HoldfastError, unknown_name
from holdfast.evaluation.estimates import Estimate, Resampling, gain_estimate, score_estimate, units
from holdfast.evaluation.feature_set import FeatureSet
from holdfast.evaluation.inputs import (
    Answers,
    Relevance,
    Sets,
    Source,
    answers_for,
    opened,
    pair_queries,
    pairing_notes,
)
from holdfast.evaluation.judge import GalleryView, Judgement, Pairs, judge_gallery
from holdfast.evaluation.protocols import PROTOCOLS, VERIFICATION_PAIRS
from holdfast.evaluation.result import (
    FEWEST_UNITS,
    INCOMPATIBLE,
    NOT_JUDGED,
    Changes,
    CheckResult,
    Overlap,
    Reindex,
    Thresholds,
    judge_gain,
)
from holdfast.evaluation.scores import Score, parse_score
from holdfast.evaluation.search import Condition, Progress, search_blocks, unit_blocks, unit_queries
from holdfast.metrics import exact_mcnemar, mean_interval, percentile_interval, resampled_means, threshold_at_far
from holdfast.metrics.resampling import RESAMPLES


def check(
    gallery: Source,
    queries_old: Source,
    queries_new: Source,
    gallery_new: Source | None = None,
    *,
    relevance: Relevance | None = None,
    score: str = "top1",
    protocol: str = "instance",
    confidence: float = 0.95,
    min_gain: float = 0.0,
    cluster_by_class: bool = False,
    far: float = 0.01,
    threshold: float | None = None,
    pairs: int = VERIFICATION_PAIRS,
    resamples: int = RESAMPLES,
    seed: int = 0,
    device: torch.device | str = "cpu",
    progress: Progress = lambda stage, done, total: None,
) -> CheckResult:
    """Judge new queries on the old gallery against the old queries there: the verdict with its evidence.

    Compatible: the interval of the gain (cross-test minus self-test) lies wholly above ``min_gain``, a fraction of 1;
    a negative one asks only for "not much worse". Incompatible: wholly below. Else not shown.
    relevance takes the place of classes. cluster_by_class: draw whole classes of queries, where queries of one class
    are alike. far, threshold: which score threshold is looked at. pairs: how many are drawn for scores of pairs.
    The interval says nothing of what another training of either model would give.
    """
    chosen = parse_score(score)
    check_options(protocol, confidence, min_gain, resamples)
    if not 0 < far < 1 or pairs < 2:
        raise HoldfastError(f"far must lie between 0 and 1 and pairs be at least 2; got {far:g} and {pairs}")
    sets = Sets(
        opened(gallery, "gallery", "gallery"),
        opened(queries_old, "queries_old", "query"),
        opened(queries_new, "queries_new", "query"),
        None if gallery_new is None else opened(gallery_new, "gallery_new", "gallery"),
    )
    pairing = pair_queries(sets.old, sets.new)
    answers = answers_for(sets, pairing, relevance)
    codes = answers.codes if answers else None
    if cluster_by_class and codes is None:
        raise HoldfastError("queries can be drawn by class only where they have labels; leave out cluster-by-class")
    how = Resampling(confidence, resamples, seed, codes if cluster_by_class else None)
    (old, old_condition), (new, new_condition) = (
        unit_queries(part, rows, device) for part, rows in ((sets.old, pairing.old), (sets.new, pairing.new))
    )
    asked = [old, new] if sets.comparable else [old]
    facts: dict[str, Any] = {
        "score": chosen.name,
        "protocol": protocol,
        "confidence": confidence,
        "min_gain": min_gain,
        "clustered": cluster_by_class,
        "queries": len(pairing),
        "gallery": len(sets.gallery),
        "classes": None if codes is None else len(np.unique(codes)),
        "sources": sets.names(),
        "unpaired": {"old": pairing.only_old, "new": pairing.only_new},
    }
    notes = pairing_notes(sets, pairing)
    query_conditions = [old_condition, new_condition]
    if answers is None:
        if not sets.comparable:
            return CheckResult(INCOMPATIBLE, _sizes(sets), **facts, **_conditions(notes, [], query_conditions))
        overlap, condition = overlap_of_hits(sets.gallery, asked, how, device, progress)
        told = _conditions(notes, [condition], query_conditions)
        reason = "no labels and no relevance: how alike the hits are says nothing of how right they are"
        return CheckResult(NOT_JUDGED, reason, overlap=overlap, **facts, **told)

    settings: dict[str, Any] = {"protocol": protocol, "pairs": pairs, "device": device, "progress": progress}
    on_old = judge_gallery(sets.gallery, answers.truths[0], asked, chosen, **settings)
    on_new = None
    if sets.gallery_new is not None:
        on_new = judge_gallery(sets.gallery_new, answers.truths[1], [new], chosen, **settings)
    views = [view for view in (on_old, on_new) if view is not None]
    facts |= _conditions([*notes, *answers.notes], [view.condition for view in views], query_conditions)
    facts |= _scores(on_old, on_new, chosen, how)
    if not sets.comparable:
        return CheckResult(INCOMPATIBLE, _sizes(sets), **facts)
    before, after = on_old.judgements
    drawn = "classes of queries" if cluster_by_class else "queries"
    verdict, reason = judge_gain(facts["gain"], min_gain, units(how, before), drawn)
    # At chance and shown to be worse: where chance is high or queries are few, the interval alone reaches down to it.
    at_chance = facts["self_test"].low > facts["chance"] >= facts["cross_test"].low and facts["gain"].high < 0
    if at_chance and units(how, before) >= FEWEST_UNITS:
        verdict, reason = INCOMPATIBLE, "the new queries find what blind search would: the two spaces are unrelated"
    hit_names, labels = _names(answers, on_old, sets, protocol)
    if answers.codes is not None and answers.classes is not None:
        facts["by_class"] = class_changes(before.values, after.values, answers.codes, answers.classes)
    return CheckResult(
        verdict,
        reason,
        changes=changed_queries(before, after, pairing.names, hit_names, labels),
        thresholds=compare_thresholds(before, after, on_old.threshold_pairs, how, far=far, threshold=threshold),
        **facts,
    )


def check_options(protocol: str, confidence: float, min_gain: float, resamples: int) -> None:
    """Refuse what no check can be made with."""
    if protocol not in PROTOCOLS:
        raise unknown_name("protocol", protocol, PROTOCOLS)
    if not 0.5 <= confidence < 1:
        raise HoldfastError(f"confidence must be at least 0.5 and below 1, for example 0.95; got {confidence:g}")
    if not -1 < min_gain < 1:
        raise HoldfastError(f"min-gain is a fraction of 1, so that 0.01 is one point; got {min_gain:g}")
    needed = max(100, math.ceil(round(2 / (1 - confidence), 6)))  # one resample at least beyond each end
    if resamples < needed:
        raise HoldfastError(f"resamples must be at least {needed} at confidence {confidence:g}; got {resamples}")


def _scores(on_old: GalleryView, on_new: GalleryView | None, score: Score, how: Resampling) -> dict[str, Any]:
    """The tests there are, the gain and what a new index would add."""
    pairs = on_old.score_pairs
    found: dict[str, Any] = {
        "chance": score.chance(on_old.truth.count_right()[on_old.truth.judged()], on_old.truth.size()),
        "self_test": score_estimate(on_old.judgements[0], score, pairs, how),
    }
    if on_new is not None:
        found["new_self_test"] = score_estimate(on_new.judgements[0], score, on_new.score_pairs, how)
    if len(on_old.judgements) == 2:
        before, after = on_old.judgements
        found["cross_test"] = score_estimate(after, score, pairs, how)
        found["gain"] = gain_estimate(before, after, score, (pairs, pairs), how)
        if on_new is not None:
            adds = gain_estimate(after, on_new.judgements[0], score, (pairs, on_new.score_pairs), how)
            found["reindex"] = Reindex(adds, _share_reached(found["gain"], adds))
    return found


def _share_reached(gain: Estimate, adds: Estimate) -> float:
    possible = gain.value + adds.value
    return gain.value / possible if possible > 0 else float("nan")


def _conditions(notes: list[str], galleries: Sequence[Condition], queries: Sequence[Condition]) -> dict[str, Any]:
    """Notes on the state of every feature set, and their bad rows."""
    told = list(notes)
    for condition in galleries:
        told += condition.notes("left out of the search")
    for condition in queries:
        told += condition.notes("they find nothing and count as wrong")
    spoilt = [condition for condition in (*galleries, *queries) if condition.not_finite or condition.zero]
    bad = {condition.name: {"not_finite": condition.not_finite, "zero": condition.zero} for condition in spoilt}
    return {"notes": told, "bad_rows": bad}


def _sizes(sets: Sets) -> str:
    return f"the new queries have {sets.new.dim} numbers each and the old gallery's vectors {sets.gallery.dim}"


def _names(
    answers: Answers, view: GalleryView, sets: Sets, protocol: str
) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray] | None]:
    """What a hit is called, and the labels of queries and of hits."""
    if answers.codes is None or answers.classes is None:
        return sets.gallery.names(), None
    hit_labels = answers.classes[view.truth.gallery]  # type: ignore[attr-defined]
    hit_names = hit_labels if protocol == "template" else sets.gallery.names()
    return hit_names, (answers.classes[answers.codes], hit_labels)


def changed_queries(
    old: Judgement,
    new: Judgement,
    query_names: np.ndarray,
    gallery_names: np.ndarray,
    labels: tuple[np.ndarray, np.ndarray] | None,
) -> Changes:
    """By the first hit, whatever the score. ``gallery_names``: what a hit's number stands for.

    labels: of every query, and of everything that can be hit; None where there are no classes.
    """
    known = ~np.isnan(old.values)
    before, after = old.right[:, 0] & known, new.right[:, 0] & known
    lost, gained = np.flatnonzero(before & ~after), int((~before & after).sum())

    def named(names: np.ndarray, hit: int) -> Any:
        return None if hit < 0 else names[hit].item()

    listed = [
        {
            "query": query_names[i].item(),
            "old_hit": named(gallery_names, old.hits[i, 0]),
            "new_hit": named(gallery_names, new.hits[i, 0]),
            **({} if labels is None else {"class": labels[0][i].item(), "taken_for": named(labels[1], new.hits[i, 0])}),
        }
        for i in lost
    ]
    return Changes(gained, len(lost), exact_mcnemar(gained, len(lost)), listed)


def class_changes(old: np.ndarray, new: np.ndarray, codes: np.ndarray, classes: np.ndarray) -> list[dict[str, Any]]:
    """Each class's mean score under old and new queries, the largest loss (in queries) first.

    old, new: the score of every query. codes: the class number of every query.
    """
    present, member = np.unique(codes, return_inverse=True)
    sizes = np.bincount(member)
    before, after = (np.bincount(member, weights=values) for values in (old, new))
    order = np.argsort(after - before, kind="stable")
    return [
        {
            "class": classes[present[i]].item(),
            "queries": int(sizes[i]),
            "old": float(before[i] / sizes[i]),
            "new": float(after[i] / sizes[i]),
            "change_in_queries": float(after[i] - before[i]),
        }
        for i in order
    ]


_BINS = 80


def compare_thresholds(
    old: Judgement, new: Judgement, pairs: Pairs, how: Resampling, *, far: float, threshold: float | None
) -> Thresholds | None:
    """FAR and TAR at ``threshold``, or at the one where the old queries have ``far``, for old and new queries.

    A pair is accepted if its cosine is at least the threshold. None where pairs of one kind are missing.
    """
    same = pairs.same
    if same.all() or not same.any():
        return None
    old_impostors, new_impostors = old.compared[~same].astype(np.float64), new.compared[~same].astype(np.float64)
    at = threshold_at_far(old_impostors, far) if threshold is None else threshold
    accepted = np.stack([old_impostors >= at, new_impostors >= at]).astype(np.float64)
    query = pairs.query[~same]
    # A query's pairs stand or fall together, so it is queries (or their classes) that are drawn, not pairs.
    members = query if how.clusters is None else how.clusters[query]
    draws = resampled_means(accepted, resamples=how.resamples, seed=how.seed, clusters=members)
    low, high = percentile_interval(draws[:, 1] - draws[:, 0], len(np.unique(members)), how.confidence)
    old_far, new_far = (float(row.mean()) for row in accepted)
    again = threshold_at_far(new_impostors, old_far)
    return Thresholds(
        threshold=float(at),
        given=threshold is not None,
        impostor_pairs=len(query),
        old_far=old_far,
        old_tar=float((old.compared[same] >= at).mean()),
        new_far=new_far,
        new_tar=float((new.compared[same] >= at).mean()),
        far_change=Estimate(new_far - old_far, low, high),
        verdict="higher" if low > 0 else "lower" if high < 0 else "holds",
        new_threshold=again,
        new_threshold_far=float((new_impostors >= again).mean()),
        new_threshold_tar=float((new.compared[same] >= again).mean()),
        histogram=_histogram(old.compared, new.compared, same),
    )


def _histogram(old: np.ndarray, new: np.ndarray, same: np.ndarray) -> dict[str, list[float]]:
    """The share of pairs in each bin of cosines, named by its lower end, for a picture."""
    both = np.concatenate([old, new])
    low, high = np.floor(20 * both.min()) / 20, np.ceil(20 * both.max()) / 20  # round ends read better on an axis
    edges = np.linspace(low, high if high > low else low + 0.05, _BINS + 1)
    kinds = {"old right": old[same], "new right": new[same], "old wrong": old[~same], "new wrong": new[~same]}
    shares = {name: (np.histogram(scores, edges)[0] / len(scores)).tolist() for name, scores in kinds.items()}
    return {"cosine": edges[:-1].tolist(), **shares}


HITS = 10


def overlap_of_hits(
    gallery: FeatureSet, query_sets: Sequence[Tensor], how: Resampling, device: torch.device | str, progress: Progress
) -> tuple[Overlap, Condition]:
    """The share of the first ten hits that old and new queries have in common, and how often the first is the same."""
    condition = Condition(gallery.name, len(gallery))
    k = min(HITS, len(gallery))
    found, _ = search_blocks(unit_blocks(gallery, condition, device, progress), query_sets, k, gallery.name)
    old, new = (part.indices.cpu().numpy() for part in found)
    shared = (old[:, :, None] == new[:, None, :]).any(2).mean(1)
    first = (old[:, 0] == new[:, 0]).astype(np.float64)
    options = {"confidence": how.confidence, "resamples": how.resamples, "seed": how.seed}
    estimates = [Estimate(float(v.mean()), *mean_interval(v, **options)) for v in (shared, first)]  # type: ignore[arg-type]
    return Overlap(k, *estimates), condition
