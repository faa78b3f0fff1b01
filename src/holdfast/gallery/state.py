"""The parts of an open gallery, their locks, and the writer that keeps catalogue and engine consistent."""

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from holdfast.core.errors import HoldfastError
from holdfast.gallery.catalogue import Catalogue, Receipt
from holdfast.gallery.engines.engine import Engine
from holdfast.gallery.folder import GalleryFolder
from holdfast.gallery.gallery_items import StoredItem
from holdfast.gallery.gallery_versions import Version
from holdfast.gallery.item_limits import MOST_FIELDS_IN_ALL
from holdfast.gallery.version_models import EmbeddedItem, Models
from holdfast.vectors.feature_set import shorten

INDEX_FROM = 5000
"""Vectors that no index holds are compared one by one: about 2 ms per search at 512 numbers each."""
SEARCH_THREADS = 16
"""As many as connections that read from PostgreSQL."""


_LOG = logging.getLogger("holdfast.gallery")


@dataclass(frozen=True)
class GalleryState:
    """The parts of an open gallery, and its locks.

    writing: held during every write to catalogue and engine.
    registering: held while a model is registered, also while it embeds. Acquired before ``writing``, never after it.
    maintenance: held during a backfill or a rollback.
    search_threads: search several versions at once, on engines that can.
    """

    folder: GalleryFolder
    catalogue: Catalogue
    engine: Engine
    models: Models
    writing: Any = field(default_factory=threading.RLock)  # RLock is a function to type checkers
    registering: threading.Lock = field(default_factory=threading.Lock)
    maintenance: "MaintenanceLock" = field(default_factory=lambda: MaintenanceLock())
    searches: "ActiveSearches" = field(default_factory=lambda: ActiveSearches())
    search_threads: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(SEARCH_THREADS, "search"))

    @property
    def writer(self) -> "Writer":
        """Writes to catalogue and engine; the caller holds ``writing``."""
        return Writer(self.catalogue, self.engine, self.models)


class MaintenanceLock:
    """A lock that knows what it is held for. A second holder is refused, not kept waiting."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.held_for: str | None = None

    @contextmanager
    def hold(self, task: str) -> Iterator[None]:
        """Hold the lock for ``task``: backfill or rollback."""
        if not self._lock.acquire(blocking=False):
            raise HoldfastError(f"a {self.held_for or 'backfill'} of this gallery is running; wait for it, or stop it")
        self.held_for = task
        try:
            yield
        finally:
            self.held_for = None
            self._lock.release()


class ActiveSearches:
    """The searches that run now, so that data they may use is removed only after they have ended."""

    def __init__(self) -> None:
        self._ended = threading.Condition()
        self._started = 0
        self._running: set[int] = set()

    @contextmanager
    def running(self) -> Iterator[None]:
        """Count the block as a running search."""
        with self._ended:
            self._started += 1
            number = self._started
            self._running.add(number)
        try:
            yield
        finally:
            with self._ended:
                self._running.remove(number)
                self._ended.notify_all()

    def wait(self) -> None:
        """Return when every search that has started before this call has ended."""
        with self._ended:
            last = self._started
            self._ended.wait_for(lambda: all(number > last for number in self._running))


class Writer:
    """Writes to catalogue and engine in an order that survives a kill at any moment (see ``catalogue``).

    One thread at a time.
    """

    def __init__(self, catalogue: Catalogue, engine: Engine, models: Models) -> None:
        self._catalogue, self._engine, self._models = catalogue, engine, models

    def store(
        self, embedded: Sequence[EmbeddedItem], version: Version, receipts: Sequence[Receipt] = ()
    ) -> tuple[int, int]:
        """Store new items; how many, and how many of them replaced an item with the same id.

        receipts: stored in the same transaction.
        """
        if not embedded:
            return 0, 0
        if version.number == self._models.rollback_version or version not in self._models.versions():
            raise HoldfastError(f"version {version.number} is being rolled back; add with another version")
        self._models.refuse_unreachable(version)
        self._refuse_new_fields({name for one in embedded for name in one.item.fields()})
        keys = self._catalogue.reserve(len(embedded), version.number)
        items = [replace(one.item, key=key) for one, key in zip(embedded, keys, strict=True)]
        vectors = np.stack([one.vector for one in embedded])
        self._engine.upsert(version.collection, keys, vectors, [item.fields() for item in items])
        replaced = self._catalogue.assign_keys(items, receipts)
        self._try_to_delete_unowned()
        return len(items), replaced

    def _refuse_new_fields(self, names: set[str]) -> None:
        known = self._catalogue.fields
        new = sorted(names - known)
        if new and len(known) + len(new) > MOST_FIELDS_IN_ALL:
            raise HoldfastError(
                f"new metadata fields ({shorten(new, 3)}): the gallery has {len(known)} fields, and at most "
                f"{MOST_FIELDS_IN_ALL} are kept; use names that it has"
            )

    def store_reembedded(self, items: Sequence[StoredItem], vectors: np.ndarray, version: Version) -> int:
        """Store new vectors of items that move to ``version``; how many items had not changed since they were read."""
        keys = self._catalogue.reserve(len(items), version.number)
        self._engine.upsert(version.collection, keys, vectors, [item.fields() for item in items])
        moved = self._catalogue.change_version(items, keys, version.number)
        self._try_to_delete_unowned()
        return moved

    def remove(self, ids: Sequence[str], receipt: Callable[[list[str]], Receipt] | None = None) -> list[str]:
        """Remove items; the ids that existed. ``receipt`` is called with them, and its result is stored."""
        removed = self._catalogue.remove(ids, receipt)
        self._try_to_delete_unowned()
        return removed

    def _try_to_delete_unowned(self) -> None:
        """After a write that is done: if the engine cannot delete now, the next write asks it again."""
        try:
            self.delete_unowned()
        except (HoldfastError, OSError) as error:
            _LOG.warning("old vectors could not be deleted, the next write tries again: %s", error)

    def delete_unowned(self) -> None:
        """Delete vectors that belong to no item."""
        unsettled = self._catalogue.unsettled()
        for number, keys in unsettled.items():
            self._engine.delete(self._models.version(number).collection, keys)
        if unsettled:
            self._catalogue.settle([key for keys in unsettled.values() for key in keys])

    def build_due_indexes(self) -> None:
        """Build the index of every version with at least ``INDEX_FROM`` unindexed vectors that are a tenth of all."""
        for version in self._models.versions():
            unindexed = self._engine.unindexed(version.collection)
            if unindexed >= INDEX_FROM and 10 * unindexed >= self._engine.count(version.collection):
                self._engine.build_index(version.collection)
