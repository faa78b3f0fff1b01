"""Which kind of map a bridge uses, measured on pairs that it was not fitted on.

Each held-out item queries the other held-out items: bridged, against old vectors. The result is compared with the same
search among new vectors. No labels are needed; with labels, the share of first hits of the right class decides. If the
pairs are a large part of the gallery, the same share of the items searched are pairs that the map was fitted on.
"""

import copy
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.bridges.maps import Affine, Local, Matrix, QueryMap, Rotation, Shared, mapped_queries
from holdfast.bridges.scores import BEST, SAME, ScoreScale, measure_scale
from holdfast.core.errors import HoldfastError, unknown_name
from holdfast.metrics.exposure import EXPOSURE_AT, StoredItems, exposure_ratio, search_mixed
from holdfast.vectors import nearest

NONE = "none"
BRIDGES: dict[str, type[QueryMap]] = {kind.kind: kind for kind in (Rotation, Affine, Local)}
"""Kinds of map by name. ``none`` uses queries as they are and needs spaces of equal size."""

CANDIDATES: tuple[tuple[str, dict[str, Any]], ...] = (
    (NONE, {}),
    ("rotation", {}),
    ("rotation", {"centred": True}),
    ("affine", {"ridge": 0.1}),
    ("affine", {"ridge": 1.0}),
    ("local", {}),
)
"""What ``auto`` compares: a few seconds at 2,000 pairs."""

SHORT_RANK = 256
"""Rank of the short form of a linear map."""
SHORT_FROM = 1024
"""Size of the smaller space from which on a short form is tried. The matrix of a larger map does not fit into a core's
cache, so that reading it takes most of the time of a single query."""
SHORT_LOSS = 0.005
FEWEST_PAIRS = 10
OVERLAP_FROM = 50
"""Held-out pairs from which on hits are compared; below, the rank of an item's own stored vector is."""
LABELS_FROM = 200
"""Held-out items that share a class with another one, from which on labels decide; with fewer, overlap varies less."""
BEYOND_CHANCE = 4
"""Standard errors above chance that count as clearly better than random hits. Three would be passed by 5 % of unrelated
spaces: the best of several candidates is taken, and hits of similar queries depend on each other."""
FIRST_FROM = 200
"""Held-out items from which on first places decide between maps of equal value; with fewer, they vary too much."""
HELD_OUT = 0.3
MOST_HELD_OUT = 1000
MOST_SEARCHED_BESIDE = 9000
CURVE = (50, 100, 200, 500, 1000, 2000, 5000)
FIRST = 10


@dataclass(frozen=True)
class Candidate:
    """One kind of map, measured on held-out pairs.

    value: mean over held-out items of the measure, in [0, 1]; higher is better.
    error: standard error of ``value``.
    scaled: whether its scores are scaled before they are merged with those of the newest version.
    exposure: expected exposure ratio of old items by number of first places (1, 10), in a gallery with half of the
        held-out items embedded by each model; empty with few held-out pairs. 1 is fair.
    mixed_overlap: overlap@10 of that gallery's hits with those of a full re-embedding; NaN with few held-out pairs.
    """

    kind: str
    options: dict[str, Any]
    value: float
    error: float
    scaled: bool = False
    exposure: dict[int, float] = field(default_factory=dict)
    mixed_overlap: float = float("nan")


@dataclass(frozen=True)
class Evidence:
    """How a bridge was chosen.

    measure: "overlap@10" (share of the ten nearest items of the new space that the bridged search shows),
        "reciprocal rank" (of an item's own stored vector), or with labels "top1".
    chance: the value of random hits.
    pairs: all pairs; held_out: those of them that no candidate was fitted on.
    searched: items that the held-out ones were searched among.
    candidates: the chosen one first, then by value.
    curve: (pairs fitted on, value) of the chosen kind on nested subsets of the pairs.
    beyond_chance: by how many standard errors the chosen candidate's hits agree better with the wanted ones than with
        those of other queries, without labels and if held-out items are searched among held-out items only. Fitted
        pairs would be found more often than by chance even between unrelated spaces, and labels of few classes are
        often matched by chance. 0 with fewer than ten different vectors in one of the spaces.
    raw_exposure: of old items with queries and scores as they are; None if that cannot be measured.
    """

    measure: str
    chance: float
    pairs: int
    held_out: int
    searched: int
    candidates: tuple[Candidate, ...]
    curve: tuple[tuple[int, float], ...] = ()
    seconds: float = 0.0
    beyond_chance: float = float("nan")
    raw_exposure: dict[int, float] | None = None

    @property
    def chosen(self) -> Candidate:
        """The candidate with the highest value; ``ranked`` says which one wins within a standard error."""
        return self.candidates[0]

    @property
    def without(self) -> Candidate | None:
        """Queries and scores as they are; None if the two spaces cannot be compared.

        The candidate ``none`` differs from it if its scores are scaled.
        """
        found = next((one for one in self.candidates if one.kind == NONE), None)
        if found is None or not found.scaled or self.raw_exposure is None:
            return found
        return replace(found, scaled=False, exposure=self.raw_exposure, mixed_overlap=float("nan"))


@dataclass(frozen=True)
class Measured:
    """A candidate with its values per held-out item and the scale of its scores.

    first: per held-out item the reciprocal rank of its nearest item in the new space, which decides between maps with
        equal values; empty with few held-out pairs.
    """

    candidate: Candidate
    values: NDArray[np.float64]
    first: NDArray[np.float64]
    scale: ScoreScale


class Trial:
    """Candidates fitted on some pairs and measured on the others.

    new, old: unit vectors of all pairs, N x d_new and N x d_old.
    labels: N class numbers, -1 for unknown; None measures overlap.
    split: which pairs are fitted, held out as queries, and searched.
    unbridged: N x d_old, the new items as queries without a bridge; None without such a form.
    """

    def __init__(
        self,
        new: Matrix,
        old: Matrix,
        labels: NDArray[np.int64] | None,
        split: "Split",
        unbridged: Matrix | None,
    ) -> None:
        held, searched = split.held, np.concatenate([split.held, split.also_searched])
        self._fit_new, self._fit_old = new[split.fitted], old[split.fitted]
        self._new, self._old = new[held], old[held]
        self._all_new, self._all_old = new[searched], old[searched]  # the held-out items come first
        self._unbridged = None if unbridged is None else unbridged[held]
        self._mapped: dict[str, Matrix] = {}  # by kind, options and number of pairs: a fit can take a second
        self._shared: dict[int, Shared] = {}  # by number of pairs
        self._pairs, self._best = len(new), split.best
        self._enough = len(held) >= OVERLAP_FROM
        self._fair = neighbours_of_items(self._new, self._all_new) if self._enough else None
        self.labels = None if labels is None else self._useful(_judgeable(labels[searched], len(held)))
        self.measure, self.chance = self._measure(len(searched))

    def _measure(self, count: int) -> tuple[str, float]:
        if self.labels is not None:
            return "top1", _chance(self.labels, len(self._new))
        if self._enough:
            return "overlap@10", min(1.0, FIRST / (count - 1))
        return "reciprocal rank", float((1 / np.arange(1, count + 1)).mean())

    def _useful(self, labels: NDArray[np.int64] | None) -> NDArray[np.int64] | None:
        """The labels, if first hits of a full re-embedding match them more often than random hits; None otherwise.

        A single class, or labels that say nothing about what is similar, could not tell a good bridge from a bad one.
        """
        if labels is None or self._fair is None:
            return None
        right = _right(labels, self._fair[:, 0])
        clear = BEYOND_CHANCE * _error(right)
        return labels if float(right.mean()) - _chance(labels, len(self._new)) > clear else None

    def measured(self, kind: str, options: Mapping[str, Any]) -> Measured:
        bridged = self._bridged(kind, options, len(self._fit_new))
        values = self._values(bridged)
        scale, mixed = self._merging(bridged, raw_first=kind == NONE)
        found: dict[str, Any] = (
            {} if mixed is None else {"exposure": mixed.exposure, "mixed_overlap": float(mixed.overlaps.mean())}
        )
        candidate = Candidate(kind, dict(options), float(values.mean()), _error(values), not scale.is_raw, **found)
        return Measured(candidate, values, self._first_places(bridged), scale)

    def _first_places(self, bridged: Matrix) -> NDArray[np.float64]:
        """Reciprocal rank of each item's nearest item in the new space among bridged hits; empty with few items."""
        if self._fair is None:
            return np.zeros(0)
        scores = bridged @ self._all_old.T
        np.fill_diagonal(scores, -np.inf)  # the item itself
        wanted = np.take_along_axis(scores, self._fair[:, :1], 1)
        ranks: NDArray[np.float64] = 1 / ((scores > wanted).sum(axis=1) + 1)
        return ranks

    def _merging(self, bridged: Matrix, *, raw_first: bool) -> "tuple[ScoreScale, _Mixed | None]":
        """The scale of the scores, and the gallery of both versions that it gives.

        raw_first: scores stay as they are if old items are then shown about as often as they should be, or if that
        cannot be measured.
        """
        scale = self.scale(bridged)
        if not self._enough:
            return SAME if raw_first else scale, None
        mixed = self._mixed(bridged, scale)
        if raw_first:
            raw = self._mixed(bridged, SAME)
            if unfairness(raw.exposure) <= unfairness(mixed.exposure):
                return SAME, raw
        return scale, mixed

    def raw_exposure(self) -> dict[int, float] | None:
        """Exposure of old items with queries and scores as they are; None if it cannot be measured."""
        if self._unbridged is None or not self._enough:
            return None
        return self._mixed(self._unbridged, SAME).exposure

    def scale(self, bridged: Matrix) -> ScoreScale:
        """The scale of held-out items as bridged queries, H x d_old."""
        return measure_scale(bridged, self._all_old, self._all_new, best=self._best, pairs=self._pairs)

    def beyond_chance(self, kind: str, options: Mapping[str, Any]) -> float:
        """How many standard errors the value lies above chance, without labels and among held-out items only.

        Chance is the overlap with the hits that other queries want, which can be larger than that of random hits: to a
        nearly collapsed model, the same few items are near to all queries. The standard error counts as at least 1e-6.
        """
        unseen = copy.copy(self)  # shares the maps that are fitted already
        unseen._all_new, unseen._all_old, unseen.labels = self._new, self._old, None
        unseen._fair = neighbours_of_items(self._new, self._new) if self._enough else None
        _, chance = unseen._measure(len(self._new))
        bridged = self._bridged(kind, options, len(self._fit_new))
        gains = unseen._values(bridged) - chance
        if unseen._fair is not None:
            gains += chance - _overlap_with_others(neighbours_of_items(bridged, self._old), unseen._fair)
        return float(gains.mean()) / max(_error(gains), 1e-6)

    def curve(self, kind: str, options: Mapping[str, Any]) -> list[tuple[int, float]]:
        """The measure against the number of pairs, on nested subsets of the fitted pairs."""
        total = len(self._fit_new)
        counts = [count for count in CURVE if FEWEST_PAIRS <= count < total] + [total]
        return [(count, float(self._values(self._bridged(kind, options, count)).mean())) for count in counts]

    def errors(self, kind: str, options: Mapping[str, Any]) -> tuple[Matrix, NDArray[np.float64]]:
        """Old vectors of the items searched, and how often each is wrongly shown or wrongly missing.

        That is the number of queries with the item among the ten nearest in one of both searches only, bridged or in
        the new space, on a scale on which its mean over the items is 1 - overlap@10. Items that are near many queries
        have more errors than others. The distance of an item from its own bridged query was tried instead: it is
        largest for items that are hardly ever near a query.
        """
        bridged = self._bridged(kind, options, len(self._fit_new))
        queries, items = len(self._new), len(self._all_new)
        first = min(FIRST, max(1, queries // 5))  # with few items, ten would be most of them
        shown, wanted = (
            neighbours_of_items(*searched, first) for searched in ((bridged, self._all_old), (self._new, self._all_new))
        )
        in_one_only = np.zeros((queries, items), dtype=bool)
        rows = np.arange(queries)[:, None]
        in_one_only[rows, shown] = True
        in_one_only[rows, wanted] ^= True
        return self._all_old, in_one_only.sum(axis=0) * (items / (2 * first * queries))

    def _bridged(self, kind: str, options: Mapping[str, Any], count: int) -> Matrix:
        if kind == NONE:
            assert self._unbridged is not None
            return self._unbridged
        key = f"{kind} {dict(options)} {count}"
        if key not in self._mapped:
            shared = self._shared.setdefault(count, {})
            fitted = BRIDGES[kind].fit(self._fit_new[:count], self._fit_old[:count], shared, **options)
            self._mapped[key] = mapped_queries(fitted, self._new)
        return self._mapped[key]

    def _values(self, bridged: Matrix) -> NDArray[np.float64]:
        """One number in [0, 1] per held-out item that can be judged."""
        if self.labels is not None:
            return _right(self.labels, neighbours_of_items(bridged, self._all_old, 1)[:, 0])
        if self._fair is not None:
            return overlap(neighbours_of_items(bridged, self._all_old), self._fair)
        scores = bridged @ self._all_old.T
        self_scores = scores.diagonal()[:, None]
        ties = (scores == self_scores).sum(axis=1) - 1  # half of them come first on average
        ranks: NDArray[np.float64] = 1 / ((scores > self_scores).sum(axis=1) + 1 + ties / 2)
        return ranks

    def _mixed(self, bridged: Matrix, scale: Callable[[NDArray[Any]], NDArray[Any]]) -> "_Mixed":
        """Exposure of old items in a gallery of both versions, half of the items each.

        Both halves take their turn as the old one, and the two results are averaged.
        """
        assert self._fair is not None
        items, queries = np.arange(len(self._all_new)), np.arange(len(self._new))
        shown, fair = dict.fromkeys(EXPOSURE_AT, 0.0), dict.fromkeys(EXPOSURE_AT, 0.0)
        overlaps = np.zeros(len(queries))
        for is_old in (items % 2 == 0, items % 2 == 1):  # the items are in random order
            stored = [
                StoredItems(items[is_old], self._all_old[is_old], bridged, scale),
                StoredItems(items[~is_old], self._all_new[~is_old], self._new),
            ]
            hits = search_mixed(stored, FIRST, own=queries)
            overlaps += overlap(hits.rows, self._fair) / 2
            for k in EXPOSURE_AT:
                shown[k] += float(is_old[hits.rows[:, :k]].mean()) / 2
                fair[k] += float(is_old[self._fair[:, :k]].mean()) / 2
        return _Mixed({k: exposure_ratio(shown[k], fair[k]) for k in EXPOSURE_AT}, overlaps)


FAIR = (0.8, 1.25)
"""Exposure ratios that count as fair."""


@dataclass(frozen=True)
class _Mixed:
    """A gallery of both versions. exposure: ratio of old items by k. overlaps: @10 with a full re-embedding, Q."""

    exposure: dict[int, float]
    overlaps: NDArray[np.float64]


def unfairness(exposure: Mapping[int, float]) -> float:
    """How far exposure ratios are outside ``FAIR``: sum of |log ratio| beyond log 1.25; 0 if fair."""
    beyond = (abs(math.log(max(ratio, 1e-3))) - math.log(FAIR[1]) for ratio in exposure.values())
    return sum(max(0.0, excess) for excess in beyond)


def _error(values: NDArray[np.float64]) -> float:
    """The standard error of the mean; NaN of one value."""
    return float(values.std(ddof=1)) / len(values) ** 0.5 if len(values) > 1 else float("nan")


def _better(values: NDArray[np.float64], than: NDArray[np.float64], errors: float) -> bool:
    """Whether the mean is higher by more than so many standard errors of the difference."""
    gain = values - than
    return float(gain.mean()) > errors * _error(gain)


def _spoils(plain: Candidate, mapped: Candidate) -> bool:
    """Whether a map makes exposure unfair that is fair with queries and scores as they are, for a gain that is small.

    Scaled scores of unrelated spaces can be fair too, but find nothing.
    """
    comparable = not plain.scaled and plain.value >= 0.8 * mapped.value
    return comparable and unfairness(plain.exposure) <= 0 < unfairness(mapped.exposure)


def ranked(measured: Sequence[Measured]) -> list[int]:
    """Indices of candidates, best first. An earlier candidate wins unless a later one is better by a standard error.

    If two maps are equal in this sense, the one that shows the nearest item of the new space further up wins, by a
    standard error. Queries as they are win unless a map is better by two, and not by showing old items unfairly.
    """
    best = 0
    for i in range(1, len(measured)):
        one, other = measured[best], measured[i]
        if one.candidate.kind == NONE:
            better = _better(other.values, one.values, 2) and not _spoils(one.candidate, other.candidate)
        else:
            equal = not _better(one.values, other.values, 1) and len(one.first) >= FIRST_FROM
            better = _better(other.values, one.values, 1) or (equal and _better(other.first, one.first, 1))
        if better:
            best = i
    rest = sorted((i for i in range(len(measured)) if i != best), key=lambda i: -measured[i].candidate.value)
    return [best, *rest]


def short_form(one: Candidate, dims: tuple[int, int]) -> dict[str, Any] | None:
    """Options of the same map with fewer directions; None if it has no such form, or if it is small already."""
    if one.kind not in (Rotation.kind, Affine.kind) or min(dims) < SHORT_FROM:
        return None
    return {**one.options, "rank": SHORT_RANK}


def as_good(short: Measured, whole: Measured) -> bool:
    """Whether a short form loses at most half a point, or nothing beyond noise, in values and in first places."""
    both = ((whole.values, short.values), (whole.first, short.first))
    return all(
        not _better(more, less, 1) or float((more - less).mean()) <= SHORT_LOSS for more, less in both if len(more)
    )


def candidates_of(kind: str, options: dict[str, Any], same_space: bool) -> list[tuple[str, dict[str, Any]]]:
    """The kinds to compare, with their options. ``none`` competes only in spaces that can be compared."""
    if kind == "auto":
        if options:
            raise HoldfastError(f"options {', '.join(options)} belong to one kind; name it, such as kind='rotation'")
        return [(name, dict(given)) for name, given in CANDIDATES if name != NONE or same_space]
    if kind not in (NONE, *BRIDGES):
        raise unknown_name("kind of bridge", kind, ["auto", NONE, *BRIDGES])
    if kind == NONE and not same_space:
        raise HoldfastError("kind 'none' uses queries as they are, but the two spaces cannot be compared")
    _check_options(kind, options)
    return [(NONE, {}), (kind, options)] if same_space and kind != NONE else [(kind, options)]


def _check_options(kind: str, options: Mapping[str, Any]) -> None:
    """Refuse options that the kind does not have, and values that it cannot use."""
    given = {} if kind == NONE else inspect.signature(BRIDGES[kind].fit).parameters
    known = [name for name, parameter in given.items() if parameter.kind is parameter.KEYWORD_ONLY]
    for name, value in options.items():
        if name not in known:
            raise unknown_name(f"option of {kind}", name, known)
        whole = name in ("rank", "neighbours")
        if name == "centred" and not isinstance(value, bool):
            raise HoldfastError(f"{kind}: centred must be true or false, got {value!r}")
        if whole and value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
            raise HoldfastError(f"{kind}: {name} must be a whole number of at least 1, got {value!r}")
        if not whole and not (isinstance(value, int | float) and 0 <= value < math.inf):
            raise HoldfastError(f"{kind}: {name} must be a number of at least 0, got {value!r}")
        if name in ("temperature", "ridge") and value == 0:
            raise HoldfastError(f"{kind}: {name} must be above 0")


@dataclass(frozen=True)
class Split:
    """Row numbers of pairs, in random order.

    fitted: the pairs that candidates are fitted on.
    held: the others; their items are the queries.
    also_searched: fitted pairs that are searched beside the held-out ones.
    best: scores of each query that the scale is measured on. In a gallery with twice the items, twice as many are
        above a given score, so that fewer of the scores among the pairs count.
    """

    fitted: NDArray[np.int64]
    held: NDArray[np.int64]
    also_searched: NDArray[np.int64]
    best: int = BEST


def split_pairs(count: int, seed: int, items: int | None = None) -> Split:
    """Hold out 30 % of ``count`` pairs, at most 1,000.

    items: number of items in the old gallery. Of the items searched, the share count / items are then fitted pairs, as
    in that gallery; at most 9,000. None: the gallery is taken to be much larger than the number of pairs.
    """
    order = np.random.default_rng(seed).permutation(count)
    held, fitted = np.split(order, [min(MOST_HELD_OUT, max(3, round(HELD_OUT * count)))])
    share = 0.0 if items is None else min(1.0, count / max(1, items))
    wanted = len(fitted) if share == 1 else round(len(held) * share / (1 - share))
    also = min(len(fitted), wanted, MOST_SEARCHED_BESIDE)
    best = BEST if items is None else max(1, min(BEST, round(BEST * (len(held) + also) / max(1, items))))
    return Split(fitted, held, fitted[:also], best)


def neighbours_of_items(queries: Matrix, gallery: Matrix, k: int = FIRST) -> NDArray[np.int64]:
    """The ``k`` nearest other rows of the gallery, Q x k; row i of both is the same item."""
    hits = nearest(queries, gallery, k + 1).indices
    is_itself = hits == np.arange(len(queries))[:, None]
    is_itself[:, -1] |= ~is_itself.any(axis=1)  # where the item itself is not among the nearest, the last one goes
    return hits[~is_itself].reshape(len(queries), -1)


def overlap(hits: NDArray[np.int64], wanted: NDArray[np.int64]) -> NDArray[np.float64]:
    """Share of ``wanted`` (Q x k) that is in ``hits``, per query."""
    shares: NDArray[np.float64] = (hits[:, :, None] == wanted[:, None, :]).any(axis=1).mean(axis=1)
    return shares


def _overlap_with_others(hits: NDArray[np.int64], wanted: NDArray[np.int64]) -> NDArray[np.float64]:
    """Mean share of the items that the other queries want (Q x k) that is in ``hits``, per query."""
    times = np.bincount(wanted.ravel(), minlength=int(hits.max()) + 1)  # how many queries want each item
    queries, k = wanted.shape
    shares: NDArray[np.float64] = (times[hits].sum(axis=1) / k - overlap(hits, wanted)) / (queries - 1)
    return shares


def _judgeable(labels: NDArray[np.int64], queries: int) -> NDArray[np.int64] | None:
    """Labels with -1 for items with a class of their own; None if too few of the first ``queries`` are left."""
    _, code_of, counts = np.unique(labels, return_inverse=True, return_counts=True)
    repeated = np.where(counts[code_of] > 1, labels, -1)
    return repeated if int((repeated[:queries] >= 0).sum()) >= LABELS_FROM else None


def _right(labels: NDArray[np.int64], first: NDArray[np.int64]) -> NDArray[np.float64]:
    """Whether the first hit of each query with a label has the query's label, as 0 or 1.

    labels: of all items, the queries first. first: number of the first hit of each query.
    """
    asked = labels[: len(first)]
    return (labels[first] == asked)[asked >= 0].astype(np.float64)


def _chance(labels: NDArray[np.int64], queries: int) -> float:
    """How often a random other item has the label of one of the first ``queries`` items, if that has one."""
    asked = labels[:queries]
    same = np.bincount(labels[labels >= 0])[asked[asked >= 0]] - 1
    return float((same / (len(labels) - 1)).mean())
