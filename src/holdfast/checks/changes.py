"""What changes for single queries, classes and a score threshold when the new model's queries are used."""

from typing import Any

import numpy as np

from holdfast.checks.estimates import Estimate, Resampling
from holdfast.checks.query_outcomes import Pairs, QueryOutcomes
from holdfast.checks.result import Changes, Thresholds
from holdfast.metrics import exact_mcnemar, resampled_means, threshold_at_far
from holdfast.metrics.resampling import covering_interval


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

    classes = None if resampling.groups is None else resampling.groups[query]
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
