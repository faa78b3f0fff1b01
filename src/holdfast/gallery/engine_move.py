"""From one engine to another while the gallery is searched.

1. where it goes is noted in the catalogue, 2. every collection is copied by ascending key, and how far is noted after
each block, 3. its indexes are built, 4. writers wait: what changed meanwhile is made good, and both sides are read and
compared, 5. one transaction makes the new engine the gallery's and notes the old one as to be dropped, 6. it is
dropped. Killed before 5, the gallery is where it was and the same call goes on; after it, it is where it was to be.

What a collection holds, in a form that two engines can be compared by.

An engine in front of another one, which can be exchanged while it is searched.
"""

import contextlib
import hashlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from holdfast.errors import HoldfastError
from holdfast.gallery.catalogue import Catalogue
from holdfast.gallery.engines import open_engine
from holdfast.gallery.engines.protocol import EMBEDDED, Engine, Found, Place
from holdfast.gallery.filters import Filter, Value
from holdfast.gallery.folder import GalleryFolder
from holdfast.gallery.models import Models
from holdfast.gallery.versions import Version
from holdfast.gallery.writing import Writer


@dataclass(frozen=True)
class Contents:
    """keys: ascending, int64. sha256: over each key (8 bytes) and its vector (float32), little-endian, by key."""

    keys: np.ndarray
    sha256: str

    def same(self, other: "Contents") -> bool:
        return len(self.keys) == len(other.keys) and self.sha256 == other.sha256

    def lacks(self, other: "Contents") -> list[int]:
        """The keys that only ``other`` has."""
        found: list[int] = np.setdiff1d(other.keys, self.keys, assume_unique=True).tolist()
        return found


def contents_of(engine: Engine, collection: str) -> Contents:
    """Reads all of it."""
    digest, blocks = hashlib.sha256(), [np.zeros(0, dtype=np.int64)]
    for keys, vectors in engine.scan(collection):
        rows = np.empty(len(keys), dtype=[("key", "<i8"), ("vector", "<f4", vectors.shape[1:])])
        rows["key"], rows["vector"] = keys, vectors
        digest.update(rows.tobytes())  # row by row, so that it does not matter where a block ends
        blocks.append(keys)
    return Contents(np.concatenate(blocks), digest.hexdigest())


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


BLOCK = 1000
Open = Callable[[Place], Engine]


def place_of(catalogue: Catalogue) -> Place:
    """Where the gallery is."""
    return Place(catalogue.setting("engine"), **(catalogue.setting("place") or {}))


def opened(folder: GalleryFolder, catalogue: Catalogue) -> SwitchingEngine:
    """The gallery's engine. One that a process left when it was killed after a move is dropped before."""
    open_at = _opener(folder, catalogue)
    retired = catalogue.setting("retired")
    if retired is not None:
        catalogue.put_settings({"retired": None})  # tried once: its server may be gone for good
        with contextlib.suppress(HoldfastError):
            _drop_all(open_at(Place(**retired)))
    return SwitchingEngine(open_at(place_of(catalogue)))


class Mover:
    """Moves a gallery; whoever calls sees to it that nothing else moves its items (``moving_alone``)."""

    def __init__(
        self, folder: GalleryFolder, catalogue: Catalogue, engine: SwitchingEngine, models: Models, writer: Writer
    ) -> None:
        self._catalogue, self._engine, self._models, self._writer = catalogue, engine, models, writer
        self._open_at = _opener(folder, catalogue)

    def move(
        self, wanted: Place, writing: Any, *, keep: bool, stop: threading.Event, progress: Callable[[int], None]
    ) -> dict[str, Any]:
        """Where the gallery is now, and what its collections hold. writing: the lock that writers hold."""
        place, target = self._begin(wanted)
        try:
            for version in self._models.versions():
                self._copy(version, target, stop, progress)
                target.build_index(version.collection)
            with writing:
                self._writer.sweep()
                found = self._verify(target)
                before = place_of(self._catalogue)
                retired = None if keep else {"url": before.url, **before.options}
                changed = {"engine": place.url, "place": place.options, "move": None, "retired": retired}
                self._catalogue.put_settings(changed)
                old = self._engine.switch(target)
        except BaseException:
            target.close()
            raise
        if keep:
            old.close()
        else:
            with contextlib.suppress(HoldfastError):  # its server went away: tried once more at the next opening
                _drop_all(old)
                self._catalogue.put_settings({"retired": None})
        rows = {name: {"count": len(one.keys), "sha256": one.sha256} for name, one in found.items()}
        return {"engine": place.url, **place.options, "collections": rows}

    def _begin(self, wanted: Place) -> tuple[Place, Engine]:
        """The place of an unfinished move to this address, or else the one that is wanted, noted; and its engine."""
        here, noted = place_of(self._catalogue), self._catalogue.setting("move")
        if wanted.url == here.url == EMBEDDED:
            raise HoldfastError("the gallery is on the embedded engine already")
        if (wanted.url, wanted.namespace) == (here.url, here.namespace):
            raise HoldfastError(f"the gallery is at {here.url} in the namespace {here.namespace} already")
        if noted is not None:
            pending = Place(noted["url"], **noted["place"])
            if pending.url == wanted.url:
                return pending, self._open_at(pending)
            with contextlib.suppress(HoldfastError):  # its server may be why one goes elsewhere
                _drop_all(self._open_at(pending))
        target = self._open_at(wanted)
        if target.collections() and wanted.url != EMBEDDED:
            target.close()
            raise HoldfastError(f"{wanted.url}: the namespace {wanted.namespace} is in use; choose another one")
        for collection in target.collections():  # of this gallery, kept when it left
            target.drop(collection)
        self._catalogue.put_settings({"move": {"url": wanted.url, "place": wanted.options, "done": {}}})
        return wanted, target

    def _copy(self, version: Version, target: Engine, stop: threading.Event, progress: Callable[[int], None]) -> None:
        name, noted = version.collection, self._catalogue.setting("move")
        if name not in target.collections():
            target.create(name, version.stored_dim)
            noted["done"].pop(name, None)
        with self._engine.in_use() as source:
            for keys, vectors in source.scan(name, block=BLOCK, after=noted["done"].get(name, -1)):
                owned, _ = self._catalogue.by_key(keys.tolist())
                rows = [row for row, key in enumerate(keys.tolist()) if key in owned]
                if rows:
                    kept = keys[rows].tolist()
                    target.upsert(name, kept, vectors[rows], [owned[key].fields() for key in kept])
                noted["done"][name] = int(keys[-1])
                self._catalogue.put_settings({"move": noted})
                progress(len(rows))
                if stop.is_set():
                    raise HoldfastError("the move was stopped; what was copied stays there: move again goes on")

    def _verify(self, target: Engine) -> dict[str, Contents]:
        """Make good what changed while it was copied, and compare all of it."""
        versions = {one.collection: one for one in self._models.versions()}
        for name in set(target.collections()) - set(versions):
            target.drop(name)
        found = {}
        for name, version in versions.items():
            if name not in target.collections():
                target.create(name, version.stored_dim)
            here, there = contents_of(self._engine, name), contents_of(target, name)
            missing, extra = there.lacks(here), here.lacks(there)
            for start in range(0, len(missing), BLOCK):
                self._copy_keys(name, missing[start : start + BLOCK], target)
            if extra:
                target.delete(name, extra)
            found[name] = contents_of(target, name) if missing or extra else there
            if not here.same(found[name]):
                noted = self._catalogue.setting("move")
                noted["done"].pop(name, None)
                self._catalogue.put_settings({"move": noted})
                raise HoldfastError(f"{name}: the copy differs from the original; nothing was switched, move it again")
        return found

    def _copy_keys(self, name: str, keys: list[int], target: Engine) -> None:
        vectors, (owned, _) = self._engine.fetch(name, keys), self._catalogue.by_key(keys)
        target.upsert(name, keys, np.stack([vectors[key] for key in keys]), [owned[key].fields() for key in keys])


def _opener(folder: GalleryFolder, catalogue: Catalogue) -> Open:
    return lambda place: open_engine(place, folder.vectors, catalogue.setting("mode"))


def _drop_all(engine: Engine) -> None:
    for collection in engine.collections():
        engine.drop(collection)
    engine.close()
