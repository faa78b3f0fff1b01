"""Two-stage search over anybody's store: the old index finds candidates, the new model scores them.

Nothing is re-embedded beforehand. New vectors that a search needed are kept, so that the same items cost nothing later.
No search fails because the new model does: within its deadline it then answers by blend or by the old query.
"""

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

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
)

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
        for function, name, users in (
            (embed_old, "embed_old", ("old", "both", "blend")),
            (bridge, "bridge", ("bridge", "both", "blend")),
        ):
            if function is None and source in users:
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
        # With a deadline the store works on the old queries while the new model works on its own.
        pending = self._started(lambda: self._new_queries(queries), end)
        hits = _Hits(self._search, max(self.candidates, k), filters)
        by_old = hits.of(old) if old is not None and self.source in ("old", "both") else None
        try:
            return self._answered(_awaited(pending, end), old, by_old, hits, k, end)
        except _FaultError as fault:
            self._count({fault.kind: 1})
            if by_old is None:
                if old is None:
                    raise HoldfastError(f"no old model to fall back on, and the new one failed: {fault}") from fault
                by_old = hits.of(old)
            return self._plain(by_old, hits, k, "old query", str(fault))

    def _answered(
        self,
        new: Vectors,
        old: Vectors | None,
        by_old: Candidates | None,
        hits: "_Hits",
        k: int,
        end: float | None,
    ) -> list[UpgradeAnswer]:
        """Answers once the new model has embedded the queries; ``by_old``: hits of the old ones, or None."""
        bridged = None if self._bridge is None else _rows(self._bridge(new), len(new), "bridge")
        way = {"old": "old query", "bridge": "bridge", "both": "blend", "blend": "blend"}[self.source]
        candidates = by_old
        if self.source == "blend":
            candidates = hits.of(blended_queries(old, bridged, self.weight))  # type: ignore[arg-type]
        elif self.source != "old":
            by_bridge = hits.of(bridged)  # type: ignore[arg-type]
            candidates = by_bridge if by_old is None else merged_candidates(by_old, by_bridge, hits.depth)
        assert candidates is not None
        if self.source == "blend" or self.candidates == 0:
            return self._plain(candidates, hits, k, way, None)
        present = candidates.scores > -np.inf
        # The best candidates of every query first: a budget may end before the last.
        wanted = list(dict.fromkeys(candidates.items.T[present.T].tolist()))
        vectors, embedded, reason = self._item_vectors(wanted, hits, new, end)
        usable = np.isfinite(vectors[:, 0])
        if not usable.any():
            reason = reason or "no candidate could be embedded"
            late = end is not None and time.monotonic() >= end
            if self.source == "old" and bridged is not None and old is not None and not late:
                candidates, way = hits.of(blended_queries(old, bridged, BLEND_WEIGHT)), "blend"
            return self._plain(candidates, hits, k, way, reason)
        scores = np.where(present, candidate_scores(new, vectors[candidates.items]), -np.inf)
        total = combined_scores(candidates.scores, scores, self.weight)
        answers = []
        for query, order in enumerate(np.argsort(-total, axis=1, kind="stable")):
            items = candidates.items[query]
            best = order[total[query, order] > -np.inf][:k]
            columns = (part[query, best].tolist() for part in (candidates.items, total, candidates.scores, scores))
            best_hits = [
                hits.hit(item, score, old_score, new_score if new_score > -np.inf else None)
                for item, score, old_score, new_score in zip(*columns, strict=True)
            ]
            query_items = np.unique(items[present[query]])
            fresh = int(embedded[query_items].sum())
            whole = bool((scores[query, present[query]] > -np.inf).all())
            why = None if whole else reason or "some candidates could not be embedded"
            answers.append(UpgradeAnswer(best_hits, "two-stage", why, fresh, int(usable[query_items].sum()) - fresh))
        self._count(
            {"searches": len(new), "two-stage": len(new), "embedded": int(embedded.sum())}
            | {"cached": sum(answer.cached for answer in answers)}
        )
        return answers

    def _item_vectors(
        self, wanted: Sequence[int], hits: "_Hits", queries: Vectors, end: float | None
    ) -> tuple[Vectors, NDArray[np.bool_], str | None]:
        """New vectors by item number (NaN: none), which of them were embedded now, and why some are missing."""
        size = queries.shape[1]
        vectors = np.full((len(hits.keys), size), np.nan, np.float32)
        embedded = np.zeros(len(hits.keys), dtype=bool)
        kept = self._kept([hits.keys[item] for item in wanted], size)
        missing = [item for item in wanted if hits.keys[item] not in kept]
        if kept:
            vectors[[hits.numbers[key] for key in kept]] = np.stack(list(kept.values()))
        if not missing:
            return vectors, embedded, None
        allowed = len(missing) if self._most is None else self._most * len(queries)
        part = missing[: self._budget.taken(min(allowed, len(missing)))]
        reason = None
        if len(part) < len(missing):
            reason = f"the budget allowed {len(part):,} of {len(missing):,} items"
            self._count({"over budget": 1})
        if part:
            keys, contents = [hits.keys[item] for item in part], [hits.content_of(item) for item in part]
            try:
                rows = _awaited(self._started(lambda: self._embedded(keys, contents, size), end), end)
            except _FaultError as fault:
                self._count({fault.kind: 1})
                return vectors, embedded, str(fault)
            vectors[part] = rows
            embedded[part] = np.isfinite(rows[:, 0])
            if not embedded[part].all():
                reason = f"{len(part) - embedded.sum():,} of {len(part):,} new vectors were not finite"
        return vectors, embedded, reason

    def _kept(self, keys: Sequence[Key], size: int) -> dict[Key, Vectors]:
        if self._cache is None:
            return {}
        try:
            return {key: vector for key, vector in self._cache.get(keys).items() if len(vector) == size}
        except Exception:  # a full disk, a lock held too long: searches go on without the cache
            self._count({"cache failed": 1})
            return {}

    def _embedded(self, keys: Sequence[Key], contents: Sequence[Any], size: int) -> Vectors:
        """Embed and keep items, NaN where a vector cannot be used; runs on if the search gives up waiting."""
        rows = self._delivered(self._embed_items, contents)
        if rows.shape[1] != size:
            raise _FaultError("wrong size", f"item vectors have {rows.shape[1]} numbers and query vectors {size}")
        usable = np.isfinite(rows).all(axis=1) & (rows != 0).any(axis=1)
        if not usable.all():
            self._count({"not finite": 1})
            rows = np.where(usable[:, None], rows, np.float32(np.nan))
        if self._cache is not None and usable.any():
            try:
                self._cache.put({key: row for key, row, good in zip(keys, rows, usable, strict=True) if good})
            except Exception:  # as above
                self._count({"cache failed": 1})
        return rows

    def _new_queries(self, queries: Sequence[Any]) -> Vectors:
        rows = self._delivered(self._embed_new, queries)
        if not (np.isfinite(rows).all() and (rows != 0).any(axis=1).all()):
            raise _FaultError("not finite", "the new model's query vector is zero or not finite")
        return rows

    def _delivered(self, embed: Embed | None, contents: Sequence[Any]) -> Vectors:
        """What the new model returns, as one row for each of ``contents``."""
        assert embed is not None
        try:
            rows = np.asarray(embed(contents), dtype=np.float32)
        except Exception as error:
            raise _FaultError("failed", f"the new model failed ({type(error).__name__}: {error})") from error
        if rows.ndim != 2 or len(rows) != len(contents) or rows.shape[1] == 0:
            raise _FaultError(
                "wrong number", f"the new model returned the shape {rows.shape} for {len(contents):,} contents"
            )
        return rows

    def _started(self, work: Callable[[], Vectors], end: float | None) -> "Future[Vectors]":
        """Call the new model: at once without a deadline, otherwise in a thread that may outlive the search."""
        call: Future[Vectors] = Future()

        def run() -> None:
            rows, fault = None, None
            try:
                rows = work()
            except _FaultError as error:
                fault = error
            except Exception as error:  # nothing of a call may end a search
                fault = _FaultError("failed", f"{type(error).__name__}: {error}")
            if end is not None:
                self._places.release()  # before the search goes on, whose next call takes a place
            if rows is None:
                call.set_exception(fault)
            else:
                call.set_result(rows)

        if end is None:
            run()
        elif self._places.acquire(blocking=False):
            threading.Thread(target=run, name="holdfast-upgrade", daemon=True).start()
        else:
            call.set_exception(_FaultError("busy", f"{_WORKERS} calls of the new model are still running"))
        return call

    def _plain(
        self, candidates: Candidates, hits: "_Hits", k: int, way: str, reason: str | None
    ) -> list[UpgradeAnswer]:
        """Answers in the order of one search, without new scores."""
        self._count({"searches": len(candidates.items), way: len(candidates.items)})
        return [
            UpgradeAnswer(
                [hits.hit(item, score, score, None) for item, score in row if score > -np.inf],
                way,
                reason,
            )
            for row in (
                list(zip(*pair, strict=True))[:k]
                for pair in zip(candidates.items.tolist(), candidates.scores.tolist(), strict=True)
            )
        ]

    def _count(self, more: Mapping[str, int]) -> None:
        with self._lock:
            self._counts.update(more)


@dataclass
class _Hits:
    """What the store returned in one call of ``search_many``: each item has a number."""

    search: Callable[..., Sequence[Sequence[Any]]]
    depth: int
    filters: Mapping[str, Any]
    keys: list[Key] = field(default_factory=list)
    contents: list[Any] = field(default_factory=list)
    numbers: dict[Key, int] = field(default_factory=dict)

    def of(self, vectors: Vectors) -> Candidates:
        """The candidates of each query, as item numbers."""
        items = np.zeros((len(vectors), self.depth), np.int64)
        scores = np.full((len(vectors), self.depth), -np.inf)
        for query, vector in enumerate(vectors):
            row = list(self.search(vector, self.depth, **self.filters))[: self.depth]
            items[query, : len(row)] = [self._number(hit) for hit in row]
            scores[query, : len(row)] = [float(hit[1]) for hit in row]
        return Candidates(items, scores)

    def _number(self, hit: Sequence[Any]) -> int:
        content = hit[2] if len(hit) > 2 else None
        key = (hit[0], content_hash(content))
        number = self.numbers.setdefault(key, len(self.keys))
        if number == len(self.keys):
            self.keys.append(key)
            self.contents.append(content)
        return number

    def content_of(self, item: int) -> Any:
        return self.keys[item][0] if self.contents[item] is None else self.contents[item]

    def hit(self, item: int, score: float, old_score: float, new_score: float | None) -> UpgradeHit:
        return UpgradeHit(self.keys[item][0], score, old_score, new_score, self.contents[item])


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


def _awaited(call: "Future[Vectors]", end: float | None) -> Vectors:
    try:
        return call.result(None if end is None else max(0.0, end - time.monotonic()))
    except TimeoutError:
        raise _FaultError("too slow", "the new model did not answer within the deadline") from None


def _rows(vectors: ArrayLike, count: int, name: str) -> Vectors:
    rows = np.asarray(vectors, dtype=np.float32)
    if rows.ndim != 2 or len(rows) != count:
        raise HoldfastError(f"{name} returned the shape {rows.shape} for {count:,} queries; it must be one row each")
    return rows
