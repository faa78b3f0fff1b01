"""An engine in front of another one, which can be exchanged while it is searched."""

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np

from holdfast.gallery.engine import Engine, Found
from holdfast.gallery.filters import Filter, Value


class SwitchingEngine:
    """Passes every call on to the engine in use. Both engines must hold the same when they are exchanged."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._calls: dict[int, int] = {}  # under way, by the engine's identity
        self._change = threading.Condition()

    def switch(self, engine: Engine) -> Engine:
        """Use ``engine`` from now on; the one before, once nobody is using it any more."""
        with self._change:
            before, self._engine = self._engine, engine
            self._change.wait_for(lambda: not self._calls.get(id(before)))
        return before

    @contextmanager
    def in_use(self) -> Iterator[Engine]:
        """The engine, which stays open until this is left."""
        with self._change:
            engine = self._engine
            self._calls[id(engine)] = self._calls.get(id(engine), 0) + 1
        try:
            yield engine
        finally:
            with self._change:
                self._calls[id(engine)] -= 1
                self._change.notify_all()

    def create(self, collection: str, dim: int) -> None:
        with self.in_use() as engine:
            engine.create(collection, dim)

    def collections(self) -> list[str]:
        with self.in_use() as engine:
            return engine.collections()

    def upsert(
        self, collection: str, keys: Sequence[int], vectors: np.ndarray, fields: Sequence[Mapping[str, Value]]
    ) -> None:
        with self.in_use() as engine:
            engine.upsert(collection, keys, vectors, fields)

    def delete(self, collection: str, keys: Sequence[int]) -> None:
        with self.in_use() as engine:
            engine.delete(collection, keys)

    def search(
        self, collection: str, query: np.ndarray, k: int, where: Filter | None = None, *, exact: bool = False
    ) -> list[Found]:
        with self.in_use() as engine:
            return engine.search(collection, query, k, where, exact=exact)

    def fetch(self, collection: str, keys: Sequence[int]) -> dict[int, np.ndarray]:
        with self.in_use() as engine:
            return engine.fetch(collection, keys)

    def scan(self, collection: str, *, block: int = 1000, after: int = -1) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        with self.in_use() as engine:
            yield from engine.scan(collection, block=block, after=after)

    def count(self, collection: str) -> int:
        with self.in_use() as engine:
            return engine.count(collection)

    def drop(self, collection: str) -> None:
        with self.in_use() as engine:
            engine.drop(collection)

    def build_index(self, collection: str) -> bool:
        with self.in_use() as engine:
            return engine.build_index(collection)

    def unindexed(self, collection: str) -> int:
        with self.in_use() as engine:
            return engine.unindexed(collection)

    def close(self) -> None:
        self._engine.close()
