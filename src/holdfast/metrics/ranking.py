"""Scores of a ranking by the names that retrieval uses: nDCG@k, MRR@k, recall@k, hit@k, P@k and mAP.

**Ties.** A search often gives several items the same score, and the order of the file then decides which comes first.
Every score here is its *expected value over all orders of the tied items*, in closed form. Without ties it is the usual
score: ``ir-measures`` and ``ranx`` give the same (``bench/ranking_scores.py``).

**What is needed of a ranking** is, for each relevant item, how many items score more (``above``) and how many score the
same, itself included (``tied``). ``Places`` holds these numbers, and every score is a function of them. Three ways lead
to them:

- ``places``: all scores of some queries in memory, Q x N.
- ``places_of_hits``: the first hits of a search. Exact for scores at k or fewer hits, but for the queries that
  ``ties_beyond`` names: their k-th hit ties with items that the search did not return. Count those queries again:
- ``PlaceCounter``: scores of any number of items, block by block, in two passes.

Two items are tied if their scores are equal to about a millionth: a matrix product rounds equal vectors differently at
different places, by up to 2e-8 for unit vectors. ``places_of_hits`` joins hits whose scores differ by at most ``EQUAL``
from the next; the other two ways round all scores to six digits.

**Relevant** is what has a grade above 0; other items need not be listed. A relevant item that is not ranked (because it
is not in the index, or its vector is unusable) has ``tied`` 0: it counts as relevant and is never found.

**Undefined.** A query without a relevant item has the score NaN, whatever it finds. Means leave it out (``nanmean``).

>>> import numpy as np
>>> scores = np.array([[0.9, 0.8, 0.8, 0.1], [0.5, 0.5, 0.5, 0.5]])  # two queries, four items
>>> grades = np.array([[0, 2, 0, 1], [1, 0, 0, 0]])
>>> hit_at(places(scores, grades), 2).tolist()  # half of the orders; half of four places
[0.5, 0.5]
>>> ranking_score("nDCG@3")(places(scores, grades)).round(3).tolist()
[0.43, 0.533]
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from holdfast.core.errors import HoldfastError
from holdfast.core.real_arrays import real_array

EQUAL, _DIGITS = 1e-6, 6
"""Scores with a smaller difference are tied."""
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
_SMALL = 64  # from this place on sums of 1 / place come from a series


@dataclass(frozen=True)
class Places:
    """Where the relevant items of Q queries stand: one entry per relevant item, or per group of equal ones.

    queries: Q.
    query: the number of each entry's query, 0 .. Q-1.
    above: how many items score more.
    tied: how many items have its score, itself included; 0 if it is not ranked.
    grade: above 0; None: 1 for all.
    count: relevant items that an entry stands for, all of this grade and place; None: 1 for each.

    >>> mrr(Places(2, [0, 1], above=[0, 2], tied=[1, 2])).round(6).tolist()  # the first; the third or the fourth
    [1.0, 0.291667]
    """

    queries: int
    query: NDArray
    above: NDArray
    tied: NDArray
    grade: NDArray = None  # type: ignore[assignment]
    count: NDArray = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        entries = len(self.query)
        for name, kind in (
            ("query", np.int64),
            ("above", np.int64),
            ("tied", np.int64),
            ("grade", float),
            ("count", int),
        ):
            values = getattr(self, name)
            array = np.ones(entries, kind) if values is None else real_array(values, name, kind)
            if array.shape != (entries,):
                raise HoldfastError(f"places: {entries} entries, but {name} has the shape {array.shape}")
            object.__setattr__(self, name, array)
        bad = (self.query < 0) | (self.query >= self.queries) | (self.above < 0) | (self.tied < 0)
        bad |= ~(self.grade > 0) | ~np.isfinite(self.grade) | (self.count < 1)
        if bad.any():
            entry = int(np.flatnonzero(bad)[0])
            raise HoldfastError(
                f"places: entry {entry} is impossible: query {self.query[entry]} of {self.queries}, above "
                f"{self.above[entry]}, tied {self.tied[entry]}, grade {self.grade[entry]:g}, count {self.count[entry]}"
            )

    def relevant(self) -> Ints:
        """The number of relevant items of each query, ranked or not (Q)."""
        return _sums(self.query, self.count, self.queries).astype(np.int64)

    def in_any_order(self, items: int) -> "Places":
        """The same relevant items in a ranking of ``items`` items that says nothing: all of them tie.

        A score of it is that of a random ranking, which a search should beat.

        >>> hit_at(Places(1, [0, 0], [0, 7], [1, 1]).in_any_order(8), 4).round(6).tolist()
        [0.785714]
        """
        most = int(self.relevant().max(initial=0))
        if most > items:
            raise HoldfastError(f"places: {most} relevant items for one query, but only {items} in all")
        return replace(self, above=np.zeros_like(self.above), tied=np.full_like(self.tied, items))


def ndcg(places: Places, k: int | None = None) -> Floats:
    """Normalised discounted cumulative gain of each query (Q), in [0, 1]: nDCG@k.

    k: places that count; None: all.

    The grade of the item at place i counts grade / log2(i + 1). Their sum is divided by that of the best order of all
    relevant items, ranked or not. Gains are the grades themselves (as in trec_eval, BEIR, ranx's ``ndcg``), not
    2 ** grade - 1. Ties: every tied item has the mean discount of the places that they share.

    >>> ndcg(Places(1, [0, 0], above=[1, 4], tied=[1, 1], grade=[2, 1]), 10).round(6).tolist()
    [0.626665]
    """
    discounts = _cumulated(lambda place: 1 / np.log2(place + 1), _deepest(places, k))
    start, stop = _span(places, k)
    shared = (discounts[stop] - discounts[start]) / np.maximum(places.tied, 1)
    gains = _sums(places.query, places.count * places.grade * shared, places.queries)
    return np.minimum(_divided(gains, _best_gains(places, k)), 1.0)  # not above it by rounding


def _best_gains(places: Places, k: int | None) -> Floats:
    """The discounted gains of each query if its relevant items come first, those of the highest grade before others."""
    order = np.lexsort((-places.grade, places.query))
    query, count = places.query[order], places.count[order]
    ends = np.cumsum(count)
    begins_at = np.flatnonzero(np.diff(query, prepend=-1))
    ends -= np.repeat((ends - count)[begins_at], np.diff(begins_at, append=len(query)))
    starts = ends - count
    if k is not None:
        starts, ends = np.minimum(starts, k), np.minimum(ends, k)
    discounts = _cumulated(lambda place: 1 / np.log2(place + 1), int(ends.max(initial=0)))
    return _sums(query, places.grade[order] * (discounts[ends] - discounts[starts]), places.queries)


def recall_at(places: Places, k: int) -> Floats:
    """Share of each query's relevant items that are among the first k (Q), in [0, 1]: recall@k.

    At most k / R, with R relevant items. (Some papers call hit@k recall@k.) Ties: expected value.

    >>> recall_at(Places(1, [0, 0], above=[1, 4], tied=[1, 2]), 5).tolist()
    [0.75]
    """
    return _divided(_found(places, _positive(k)), places.relevant())


def precision_at(places: Places, k: int) -> Floats:
    """Relevant items among the first k, divided by k, also if there are fewer than k items (Q), in [0, 1]: P@k.

    Ties: expected value.

    >>> precision_at(Places(1, [0, 0], above=[1, 4], tied=[1, 2]), 5).tolist()
    [0.3]
    """
    return _divided(_found(places, _positive(k)), np.where(places.relevant() > 0, k, 0))


def hit_at(places: Places, k: int) -> Floats:
    """Whether at least one relevant item is among the first k (Q), in [0, 1]: hit@k, also called success@k.

    hit@1 with classes is what tables of compatible learning call recall@1 or top-1. Ties: the probability over all
    orders. If r of m tied items are relevant and n of their places are among the first k, it is
    1 - C(m - r, n) / C(m, n).

    >>> hit_at(Places(2, [0, 1], above=[0, 2], tied=[4, 1]), 2).tolist()
    [0.5, 0.0]
    """
    _positive(k)
    groups = _first_groups(places)
    inside = np.clip(k - groups.above, 0, groups.size)
    values = np.full(places.queries, np.nan)
    values[places.relevant() > 0] = 0.0
    missed = _none_drawn(groups.size, groups.relevant, inside)
    values[groups.query] = 1 - missed
    return values


def mrr(places: Places, k: int | None = None) -> Floats:
    """One divided by the place of the first relevant item; 0 if it is beyond place k (Q), in [0, 1]: MRR@k.

    k: places that count; None: all.
    Ties: expected value. The first of r relevant among m tied items is the j-th with probability
    C(m - j, r - 1) / C(m, r).

    >>> mrr(Places(3, [0, 1, 2], above=[0, 3, 0], tied=[1, 1, 2])).tolist()
    [1.0, 0.25, 0.75]
    """
    groups = _first_groups(places)
    values = np.full(places.queries, np.nan)
    values[places.relevant() > 0] = 0.0
    alike, members = np.unique(
        np.stack([groups.above, groups.size, groups.relevant], axis=1).reshape(-1, 3), axis=0, return_inverse=True
    )
    expected = np.array([_reciprocal(above, size, relevant, k) for above, size, relevant in alike.tolist()])
    if len(alike):
        values[groups.query] = expected[members.reshape(-1)]
    return values


def _reciprocal(above: int, size: int, relevant: int, k: int | None) -> float:
    """The expected value of 1 / place of the first of the relevant items in a group of tied ones."""
    last = size - relevant + 1 if k is None else min(size - relevant + 1, k - above)
    if last < 1:
        return 0.0
    place = np.arange(1, last + 1)
    # None of the first j is relevant with probability (1 - r / m) (1 - r / (m - 1)) .. (1 - r / (m - j + 1)).
    none_before = np.concatenate([[1.0], np.cumprod(1 - relevant / (size - place[:-1] + 1))])
    return float((none_before * relevant / (size - place + 1) / (above + place)).sum())


def mean_precision(places: Places, k: int | None = None) -> Floats:
    """Average precision of each query (Q), in [0, 1]; its mean over queries is mAP.

    The precision at the place of each relevant item, summed, and divided by the number of relevant items, found or not.
    k: only items at the first k places count; None: all.
    Ties: expected value. In a group of m tied items, r of them relevant, with a items and R relevant ones above, an
    item at place a + j has on average R + 1 + (r - 1) (j - 1) / (m - 1) relevant items up to there.

    >>> mean_precision(Places(1, [0, 0], above=[0, 2], tied=[1, 1])).round(6).tolist()
    [0.833333]
    """
    groups = _groups(places)
    inside = groups.size if k is None else np.clip(k - groups.above, 0, groups.size)
    alone = inside / (groups.above + 1)
    inverse = np.where(groups.size == 1, alone, _inverses(groups.above, inside))
    others = (groups.relevant - 1) / np.maximum(groups.size - 1, 1)
    sums = (groups.earlier + 1) * inverse + others * (inside - (groups.above + 1) * inverse)
    precisions = _sums(groups.query, groups.relevant * sums / groups.size, places.queries)
    return _divided(precisions, places.relevant())


@dataclass(frozen=True)
class RankingScore:
    """A score by its name; called with ``Places`` it gives that of each query, Q numbers in [0, 1], NaN if undefined.

    kind: "nDCG", "MRR", "recall", "hit", "P" or "mAP".
    k: places that count; None: all.

    >>> RankingScore("mAP", "mAP", None)(Places(1, [0], [3], [1])).tolist()
    [0.25]
    """

    name: str
    kind: str
    k: int | None

    def __call__(self, places: Places) -> Floats:
        return _KINDS[self.kind](places, self.k)


_KINDS: dict[str, Callable[..., Floats]] = {
    "nDCG": ndcg,
    "MRR": mrr,
    "recall": recall_at,
    "hit": hit_at,
    "P": precision_at,
    "mAP": mean_precision,
}
_NEED_K = ("recall", "hit", "P")
RANKING_SCORES = ("nDCG@K", "MRR@K", "recall@K", "hit@K", "P@K", "mAP")
"""The names that ``ranking_score`` reads; nDCG and MRR may come without @K, and mAP with it."""


def ranking_score(name: str) -> RankingScore:
    """The score of this name, such as ``nDCG@10``; upper and lower case are the same.

    >>> ranking_score("ndcg@10")
    RankingScore(name='nDCG@10', kind='nDCG', k=10)
    """
    match = re.fullmatch(r"([A-Za-z]+)(?:@([1-9]\d{0,8}))?", name)
    kinds = {kind.lower(): kind for kind in _KINDS}
    kind = kinds.get(match[1].lower()) if match else None
    if match is None or kind is None:
        raise HoldfastError(f"unknown score {name!r}; known: {', '.join(RANKING_SCORES)}")
    if match[2] is None and kind in _NEED_K:
        raise HoldfastError(f"score {name!r} needs the number of hits that count, such as {kind}@10")
    k = None if match[2] is None else int(match[2])
    return RankingScore(kind if k is None else f"{kind}@{k}", kind, k)


def places(scores: ArrayLike, grades: ArrayLike) -> Places:
    """The places of the relevant items, from the scores of all items.

    scores: Q x N; -inf or NaN for an item that is not ranked.
    grades: Q x N; above 0 for relevant items.

    >>> places([[0.3, 0.9, 0.3]], [[1, 0, 0]])
    Places(queries=1, query=array([0]), above=array([1]), tied=array([2]), grade=array([1.]), count=array([1]))
    """
    table, judged = real_array(scores, "scores"), real_array(grades, "grades")
    if table.ndim != 2 or table.shape != judged.shape:
        raise HoldfastError(f"places: scores and grades must be Q x N both, but are {table.shape} and {judged.shape}")
    query, item = np.nonzero(judged > 0)
    counter = PlaceCounter(query, item, len(table))
    counter.read(np.arange(table.shape[1]), table)
    counter.count(table)
    return counter.places(judged[query, item])


class PlaceCounter:
    """Counts the places of relevant items in two passes over blocks of scores, so that memory is that of one block.

    query, item: the numbers of query and item of every relevant pair (P).
    queries: Q.

    First every block is read, then every block is counted; both passes must give the same scores, to the bit. A block
    is Q x n scores of n items; -inf or NaN for an item that is not ranked for a query. An item that is in no block is
    not ranked. Rank only what may be found: for leave-one-out the query's own item gets -inf.

    >>> counter = PlaceCounter([0], [2], queries=1)
    >>> blocks = [([0, 1], [[0.9, 0.3]]), ([2, 3], [[0.3, 0.1]])]
    >>> for numbers, scores in blocks:
    ...     counter.read(numbers, scores)
    >>> for _, scores in blocks:
    ...     counter.count(scores)
    >>> found = counter.places()
    >>> found.above.tolist(), found.tied.tolist()
    ([1], [2])
    """

    def __init__(self, query: ArrayLike, item: ArrayLike, queries: int) -> None:
        self._query = real_array(query, "query numbers", np.int64)
        items = real_array(item, "item numbers", np.int64)
        self._by_item = np.argsort(items, kind="stable")
        self._items = items[self._by_item]
        self._scores: NDArray | None = None
        self._by_query: list[Ints] | None = None
        self._queries = queries
        self._above, self._tied = np.zeros((2, len(items)), dtype=np.int64)

    def read(self, numbers: ArrayLike, scores: ArrayLike) -> None:
        """First pass. numbers: the item of each column (n). scores: Q x n."""
        columns, block = real_array(numbers, "item numbers", np.int64), real_array(scores, "scores")
        if self._scores is None:
            self._scores = np.full(len(self._items), -np.inf, block.dtype if block.dtype.kind == "f" else np.float64)
        first, last = (np.searchsorted(self._items, columns, side) for side in ("left", "right"))
        lengths = last - first
        column = np.repeat(np.arange(len(columns)), lengths)
        within = np.arange(len(column)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        pair = self._by_item[np.repeat(first, lengths) + within]
        self._scores[pair] = block[self._query[pair], column].round(_DIGITS)

    def count(self, scores: ArrayLike) -> None:
        """Second pass. scores: Q x n."""
        block = real_array(scores, "scores")
        if self._scores is None:
            raise HoldfastError("places: every block must be read before one is counted")
        if self._by_query is None:
            self._scores[np.isnan(self._scores)] = -np.inf
            ranked = np.flatnonzero(self._scores > -np.inf)
            order = ranked[np.argsort(self._query[ranked], kind="stable")]
            self._by_query = np.split(order, np.searchsorted(self._query[order], np.arange(1, self._queries)))
        for pairs, row in zip(self._by_query, block, strict=True):
            if len(pairs):
                ascending = row.round(_DIGITS)
                ascending = np.sort(ascending[ascending >= self._scores[pairs].min()])  # NaN is not >= anything
                right = np.searchsorted(ascending, self._scores[pairs], "right")
                self._above[pairs] += len(ascending) - right
                self._tied[pairs] += right - np.searchsorted(ascending, self._scores[pairs], "left")

    def places(self, grade: ArrayLike | None = None) -> Places:
        """What was counted. grade: of every pair (P); None: 1 for all."""
        return Places(self._queries, self._query, self._above, self._tied, grade)  # type: ignore[arg-type]


def places_of_hits(
    scores: ArrayLike, grades: ArrayLike, query: ArrayLike, grade: ArrayLike, count: ArrayLike | None = None
) -> Places:
    """The places of the relevant items among the first hits of a search; other relevant items are not ranked.

    scores: of the hits, Q x k, best first; -inf for a place without a hit.
    grades: of the hits, Q x k; 0 for a hit that is not relevant.
    query, grade, count: all relevant items of all queries, found or not: the number of the query, the grade, and how
        many there are (None: one for each entry). For classes one entry per query is enough.

    Scores at up to k hits are exact, but for the queries that ``ties_beyond`` names.

    >>> found = places_of_hits([[0.9, 0.8, 0.8]], [[0, 1, 0]], query=[0], grade=[1], count=[5])
    >>> hit_at(found, 2).tolist(), recall_at(found, 3).tolist()
    ([0.5], [0.2])
    """
    table, judged = real_array(scores, "scores"), real_array(grades, "grades", np.float64)
    if table.ndim != 2 or table.shape != judged.shape:
        raise HoldfastError(f"places: hits must have Q x k scores and grades, but are {table.shape}, {judged.shape}")
    row, place = np.nonzero((judged > 0) & (table > -np.inf))
    groups = _tie_groups(table)
    equal = groups[row] == groups[row, place][:, None]
    found_grade = judged[row, place]
    all_query, all_grade = real_array(query, "query numbers", np.int64), real_array(grade, "grades", np.float64)
    all_count = np.ones(len(all_query), np.int64) if count is None else real_array(count, "counts", np.int64)
    # Of each query and grade: how many there are less how many were found.
    pairs = np.stack([np.concatenate([all_query, row]), np.concatenate([all_grade, found_grade])], axis=1)
    distinct, members = np.unique(pairs.reshape(-1, 2), axis=0, return_inverse=True)
    left = np.bincount(members.reshape(-1), np.concatenate([all_count, -np.ones(len(row))]), len(distinct))
    if (left < 0).any():
        which, level = distinct[np.argmin(left)]
        raise HoldfastError(f"places: query {which:.0f} found more items of grade {level:g} than it has")
    rest = left > 0
    nothing = np.zeros(int(rest.sum()), np.int64)
    return Places(
        len(table),
        np.concatenate([row, distinct[rest, 0].astype(np.int64)]),
        np.concatenate([np.argmax(equal, axis=1), nothing]),
        np.concatenate([equal.sum(axis=1), nothing]),
        np.concatenate([found_grade, distinct[rest, 1]]),
        np.concatenate([np.ones(len(row), np.int64), left[rest].astype(np.int64)]),
    )


def ties_beyond(scores: ArrayLike, k: int, items: int) -> NDArray[np.bool_]:
    """Queries (Q, boolean) whose k-th hit may tie with items that a search did not return.

    scores: of the hits, Q x n with n >= k, best first. Ask the search for some hits more than k, and few queries are
        left.
    items: items that could be found.

    ``places_of_hits`` needs all items that tie with the k-th: these queries must be counted by ``PlaceCounter``.

    >>> ties_beyond([[0.9, 0.8, 0.7], [0.9, 0.8, 0.8]], k=2, items=100).tolist()
    [False, True]
    """
    table = real_array(scores, "scores")
    if table.ndim != 2 or not 1 <= k <= table.shape[1]:
        raise HoldfastError(f"ties: {k} hits are needed, but the scores have the shape {table.shape}")
    groups = _tie_groups(table)
    last: NDArray[np.bool_] = (groups[:, -1] == groups[:, k - 1]) & (table[:, -1] > -np.inf)
    return last & (table.shape[1] < items)


def _tie_groups(scores: NDArray) -> Ints:
    """The number of the group of tied hits that each hit is in, counted from the best (Q x k)."""
    with np.errstate(invalid="ignore"):  # -inf less -inf
        lower = ~(scores[:, :-1] - scores[:, 1:] <= EQUAL)
    return np.concatenate([np.zeros((len(scores), 1), np.int64), np.cumsum(lower, axis=1)], axis=1)


@dataclass(frozen=True)
class _Groups:
    """Groups of tied items that hold relevant ones, by query and place.

    query, above, size: of the group. relevant: how many of its items are. earlier: relevant items above the group.
    """

    query: Ints
    above: Ints
    size: Ints
    relevant: Ints
    earlier: Ints


def _groups(places: Places) -> _Groups:
    ranked = places.tied > 0
    query, above, tied, count = (part[ranked] for part in (places.query, places.above, places.tied, places.count))
    order = np.lexsort((above, query))
    query, above, tied, count = query[order], above[order], tied[order], count[order]
    new = np.diff(query, prepend=-1).astype(bool) | np.diff(above, prepend=-1).astype(bool)
    starts = np.flatnonzero(new)
    relevant = np.add.reduceat(count, starts) if len(starts) else count
    query, above, size = query[starts], above[starts], tied[starts]
    if (relevant > size).any() or (tied != np.repeat(size, np.diff(starts, append=len(tied)))).any():
        raise HoldfastError("places: items of one query with as many items above them must have equal, sufficient ties")
    ends = np.cumsum(relevant)
    first = np.flatnonzero(np.diff(query, prepend=-1))
    before_query = np.repeat((ends - relevant)[first], np.diff(first, append=len(query)))
    return _Groups(query, above, size, relevant, ends - relevant - before_query)


def _first_groups(places: Places) -> _Groups:
    """The first group of each query that has one."""
    groups = _groups(places)
    first = groups.earlier == 0
    return _Groups(*(getattr(groups, name)[first] for name in ("query", "above", "size", "relevant", "earlier")))


def _none_drawn(size: Ints, relevant: Ints, drawn: Ints) -> Floats:
    """The probability that ``drawn`` of ``size`` items, ``relevant`` of them relevant, hold no relevant one."""
    alike, members = np.unique(np.stack([size, relevant, drawn], axis=1), axis=0, return_inverse=True)
    values = np.where(alike[:, 2] > 0, 0.0, 1.0)
    for group in np.flatnonzero((alike[:, 2] > 0) & (alike[:, 2] < alike[:, 0])):
        few, many = sorted(alike[group, 1:].tolist())  # the formula is symmetric in both
        values[group] = np.prod(1 - many / (alike[group, 0] - np.arange(few)).clip(min=many))
    return values[members.reshape(-1)]


def _span(places: Places, k: int | None) -> tuple[Ints, Ints]:
    """The places that each entry's tied items take, from ``start`` (exclusive) to ``stop``, as far as they count."""
    start, stop = places.above, places.above + places.tied
    return (start, stop) if k is None else (np.minimum(start, _positive(k)), np.minimum(stop, k))


def _found(places: Places, k: int) -> Floats:
    """The expected number of relevant items among the first k of each query."""
    start, stop = _span(places, k)
    return _sums(places.query, places.count * (stop - start) / np.maximum(places.tied, 1), places.queries)


def _deepest(places: Places, k: int | None) -> int:
    return int(_span(places, k)[1].max(initial=0))


def _cumulated(term: Callable[[NDArray], NDArray], places: int) -> Floats:
    """0, and the sums of the terms of the first 1, 2, .. places."""
    return np.concatenate([[0.0], np.cumsum(term(np.arange(1, places + 1, dtype=np.float64)))])


def _inverses(above: Ints, places: Ints) -> Floats:
    """The sum of 1 / place over so many places after the first ``above``, to a relative error of about 1e-13."""
    small = _cumulated(lambda place: 1 / place, _SMALL)
    table = small[np.minimum(above + places, _SMALL)] - small[np.minimum(above, _SMALL)]
    # Euler's series of the harmonic numbers of both ends, above + places and at least _SMALL.
    start = np.maximum(above, _SMALL).astype(np.float64)
    stop = np.maximum(above + places, _SMALL).astype(np.float64)
    series = np.log1p((stop - start) / start) - (stop - start) / (2 * start * stop)
    series += (1 / start**2 - 1 / stop**2) / 12 - (1 / start**4 - 1 / stop**4) / 120
    result: Floats = table + series
    return result


def _sums(query: Ints, values: NDArray, queries: int) -> Floats:
    sums: Floats = np.bincount(query, values, queries).astype(np.float64, copy=False)  # whole numbers for no entries
    return sums


def _divided(values: NDArray, by: NDArray) -> Floats:
    """NaN where ``by`` is 0."""
    return np.divide(values, by, out=np.full(len(values), np.nan), where=by > 0)


def _positive(k: int) -> int:
    if k < 1:
        raise HoldfastError(f"the number of hits that count must be at least 1, got {k}")
    return k
