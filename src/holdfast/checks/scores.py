"""Scores of queries by the names that retrieval uses, and the protocols by which classes are searched.

The scores are those of ``holdfast.metrics.ranking``: exact ties count by their expected value over all orders.
"""

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from holdfast.checks.right_answers import Floats, Ints, RightAnswers
from holdfast.core.errors import HoldfastError, unknown_name
from holdfast.metrics.ranking import PlaceCounter, Places, RankingScore, places_of_hits, ranking_score, ties_beyond
from holdfast.vectors.lengths import unit

BY_RELEVANCE, BY_CLASS = "nDCG@10", "hit@1"
"""Scores unless another one is asked for: with relevance, and with classes or known items."""
OVERLAP_AT = 10
OVERLAP = RankingScore("overlap@10", "recall", OVERLAP_AT)
"""Share of the ten items that a full re-embedding shows among the first ten hits: the score without judgements."""
FURTHER = 8
"""Hits that a search returns beyond those that count, so that ties with the last one are seen."""
Blocks = Callable[[Ints], Iterator[tuple[Ints, NDArray[np.float32]]]]
"""Called with numbers of queries; gives rows of items and the scores of these queries (q x n), the same every time."""


def chosen_score(name: str | None, default: str) -> RankingScore:
    """The score of this name, or the default for None."""
    return ranking_score(default if name is None else name)


def chance(score: RankingScore, answers: RightAnswers, items: int) -> float:
    """The mean score of a random ranking of so many items; refused if the score cannot depend on the features."""
    if not answers.counts().any():
        raise HoldfastError(f"{score.name}: no query has a right item to find")
    query, grade, count, present = answers.right_items()
    tied = np.where(present, items, 0)
    expected = score(Places(len(answers.counts()), query, np.zeros(len(query), np.int64), tied, grade, count))
    expected = expected[~np.isnan(expected)]
    everything = score.k is not None and score.k >= items and score.kind in ("recall", "hit", "P")
    if everything or np.isin(expected.round(12), (0, 1)).all():
        raise HoldfastError(
            f"{score.name} would be the same for any features: there is one class, or K is too large for the gallery"
        )
    return float(expected.mean())


def hit_values(score: RankingScore, answers: RightAnswers, hits: Ints, scores: NDArray) -> Floats:
    """The score of each query (Q), by its hits: rows of items and scores (Q x k), best first, -inf for none."""
    return score(places_of_hits(scores, answers.grades(hits), *answers.right_items()[:3]))


def query_values(
    score: RankingScore, answers: RightAnswers, hits: Ints, scores: NDArray, blocks: Blocks, items: int
) -> Floats:
    """The same, exact also where more items tie than ``hits`` holds, and for scores of the whole ranking.

    hits, scores: the first ``depth(score, items)`` hits; all -inf for a query that finds nothing.
    blocks: the scores of all items. items: their number.
    """
    found = scores[:, 0] > -np.inf
    if score.k is None:
        values, again = np.where(answers.counts() > 0, 0.0, np.nan), found.copy()
    else:
        hits, scores, removed = _without_own(hits, scores, answers.own)
        values = hit_values(score, answers, hits, scores)
        whole = ties_beyond(scores, min(score.k, scores.shape[1]), items)
        shorter = scores[:, :-1]
        again = whole & ~removed
        if removed.any() and shorter.shape[1]:
            again |= removed & ties_beyond(shorter, min(score.k, shorter.shape[1]), items - 1)
        again &= found
    rows = np.flatnonzero(again & (answers.counts() > 0))
    if len(rows):
        values[rows] = _counted_values(score, answers.of(rows), lambda: blocks(rows))
    return values


def depth(score: RankingScore, items: int) -> int:
    """How many hits ``query_values`` needs."""
    return min(items, (score.k or 1) + FURTHER)


def _counted_values(
    score: RankingScore, answers: RightAnswers, blocks: Callable[[], Iterator[tuple[Ints, NDArray[np.float32]]]]
) -> Floats:
    """The score of each query from the places of all its right items in the whole ranking."""
    query, item, grade = answers.pairs()
    counter = PlaceCounter(query, item, len(answers.counts()))
    for numbers, block in blocks():
        counter.read(numbers, _own_hidden(numbers, block, answers.own))
    for numbers, block in blocks():
        counter.count(_own_hidden(numbers, block, answers.own))
    return score(counter.places(grade))


def _own_hidden(numbers: Ints, block: NDArray[np.float32], own: Ints | None) -> NDArray[np.float32]:
    return block if own is None else np.where(numbers == own[:, None], np.float32(-np.inf), block)


def _without_own(hits: Ints, scores: NDArray, own: Ints | None) -> tuple[Ints, NDArray, NDArray[np.bool_]]:
    """Hits with each query's own row moved to the end, as a place without a hit; and which queries had found it."""
    if own is None:
        return hits, scores, np.zeros(len(hits), dtype=bool)
    mine = (hits == own[:, None]) & (hits >= 0)
    order = np.argsort(mine, axis=1, kind="stable")
    scores = np.where(mine, np.float32(-np.inf), scores)
    return np.take_along_axis(hits, order, 1), np.take_along_axis(scores, order, 1), mine.any(1)


def templates(features: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """One unit vector per class, the mean of its unit features, and the class labels in ascending order."""
    classes, member = np.unique(labels, return_inverse=True)
    order = np.argsort(member, kind="stable")
    first = np.searchsorted(member[order], np.arange(len(classes)))
    return unit(np.add.reduceat(features[order], first, axis=0)), classes


def whole_gallery(features: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return features, labels


PROTOCOLS: dict[str, Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]] = {
    "template": templates,  # that of the authors' code; the paper's text names no average
    "instance": whole_gallery,
}


def gallery_of(protocol: str, features: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The vectors that queries are compared with under ``protocol``, and their classes."""
    if protocol not in PROTOCOLS:
        raise unknown_name("protocol", protocol, PROTOCOLS)
    return PROTOCOLS[protocol](features, labels)
