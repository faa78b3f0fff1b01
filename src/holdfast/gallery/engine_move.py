"""From one engine to another while the gallery is searched.

1. where it goes is noted in the catalogue, 2. every collection is copied by ascending key, and how far is noted after
each block, 3. its indexes are built, 4. writers wait: what changed meanwhile is made good, and both sides are read and
compared, 5. one transaction makes the new engine the gallery's and notes the old one as to be dropped, 6. it is
dropped. Killed before 5, the gallery is where it was and the same call goes on; after it, it is where it was to be.
"""

import contextlib
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from holdfast.errors import HoldfastError
from holdfast.gallery.catalogue import Catalogue
from holdfast.gallery.contents import Contents, contents_of
from holdfast.gallery.engine import Engine
from holdfast.gallery.engines import open_engine
from holdfast.gallery.folder import GalleryFolder
from holdfast.gallery.models import Models
from holdfast.gallery.place import EMBEDDED, Place
from holdfast.gallery.switching import SwitchingEngine
from holdfast.gallery.versions import Version
from holdfast.gallery.writing import Writer

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
