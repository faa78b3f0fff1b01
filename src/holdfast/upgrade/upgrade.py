"""Two-stage search over anybody's store: the old index finds candidates, the new model scores them.

Nothing is re-embedded beforehand. New vectors that a search needed are kept, so that the same items cost nothing later.
No search fails because the new model does: within its deadline it then answers by blend or by the old query.
"""

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from holdfast.core.errors import HoldfastError
from holdfast.upgrade.new_vectors import Key, NewVectors, content_hash
from holdfast.upgrade.strategies import (
    BLEND_WEIGHT,
    WEIGHT,
    Candidates,
    blended_queries,
    candidate_scores,
    check_weight,
    combined_scores,
    merged_candidates,
    ranked,
)

Result = TypeVar("Result")
Vectors = NDArray[np.float32]
Embed = Callable[[Sequence[Any]], ArrayLike]
"""Takes a list of queries or contents and returns their vectors, one row each."""
SOURCES = ("old", "bridge", "both", "blend")
_WORKERS = 16
"""Calls of the new model at a time. A call that hangs keeps its place; without a free place a search does not wait."""
_RESERVE = 0.1  # share of a deadline that is left for ranking


@dataclass(frozen=True)
class UpgradeHit:
    """An item: its id, the score that ranked it, its scores by both models (None: not scored), and its content."""

    id: Any
    score: float
    old_score: float
    new_score: float | None
    content: Any = None


@dataclass(frozen=True)
class UpgradeAnswer:
    """The hits of one query, best first, and how they were ranked.

    way: "two-stage", "blend", "bridge" or "old query".
    reason: why it is not the way that was asked for, or None.
    embedded: items that the new model embedded for this query. cached: candidates whose new vectors were kept.
    """

    hits: list[UpgradeHit]
    way: str
    reason: str | None = None
    embedded: int = 0
    cached: int = 0


class _FaultError(Exception):
    """The new model did not deliver. kind: as ``Upgrade.counts`` names it."""

    def __init__(self, kind: str, reason: str) -> None:
        super().__init__(reason)
        self.kind = kind


class Upgrade:
    """Search with an old and a new model together, over any store.

    search: the old index: ``search(vector, count, **filters)`` returns up to ``count`` hits, best first, each
        (id, score) or (id, score, content).
    embed_new: queries to vectors of the new model. embed_old: likewise by the old model; None if it is gone.
    embed_items: contents of hits to vectors of the new model; of ids, if hits have no content (it may fetch vectors
        that exist). None: items cannot be embedded.
    bridge: new queries into the old space, such as a ``Bridge``; for the sources "bridge", "both" and "blend", and to
        fall back on.
    source: where candidates come from: "old", "bridge", "both", or "blend", which embeds no item.
    candidates: how many are scored. weight: of the new score, 1 for the new score alone; with "blend", of the bridged
        query; None: what was best on other data. ``Upgrade.from_policy`` takes what ``compare`` recommends.
    cache: keeps new vectors; None: every search embeds its candidates.
    most_per_search, most_per_minute: items that may be embedded; None: no limit.
    deadline: seconds for a search, counted from its start; None: it waits for the new model.

    An error of the old model or of the store is raised. One of the new model is counted, and never raised if the old
    model or a bridged query can answer. May be used by many threads.

    >>> import numpy as np
    >>> from holdfast import Upgrade
    >>> texts = ["red apple", "green apple", "blue sea", "red wine"]
    >>> def old_model(queries):  # counts letters
    ...     return np.array([[text.count(letter) for letter in "aelrnp"] for text in queries], float)
    >>> def new_model(queries):  # knows words
    ...     words = ["red", "green", "blue", "apple", "sea", "wine"]
    ...     return np.array([[1.0 if word in text.split() else 0.01 for word in words] for text in queries])
    >>> stored = old_model(texts)
    >>> def search(vector, count):
    ...     scores = stored @ vector / np.linalg.norm(stored, axis=1) / np.linalg.norm(vector)
    ...     return [(int(row), float(scores[row]), texts[row]) for row in np.argsort(-scores)[:count]]
    >>> upgrade = Upgrade(search=search, embed_old=old_model, embed_new=new_model, embed_items=new_model)
    >>> [hit.content for hit in upgrade.search("wine red", k=2).hits]
    ['red wine', 'red apple']
    """

    def __init__(
        self,
        *,
        search: Callable[..., Sequence[Sequence[Any]]],
        embed_new: Embed,
        embed_old: Embed | None = None,
        embed_items: Embed | None = None,
        bridge: Callable[[Vectors], ArrayLike] | None = None,
        source: str = "old",
        candidates: int = 50,
        weight: float | None = None,
        cache: NewVectors | None = None,
        most_per_search: int | None = None,
        most_per_minute: int | None = None,
        deadline: float | None = None,
    ) -> None:
        weight = (BLEND_WEIGHT if source == "blend" else WEIGHT) if weight is None else weight
        check_weight(weight)
        if source not in SOURCES:
            raise HoldfastError(f"source must be one of {', '.join(SOURCES)}; got {source!r}")
        for given, name, users in (
            (embed_old, "embed_old", ("old", "both", "blend")),
            (bridge, "bridge", ("bridge", "both", "blend")),
        ):
            if given is None and source in users:
                raise HoldfastError(f"source {source!r} needs {name}")
        if embed_items is None and source != "blend" and candidates > 0:
            raise HoldfastError("embed_items is needed: it embeds candidates by the new model; or use source 'blend'")
        if candidates < 0 or (deadline is not None and not deadline > 0):
            raise HoldfastError(f"candidates and deadline must be positive, got {candidates} and {deadline}")
        self._search, self._embed_old, self._embed_new = search, embed_old, embed_new
        self._embed_items, self._bridge, self._cache = embed_items, bridge, cache
        self.source, self.candidates, self.weight = source, candidates, weight
        self._most, self._deadline = most_per_search, deadline
        self._budget = _Budget(most_per_minute)
        self._places = threading.BoundedSemaphore(_WORKERS)
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()

    @classmethod
    def from_policy(cls, policy: Mapping[str, Any], **functions: Any) -> "Upgrade":
        """With the source, candidates and weight that ``compare`` recommends (its ``policy``).

        functions: the other parameters of ``Upgrade``.
        """
        return cls(**{**functions, **policy})

    @property
    def counts(self) -> dict[str, int]:
        """What happened so far: searches by way, items embedded and cached, and each fault of the new model."""
        with self._lock:
            return dict(self._counts)

    def search(self, query: Any, k: int = 10, **filters: Any) -> UpgradeAnswer:
        """The ``k`` best items for one query. filters: passed on to the store's search."""
        return self.search_many([query], k, **filters)[0]

    def search_many(self, queries: Sequence[Any], k: int = 10, **filters: Any) -> list[UpgradeAnswer]:
        """Answers for several queries; the models get them, and the items to embed, in one call each."""
        if k < 1:
            raise HoldfastError(f"k must be at least 1, got {k}")
        if not len(queries):
            return []
        end = None if self._deadline is None else time.monotonic() + self._deadline * (1 - _RESERVE)
        old = None if self._embed_old is None else _rows(self._embed_old(queries), len(queries), "embed_old")
        # The store works on the old queries while the new model works on its own.
        pending = self._started(lambda: self._new_queries(queries), wait_free=end is None)
        asked = _Asked(len(queries), max(self.candidates, k), filters)
        by_old = None
        if old is not None and self.source in ("old", "both"):
            by_old = self._candidates(old, asked)
        try:
            new = self._awaited(pending, end)
            return self._answered(new, old, by_old, asked, k, end)
        except _FaultError as fault:
            self._count({fault.kind: 1})
            if by_old is None:
                if old is None:
                    raise HoldfastError(f"no old model to fall back on, and the new one failed: {fault}") from fault
                by_old = self._candidates(old, asked)
            return self._plain(by_old, asked, k, "old query", str(fault))

    def _answered(
        self,
        new: Vectors,
        old: Vectors | None,
        by_old: Candidates | None,
        asked: "_Asked",
        k: int,
        end: float | None,
    ) -> list[UpgradeAnswer]:
        bridged = None if self._bridge is None else _rows(self._bridge(new), len(new), "bridge")
        if self.source == "blend":
            assert old is not None
            assert bridged is not None
            found = self._candidates(blended_queries(old, bridged, self.weight), asked)
            return self._plain(found, asked, k, "blend", None)
        if self.source in ("bridge", "both"):
            assert bridged is not None
            by_bridge = self._candidates(bridged, asked)
            found = by_bridge if by_old is None else merged_candidates(by_old, by_bridge, asked.depth)
        else:
            assert by_old is not None
            found = by_old
        if self.candidates == 0:
            return self._plain(found, asked, k, "bridge" if self.source == "bridge" else "old query", None)
        vectors, embedded, reason = self._item_vectors(found, asked, new.shape[1], end)
        if not vectors:
            reason = reason or "no candidate could be embedded"
            late = end is not None and time.monotonic() >= end
            if self.source == "old" and bridged is not None and old is not None and not late:
                mixture = blended_queries(old, bridged, BLEND_WEIGHT)
                return self._plain(self._candidates(mixture, asked), asked, k, "blend", reason)
            way = {"old": "old query", "bridge": "bridge", "both": "blend"}[self.source]
            return self._plain(found, asked, k, way, reason)
        rows = np.full((*found.items.shape, new.shape[1]), np.nan, np.float32)
        for query, place in zip(*np.nonzero(found.scores > -np.inf), strict=True):
            vector = vectors.get(asked.keys[found.items[query, place]])
            if vector is not None:
                rows[query, place] = vector
        scores = candidate_scores(new, rows)
        places_of = np.broadcast_to(np.arange(found.items.shape[1]), found.items.shape)
        order = ranked(places_of, combined_scores(found.scores, scores, self.weight))
        answers = []
        for query in range(len(new)):
            places = order.items[query][order.scores[query] > -np.inf][:k]
            hits = [
                asked.hit(
                    found.items[query, place],
                    float(score),
                    float(found.scores[query, place]),
                    float(scores[query, place]) if scores[query, place] > -np.inf else None,
                )
                for place, score in zip(places, order.scores[query], strict=False)
            ]
            items = found.items[query][found.scores[query] > -np.inf]
            keys = {asked.keys[item] for item in items}
            fresh = len(keys & embedded)
            whole = bool((scores[query][found.scores[query] > -np.inf] > -np.inf).all())
            why = None if whole else reason or "some candidates could not be embedded"
            answers.append(UpgradeAnswer(hits, "two-stage", why, fresh, len(keys & vectors.keys()) - fresh))
        self._count(
            {"searches": len(new), "two-stage": len(new), "embedded": len(embedded)}
            | {"cached": sum(answer.cached for answer in answers)}
        )
        return answers

    def _item_vectors(
        self, found: Candidates, asked: "_Asked", size: int, end: float | None
    ) -> tuple[dict[Key, Vectors], set[Key], str | None]:
        """New vectors of candidates by key, which of them were embedded now, and why some are missing."""
        wanted = list(
            dict.fromkeys(
                asked.keys[item]
                for place in range(found.items.shape[1])  # the best candidates of every query first
                for item in found.items[found.scores[:, place] > -np.inf, place]
            )
        )
        vectors = self._kept(wanted, size)
        missing = [key for key in wanted if key not in vectors]
        if not missing:
            return vectors, set(), None
        allowed = len(missing) if self._most is None else self._most * asked.queries
        granted = self._budget.taken(min(allowed, len(missing)))
        reason = None
        if granted < len(missing):
            reason = f"the budget allowed {granted:,} of {len(missing):,} items"
            self._count({"over budget": 1})
        embedded: dict[Key, Vectors] = {}
        if granted:
            part = missing[:granted]
            contents = [asked.content_of(key) for key in part]
            try:
                call = self._started(lambda: self._embedded(part, contents, size), wait_free=end is None)
                embedded = self._awaited(call, end)
            except _FaultError as fault:
                self._count({fault.kind: 1})
                reason = str(fault)
            else:
                if len(embedded) < len(part):
                    reason = f"{len(part) - len(embedded):,} of {len(part):,} new vectors were not finite"
        return vectors | embedded, set(embedded), reason

    def _kept(self, keys: Sequence[Key], size: int) -> dict[Key, Vectors]:
        if self._cache is None:
            return {}
        try:
            return {key: vector for key, vector in self._cache.get(keys).items() if len(vector) == size}
        except Exception:  # a full disk, a lock held too long: searches go on without the cache
            self._count({"cache failed": 1})
            return {}

    def _embedded(self, keys: Sequence[Key], contents: Sequence[Any], size: int) -> dict[Key, Vectors]:
        """Embed and keep items; runs to its end also if the search no longer waits."""
        assert self._embed_items is not None
        rows = self._delivered(lambda: self._embed_items(contents), len(keys))  # type: ignore[misc]
        if rows.shape[1] != size:
            raise _FaultError("wrong size", f"item vectors have {rows.shape[1]} numbers and query vectors {size}")
        usable = np.isfinite(rows).all(axis=1) & (rows != 0).any(axis=1)
        if not usable.all():
            self._count({"not finite": 1})
        vectors = {key: row for key, row, good in zip(keys, rows, usable, strict=True) if good}
        if self._cache is not None and vectors:
            try:
                self._cache.put(vectors)
            except Exception:  # as above
                self._count({"cache failed": 1})
        return vectors

    def _new_queries(self, queries: Sequence[Any]) -> Vectors:
        rows = self._delivered(lambda: self._embed_new(queries), len(queries))
        if not (np.isfinite(rows).all() and (rows != 0).any(axis=1).all()):
            raise _FaultError("not finite", "the new model's query vector is zero or not finite")
        return rows

    def _delivered(self, embed: Callable[[], ArrayLike], count: int) -> Vectors:
        """What the new model returns, as ``count`` rows."""
        try:
            rows = np.asarray(embed(), dtype=np.float32)
        except Exception as error:
            raise _FaultError("failed", f"the new model failed ({type(error).__name__}: {error})") from error
        if rows.ndim != 2 or len(rows) != count or rows.shape[1] == 0:
            raise _FaultError("wrong number", f"the new model returned the shape {rows.shape} for {count:,} contents")
        return rows

    def _started(self, work: Callable[[], Result], *, wait_free: bool) -> "_Call[Result]":
        """Begin a call of the new model; without a deadline it runs when it is waited for, in this thread."""
        call = _Call(work)
        if wait_free:
            return call
        if not self._places.acquire(blocking=False):
            call.fault = _FaultError("busy", f"{_WORKERS} calls of the new model are still running")
            call.done.set()
            return call

        def run() -> None:
            try:
                call.run()
            finally:
                self._places.release()

        threading.Thread(target=run, name="holdfast-upgrade", daemon=True).start()
        return call

    def _awaited(self, call: "_Call[Result]", end: float | None) -> Result:
        if end is None and not call.done.is_set():
            call.run()
        elif not call.done.wait(None if end is None else max(0.0, end - time.monotonic())):
            raise _FaultError("too slow", "the new model did not answer within the deadline")
        if call.fault is not None:
            raise call.fault
        assert call.result is not None
        return call.result

    def _candidates(self, vectors: Vectors, asked: "_Asked") -> Candidates:
        """The store's hits for each query, as places in ``asked``."""
        items = np.zeros((len(vectors), asked.depth), np.int64)
        scores = np.full((len(vectors), asked.depth), -np.inf)
        for query, vector in enumerate(vectors):
            for place, hit in enumerate(list(self._search(vector, asked.depth, **asked.filters))[: asked.depth]):
                items[query, place], scores[query, place] = asked.place(hit), float(hit[1])
        return Candidates(items, scores)

    def _plain(self, found: Candidates, asked: "_Asked", k: int, way: str, reason: str | None) -> list[UpgradeAnswer]:
        """Answers in the order of one search, without new scores."""
        self._count({"searches": asked.queries, way: asked.queries})
        return [
            UpgradeAnswer(
                [asked.hit(item, float(score), float(score), None) for item, score in row if score > -np.inf],
                way,
                reason,
            )
            for row in (list(zip(*pair, strict=True))[:k] for pair in zip(found.items, found.scores, strict=True))
        ]

    def _count(self, more: Mapping[str, int]) -> None:
        with self._lock:
            self._counts.update(more)


@dataclass
class _Asked:
    """The items that the store returned for one call of ``search_many``: each has a number."""

    queries: int
    depth: int
    filters: Mapping[str, Any]
    keys: list[Key] = field(default_factory=list)
    contents: list[Any] = field(default_factory=list)
    numbers: dict[Key, int] = field(default_factory=dict)

    def place(self, hit: Sequence[Any]) -> int:
        content = hit[2] if len(hit) > 2 else None
        key = (hit[0], content_hash(content))
        if key not in self.numbers:
            self.numbers[key] = len(self.keys)
            self.keys.append(key)
            self.contents.append(content)
        return self.numbers[key]

    def content_of(self, key: Key) -> Any:
        content = self.contents[self.numbers[key]]
        return key[0] if content is None else content

    def hit(self, item: Any, score: float, old_score: float, new_score: float | None) -> UpgradeHit:
        return UpgradeHit(self.keys[item][0], score, old_score, new_score, self.contents[item])


class _Call(Generic[Result]):
    """One call of the new model: its result, or its fault, once it is done."""

    def __init__(self, work: Callable[[], Result]) -> None:
        self._work = work
        self.done = threading.Event()
        self.result: Result | None = None
        self.fault: _FaultError | None = None

    def run(self) -> None:
        try:
            self.result = self._work()
        except _FaultError as fault:
            self.fault = fault
        except Exception as error:  # nothing of a call may end a search
            self.fault = _FaultError("failed", f"{type(error).__name__}: {error}")
        self.done.set()


class _Budget:
    """At most so many items in any minute; None: no limit."""

    def __init__(self, most_per_minute: int | None) -> None:
        self._most = most_per_minute
        self._taken: deque[tuple[float, int]] = deque()
        self._lock = threading.Lock()

    def taken(self, wanted: int) -> int:
        """Take up to ``wanted`` items from the budget; returns how many it grants."""
        if self._most is None:
            return wanted
        now = time.monotonic()
        with self._lock:
            while self._taken and self._taken[0][0] <= now - 60:
                self._taken.popleft()
            granted = max(0, min(wanted, self._most - sum(count for _, count in self._taken)))
            if granted:
                self._taken.append((now, granted))
        return granted


def _rows(vectors: ArrayLike, count: int, name: str) -> Vectors:
    rows = np.asarray(vectors, dtype=np.float32)
    if rows.ndim != 2 or len(rows) != count:
        raise HoldfastError(f"{name} returned the shape {rows.shape} for {count:,} queries; it must be one row each")
    return rows
