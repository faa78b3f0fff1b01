"""Does the score threshold tuned for the old model still keep strangers out?"""

import numpy as np

from holdfast.checking.estimates import Estimate, Resampling
from holdfast.checking.judge import Judgement, Pairs
from holdfast.checking.result import Thresholds
from holdfast.metrics import percentile_interval, resampled_means, threshold_at_far

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
