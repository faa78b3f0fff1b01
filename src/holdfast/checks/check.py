"""The check before a release: may the new model's queries search the old model's gallery, unchanged?

Besides the verdict it reports which queries and classes change, how a score threshold tuned for the old model behaves,
and, without labels, how similar the results of both models are.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from holdfast.checks.estimates import (
    Estimate,
    Resampling,
    gain_estimate,
    mean_estimate,
    share_of_means,
    units_needed,
)
from holdfast.checks.inputs import (
    AGREEMENT,
    CheckInputs,
    GroundTruths,
    Relevance,
    ground_truths,
    items_of_both,
    pairing_notes,
    reembedded_hits,
)
from holdfast.checks.query_bridges import QueryBridge, bridge_record, bridged_queries, fitted_notes
from holdfast.checks.query_outcomes import GalleryOutcomes, Pairs, QueryOutcomes, run_queries
from holdfast.checks.result import Changes, CheckResult, Overlap, Reindex, Thresholds, WithoutBridge
from holdfast.checks.scores import OVERLAP, PROTOCOLS, Score, parse_score
from holdfast.checks.verdict import FEWEST_UNITS, INCOMPATIBLE, NO, NOT_JUDGED, accepted_loss, loss_answer, verdict
from holdfast.core.errors import HoldfastError, unknown_name
from holdfast.core.wording import are, counted
from holdfast.metrics import exact_mcnemar, resampled_means, threshold_at_far
from holdfast.metrics.resampling import RESAMPLES, covering_interval
from holdfast.vectors.feature_set import FeatureSet
from holdfast.vectors.pairing import Source, open_features, pair_queries
from holdfast.vectors.search import Progress, VectorProblems, search_blocks, unit_blocks, unit_queries


def check(
    gallery: Source,
    queries_old: Source,
    queries_new: Source,
    gallery_new: Source | None = None,
    *,
    bridge: QueryBridge | None = None,
    relevance: Relevance | None = None,
    leave_one_out: bool = False,
    score: str = "top1",
    protocol: str = "instance",
    confidence: float = 0.95,
    max_loss: float | None = None,
    cluster_by_class: bool = False,
    far: float = 0.01,
    threshold: float | None = None,
    resamples: int = RESAMPLES,
    seed: int = 0,
    device: Any = "cpu",
    progress: Progress = lambda stage, done, total: None,
) -> CheckResult:
    """Compare new and old queries on the old gallery: the verdict with its evidence.

    gallery: the old model's stored vectors: a file, a ``FeatureSet``, or arrays (features, labels) or
        (features, labels, ids).
    queries_old: the old model's features of the queries, in the same forms.
    queries_new: the new model's features of the same queries; paired by id if both have ids, else row by row.
    gallery_new: the gallery embedded by the new model; with it the result says what re-embedding would add. Without
        labels and relevance, its hits are the right answers, and only items that both galleries hold are searched.
    bridge: a function that carries unit queries of the new model (Q x d_new) into the old space (Q x d_old), such as a
        ``Bridge``; the new queries search the old gallery through it, and ``gallery_new`` as they are.
    relevance: relevant pairs, used instead of labels: a file, or a list of (query id, gallery id).
    leave_one_out: the queries are items of the gallery, by id; a query does not find itself. A class with one item
        has no answer and is left out. For labels and the instance protocol.
    score: "top1", "recall@K" or "mAP".
    protocol: "instance" searches single items, "template" one mean vector per class.
    confidence: of the two-sided intervals, at least 0.5 and below 1.
    max_loss: the accepted loss, as a fraction of 1; 0.01, one point, by default. 0 asks for a gain.
    cluster_by_class: resample whole classes of queries; use it if queries of one class are similar to each other.
    far: false-accept rate, with the old queries, of the score threshold that is examined.
    threshold: the score threshold to examine instead, a cosine.
    resamples: number of bootstrap resamples.
    seed: of the resamples.
    device: where the search runs: "cpu", or "cuda" if torch is installed.
    progress: called with the stage, the amount done and the total.

    The gain is the score of the new queries minus that of the old ones. ``loss`` answers "yes" if its interval lies
    above ``-max_loss``, "no" if it lies below, and "not shown" otherwise; it decides ``exit_code``. The verdict is the
    same at 0, the definition of compatible: "compatible", "incompatible" or "not shown".
    The interval covers the choice of queries, not what another training of either model would give.

    >>> import numpy as np
    >>> from holdfast import check
    >>> rng = np.random.default_rng(0)
    >>> labels = np.arange(400) % 20
    >>> items = rng.standard_normal((20, 8))[labels]
    >>> old = items + 0.8 * rng.standard_normal((400, 8))
    >>> new = items + 0.4 * rng.standard_normal((400, 8))  # the same space, with less noise
    >>> stored, queries = (old[:200], labels[:200]), labels[200:]
    >>> result = check(stored, (old[200:], queries), (new[200:], queries), resamples=200)
    >>> result.verdict, result.loss.answer
    ('compatible', 'yes')
    """
    chosen = parse_score(score)
    max_loss = accepted_loss(max_loss)
    check_options(protocol, confidence, resamples, seed)
    if threshold is not None and not math.isfinite(threshold):
        raise HoldfastError(f"threshold must be a number, such as 0.5; got {threshold:g}")
    if not 0 < far < 1:
        raise HoldfastError(f"far must lie between 0 and 1; got {far:g}")
    inputs = CheckInputs(
        open_features(gallery, "gallery", "gallery"),
        open_features(queries_old, "queries_old", "query"),
        open_features(queries_new, "queries_new", "query"),
        None if gallery_new is None else open_features(gallery_new, "gallery_new", "gallery"),
    )
    pairing = pair_queries(inputs.old, inputs.new)
    truths = ground_truths(inputs.galleries(), pairing.names, pairing.labels, relevance, leave_one_out=leave_one_out)
    codes = truths.codes if truths else None
    left_out = 0
    if truths is None and inputs.gallery_new is not None:
        stored = items_of_both(inputs.gallery, inputs.gallery_new)
        left_out = len(inputs.gallery) - len(stored)
        inputs = replace(inputs, gallery=stored)
    if cluster_by_class and codes is None:
        raise HoldfastError("queries can be resampled by class only if they have labels; leave out cluster-by-class")
    resampling = Resampling(confidence, resamples, seed, codes if cluster_by_class else None)
    facts: dict[str, Any] = {
        "score": chosen.name,
        "protocol": protocol,
        "confidence": confidence,
        "clustered": cluster_by_class,
        "queries": len(pairing),
        "gallery": len(inputs.gallery),
        "classes": None if codes is None else len(np.unique(codes)),
        "sources": inputs.names(),
        "unpaired": {"old": pairing.only_old, "new": pairing.only_new},
        "bridged": bridge is not None,
        "bridge": bridge_record(bridge),
        "leave_one_out": leave_one_out,
    }
    notes = pairing_notes(inputs, pairing, ceiling=truths is not None, leave_one_out=leave_one_out)
    (old, old_problems), (new, new_problems) = (
        unit_queries(part, rows) for part, rows in ((inputs.old, pairing.old), (inputs.new, pairing.new))
    )
    if bridge is None and not inputs.comparable:  # decided before anything is searched
        return CheckResult(INCOMPATIBLE, _sizes(inputs), **facts, notes=notes)
    notes += fitted_notes(bridge, new, inputs.new, inputs.gallery_new if truths is None else None)
    query_sets = [old]
    if bridge is not None:
        query_sets.append(bridged_queries(bridge, new, inputs.new, inputs.gallery))
    if inputs.comparable:
        query_sets.append(new)
    query_problems = [old_problems, new_problems]
    gallery_problems = []
    if truths is None and inputs.gallery_new is not None:
        if threshold is not None or score != "top1":
            what = f"the score {score}" if threshold is None else "a threshold"
            raise HoldfastError(f"{what} needs labels or relevance; without them {OVERLAP.name} is measured")
        truth, problems = reembedded_hits(inputs.gallery, inputs.gallery_new, new, device, progress)
        truths, chosen = GroundTruths([truth], [AGREEMENT]), OVERLAP
        gallery_problems.append(problems)
        facts |= {"score": chosen.name, "agreement": True}
        if left_out:
            items, there = counted(left_out, "item"), inputs.gallery_new.name
            notes.append(f"{items} of {inputs.gallery.name} {are(left_out)} not in {there} and not searched")
    if truths is None:
        overlap, problems = overlap_of_hits(inputs.gallery, query_sets[:2], resampling, device, progress)
        noted = _problem_notes(notes, [problems], query_problems)
        reason = "no labels and no relevance: similar results may still be wrong"
        return CheckResult(NOT_JUDGED, reason, overlap=overlap, **facts, **noted)

    settings: dict[str, Any] = {"protocol": protocol, "device": device, "progress": progress}
    old_gallery = run_queries(inputs.gallery, truths.per_gallery[0], query_sets, chosen, **settings)
    gallery_problems.insert(0, old_gallery.problems)
    new_gallery = None
    if inputs.gallery_new is not None and len(truths.per_gallery) > 1:
        new_gallery = run_queries(inputs.gallery_new, truths.per_gallery[1], [new], chosen, **settings)
        gallery_problems.append(new_gallery.problems)
    facts |= _problem_notes([*notes, *truths.notes], gallery_problems, query_problems)
    facts |= _scores(old_gallery, new_gallery, chosen, resampling)
    before, after = old_gallery.outcomes[:2]
    judged_on, drawn = resampling.units(before.values), resampling.drawn
    if bridge is not None and inputs.comparable:
        facts["without_bridge"] = _without_bridge(old_gallery, resampling)
    decision, reason = verdict(facts["gain"], judged_on, drawn)
    needed = units_needed(before.values, after.values, facts["gain"], -max_loss, resampling)
    facts["loss"] = loss_answer(facts["gain"], max_loss, judged_on, drawn, needed)
    if _at_chance(facts) and judged_on >= FEWEST_UNITS:
        queries = "the new queries" if bridge is None else "the bridged queries"
        reason = f"{queries} score no better than a random ranking: the two spaces are unrelated"
        decision = INCOMPATIBLE
        facts["loss"] = replace(facts["loss"], answer=NO, reason=reason, units_needed=None)
    if facts.get("agreement"):  # pairs that are not among the first ten hits are not wrong
        return CheckResult(decision, reason, **facts)
    hit_names, labels = _names(truths, old_gallery, inputs, protocol)
    if truths.codes is not None and truths.classes is not None:
        facts["by_class"] = class_changes(before.values, after.values, truths.codes, truths.classes)
    return CheckResult(
        decision,
        reason,
        changes=changed_queries(before, after, pairing.names, hit_names, labels),
        thresholds=compare_thresholds(
            before, after, old_gallery.threshold_pairs, resampling, far=far, threshold=threshold
        ),
        **facts,
    )


def check_options(protocol: str, confidence: float, resamples: int, seed: int = 0) -> None:
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


def _scores(
    old_gallery: GalleryOutcomes, new_gallery: GalleryOutcomes | None, score: Score, resampling: Resampling
) -> dict[str, Any]:
    """Scores of the tests, the gain, and what re-embedding the gallery would add."""
    truth = old_gallery.truth
    before, after = (outcomes.values for outcomes in old_gallery.outcomes[:2])
    found: dict[str, Any] = {
        "chance": score.chance(truth.count_right()[truth.has_answer()], truth.size()),
        "self_test": mean_estimate(before, resampling),
        "cross_test": mean_estimate(after, resampling),
        "gain": gain_estimate(before, after, resampling),
    }
    if new_gallery is not None:
        again = new_gallery.outcomes[0].values
        found["new_self_test"] = mean_estimate(again, resampling)
        adds = gain_estimate(after, again, resampling)
        found["kept"] = share_of_means(after, again, resampling)
        found["reindex"] = Reindex(adds, _share_reached(found["gain"], adds), found["kept"].value)
    return found


def _at_chance(facts: dict[str, Any]) -> bool:
    """Whether new queries score like a random ranking, and clearly not like the old ones.

    With a high chance score or few queries, the interval of a good score reaches down to chance. So the new queries
    must also do worse, and the whole interval of their score must lie nearer to chance than to the old queries' score.
    """
    old, new, chance = facts["self_test"], facts["cross_test"], facts["chance"]
    between = (old.value + chance) / 2
    return bool(old.low > chance >= new.low and new.high < between and facts["gain"].high < 0)


def _without_bridge(old_gallery: GalleryOutcomes, resampling: Resampling) -> WithoutBridge:
    """Scores of the plain new queries, the third set of queries."""
    before, _, plain = (outcomes.values for outcomes in old_gallery.outcomes)
    return WithoutBridge(mean_estimate(plain, resampling), gain_estimate(before, plain, resampling))


def _share_reached(gain: Estimate, adds: Estimate) -> float:
    possible = gain.value + adds.value
    return gain.value / possible if possible > 0 else float("nan")


def _problem_notes(
    notes: list[str], galleries: Sequence[VectorProblems], queries: Sequence[VectorProblems]
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


def _sizes(inputs: CheckInputs) -> str:
    return (
        f"the new queries have {inputs.new.dim} numbers each and the old gallery's vectors {inputs.gallery.dim}; "
        "a bridge between the two is needed: fit one with holdfast bridge, then check with --bridge"
    )


def _names(
    truths: GroundTruths, view: GalleryOutcomes, inputs: CheckInputs, protocol: str
) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray] | None]:
    """The name of each possible hit, and the labels of queries and of hits."""
    if truths.codes is None or truths.classes is None:
        return inputs.gallery.names(), None
    hit_labels = truths.classes[view.truth.gallery]  # type: ignore[attr-defined]
    hit_names = hit_labels if protocol == "template" else inputs.gallery.names()
    return hit_names, (truths.classes[truths.codes], hit_labels)


def changed_queries(
    old: QueryOutcomes,
    new: QueryOutcomes,
    query_names: np.ndarray,
    gallery_names: np.ndarray,
    labels: tuple[np.ndarray, np.ndarray] | None,
) -> Changes:
    """Queries with a first hit that became right or wrong.

    query_names: the name of each query.
    gallery_names: the name of each gallery row, or class.
    labels: of every query and of every gallery row; None without classes.
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
    """The mean score of each class under old and new queries, the largest loss (in queries) first.

    old, new: the score of every query.
    codes: the class number of every query.
    classes: the label of each class number.
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
    old: QueryOutcomes, new: QueryOutcomes, pairs: Pairs, resampling: Resampling, *, far: float, threshold: float | None
) -> Thresholds | None:
    """False- and true-accept rates of old and new queries at one threshold.

    far: the threshold is the one at which the old queries have this false-accept rate,
    threshold: unless it is given.

    A pair is accepted if its cosine is at least the threshold. None if pairs of one kind are missing.
    """
    same = pairs.same
    if same.all() or not same.any():
        return None
    old_impostors, new_impostors = old.compared[~same].astype(np.float64), new.compared[~same].astype(np.float64)
    at = threshold_at_far(old_impostors, far) if threshold is None else threshold
    accepted = np.stack([old_impostors >= at, new_impostors >= at]).astype(np.float64)
    query = pairs.query[~same]

    def changes(classes: np.ndarray | None) -> np.ndarray:
        """Pairs of one query are dependent, so queries (or their classes) are resampled, not pairs."""
        members = query if classes is None else classes
        draws = resampled_means(accepted, resamples=resampling.resamples, seed=resampling.seed, clusters=members)
        return np.asarray(draws[:, 1] - draws[:, 0])

    classes = None if resampling.clusters is None else resampling.clusters[query]
    low, high = covering_interval(changes, len(np.unique(query)), classes, resampling.confidence)
    old_far, new_far = (float(row.mean()) for row in accepted)
    refitted = threshold_at_far(new_impostors, old_far)
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
        new_threshold=refitted,
        new_threshold_far=float((new_impostors >= refitted).mean()),
        new_threshold_tar=float((new.compared[same] >= refitted).mean()),
        histogram=_histogram(old.compared, new.compared, same),
    )


def _histogram(old: np.ndarray, new: np.ndarray, same: np.ndarray) -> dict[str, list[float]]:
    """The share of pairs in each bin of cosines; a bin is named by its lower end."""
    both = np.concatenate([old, new])
    low, high = np.floor(20 * both.min()) / 20, np.ceil(20 * both.max()) / 20  # round ends read better on an axis
    edges = np.linspace(low, high if high > low else low + 0.05, _BINS + 1)
    kinds = {"old right": old[same], "new right": new[same], "old wrong": old[~same], "new wrong": new[~same]}
    shares = {name: (np.histogram(scores, edges)[0] / len(scores)).tolist() for name, scores in kinds.items()}
    return {"cosine": edges[:-1].tolist(), **shares}


HITS = 10


def overlap_of_hits(
    gallery: FeatureSet,
    query_sets: Sequence[np.ndarray],
    resampling: Resampling,
    device: Any,
    progress: Progress,
) -> tuple[Overlap, VectorProblems]:
    """The share of the first ten hits that old and new queries have in common, and how often the first is the same."""
    problems = VectorProblems(gallery.name, len(gallery))
    k = min(HITS, len(gallery))
    (old, new), _ = search_blocks(unit_blocks(gallery, problems, progress), query_sets, k, gallery.name, device)
    # A query of zeros finds nothing, in either search.
    usable = query_sets[0].any(1) & query_sets[1].any(1)
    shared = (old.indices[:, :, None] == new.indices[:, None, :]).any(2).mean(1) * usable
    first = (old.indices[:, 0] == new.indices[:, 0]).astype(np.float64) * usable
    return Overlap(k, mean_estimate(shared, resampling), mean_estimate(first, resampling)), problems
