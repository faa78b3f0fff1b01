"""``Gallery``: items embedded by different models, searched together by the newest one."""

import itertools
import shutil
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from holdfast.core.errors import HoldfastError
from holdfast.core.storage import remove_temporaries, replacing_folder
from holdfast.gallery.backfill import Backfill, BackfillOptions, backfill
from holdfast.gallery.catalogue import Catalogue, Receipt, explain_damage
from holdfast.gallery.engine_migration import current_address, migrate, open_current_engine
from holdfast.gallery.engines import open_engine
from holdfast.gallery.engines.engine import EngineAddress, new_engine_address
from holdfast.gallery.filters import parse_filter
from holdfast.gallery.folder import GalleryFolder
from holdfast.gallery.gallery_base import RegisterOptions, SearchOptions, SearchQuery
from holdfast.gallery.gallery_items import Hit, Item, checked_id
from holdfast.gallery.gallery_versions import Version, VersionCandidate, copy_model, read_candidate
from holdfast.gallery.open_gallery import OpenGallery
from holdfast.gallery.reembed import ReembedProgress
from holdfast.gallery.registration import register
from holdfast.gallery.rollback import cancel_rollback, roll_back
from holdfast.gallery.searching import GallerySearch, search_versions, stored_item
from holdfast.gallery.state import GalleryState
from holdfast.gallery.vector_sources import VectorSource
from holdfast.gallery.version_models import Models, batch_sizes, device_name


class Gallery(OpenGallery):
    """Items with an id, each embedded by one of the gallery's versions; made by ``create`` or ``open``.

    One process has a gallery open at a time; any of its threads may search while another one adds. A write is on disk
    when its call returns, or when ``progress`` is called for it. It then survives a kill at any moment.

    >>> import numpy as np
    >>> from holdfast import Gallery, Item
    >>> vectors = np.eye(4, 3) + 0.1
    >>> with Gallery.create("shop", vectors=vectors) as gallery:  # of vectors alone, without a model
    ...     _ = gallery.add(Item(f"item-{i}", vector=row) for i, row in enumerate(vectors))
    ...     [hit.id for hit in gallery.search(vector=vectors[1], k=2)]
    ['item-1', 'item-3']
    """

    def __init__(self, folder: GalleryFolder, device: str) -> None:
        catalogue = Catalogue(folder.catalogue)
        try:
            with explain_damage(folder.catalogue):
                if not catalogue.versions():
                    raise ValueError("no versions")
                versions = [Version(**record) for record in catalogue.versions().values()]
                models = Models(folder, versions, device, catalogue.setting("leaving"))
                engine = open_current_engine(folder, catalogue)
                self.engine = current_address(catalogue).url
        except BaseException:
            catalogue.close()
            raise
        self._state = GalleryState(folder, catalogue, engine, models)
        super().__init__(folder.path, models)
        try:
            _repair(self._state)
        except BaseException:
            engine.close()
            catalogue.close()
            raise

    @classmethod
    def create(
        cls,
        folder: str | Path,
        model: str | Path | None = None,
        *,
        vectors: VectorSource | None = None,
        engine: str = "embedded",
        device: str = "auto",
        namespace: str | None = None,
    ) -> "Gallery":
        """Create a gallery with one version and no items.

        folder: does not exist yet, or is empty.
        model: folder of the first version's model.
        vectors: instead of a model, vectors that something else made: a file, a folder of shards, a FeatureSet or an
            array. The first version has their size and no model. The vectors themselves are not added; see ``add``.
        engine: ``embedded``, or the address of a server: ``postgresql://...``.
        device: as in ``open``.
        namespace: prefix of the names of everything on a server; default: a random name.
        """
        where, address = device_name(device), new_engine_address(engine, namespace)
        candidate = read_candidate(model, vectors)
        candidate.load(where)
        _create_files(Path(folder), candidate, address)
        return cls.open(folder, device=where)

    @classmethod
    def open(cls, folder: str | Path, *, device: str = "auto") -> "Gallery":
        """Open an existing gallery, and complete or undo the writes of a killed process.

        device: where its models embed, such as ``cpu`` or ``cuda:1``; ``auto`` is the GPU if there is one.
        """
        where, home = device_name(device), GalleryFolder(Path(folder))
        if home.attached.is_file():
            raise HoldfastError(f"{folder}: attached, and so read-only; holdfast.gallery.open_gallery opens it")
        if not home.catalogue.is_file():
            how = f"make one with holdfast gallery create {folder} --model DIR"
            raise HoldfastError(f"{folder}: no gallery here; {how}")
        home.lock()
        try:
            return cls(home, where)
        except BaseException:
            home.unlock()
            raise

    @classmethod
    def move(
        cls,
        folder: str | Path,
        to: str,
        *,
        keep: bool = False,
        namespace: str | None = None,
        progress: Callable[[int], None] = lambda copied: None,
    ) -> dict[str, Any]:
        """Migrate all vectors of a gallery that no process has open to another engine.

        Both engines are compared before the new one takes over. After a kill the same call begins again.

        folder: the gallery's folder.
        to: ``embedded``, or the address of a server.
        keep: do not drop the vectors on the old engine.
        namespace: as in ``create``.
        progress: called with the number of vectors of each copied block.
        """
        address = new_engine_address(to, namespace)
        with cls.open(folder) as gallery:
            return migrate(gallery._state, address, keep=keep, on_progress=progress)

    def _register(self, model: str | Path | None, options: RegisterOptions) -> Version:
        with self._state.registering:
            return register(self._state, model, options)

    def add(
        self,
        items: Iterable[Item],
        *,
        version: int | None = None,
        batch_size: int | None = None,
        refused: Callable[[Item, HoldfastError], None] | None = None,
        progress: Callable[[int], None] = lambda done: None,
        replaced: Callable[[int], None] = lambda count: None,
        receipts: Sequence[Receipt] = (),
    ) -> int:
        """Store items; how many were stored.

        An existing id is replaced with its vector, metadata and version in one step; of an id given twice the last
        good item is stored. Each batch is stored completely or not at all.

        items: any iterable; read batch by batch.
        version: the version that embeds; default the newest.
        batch_size: items per batch; default by device.
        refused: called with each bad item and the reason, and the item is skipped. By default a bad item raises, with
            nothing of its batch stored.
        progress: called with the number of items on disk after each batch.
        replaced: called with the number of items of each batch that replaced others.
        receipts: stored in one step with the first batch; give all items in one batch. See ``receipt``.
        """
        state = self._state
        if batch_size is not None and batch_size < 1:
            raise HoldfastError(f"batch_size must be at least 1, got {batch_size}")
        target = state.models.version(version)
        stream, done = iter(items), 0
        first = list(itertools.islice(stream, 1))
        stream = itertools.chain(first, stream)
        encoder = state.models.encoder(target) if any(item.vector is None for item in first) else None
        size = batch_size or batch_sizes(encoder).add
        while batch := list(itertools.islice(stream, size)):
            embedded = state.models.embed_items(batch, target, refused)
            with state.writing:
                stored, gone = state.writer.store(embedded, target, receipts)
            receipts = ()
            done += stored
            progress(done)
            replaced(gone)
        with state.writing:
            state.writer.build_due_indexes()
        return done

    def _search(self, query: SearchQuery, options: SearchOptions) -> list[Hit]:
        state = self._state
        where = parse_filter(options.filter, self.fields)
        among = options.versions_among([version.number for version in self.versions()])
        with self.reading():
            if query.id is not None:
                source, vector = stored_item(state, checked_id(query.id))
            else:
                source = state.models.version(query.version)
                vector = state.models.query_vector(query.image, query.vector, source)
            wanted = GallerySearch(vector, source, options.all_hits, where, options.exact, query.id, among)
            return search_versions(state, wanted)[options.offset :]

    def backfill(
        self,
        to: int | None = None,
        *,
        rate: float | None = None,
        limit: int | None = None,
        vectors: VectorSource | None = None,
        stop: threading.Event | None = None,
        progress: Callable[[Backfill], None] = lambda state: None,
    ) -> Backfill:
        """Re-embed items of older versions, from their images or by given vectors.

        Searches continue and find every item once, in the old version or the new. Items that the bridge to their
        version is expected to serve worst come first, then those of versions without a bridge, the oldest first. Items
        without a path, or with an image that cannot be read, stay unchanged and are counted. After a kill or a stop
        the same call continues.

        to: the version that embeds; default the newest.
        rate: at most so many items per second; default no limit.
        limit: at most so many items in this call; default all.
        vectors: vectors of items by version ``to``, matched by id: a folder of shards that ``embed_shards`` wrote, a
            file (npz, npy, parquet) or a FeatureSet. No image is read then, items need no path, and they move in the
            order of the vectors. Items without a vector stay unchanged and are counted.
        stop: set it to stop after the current batch.
        progress: called after every batch that is on disk.
        """
        options = BackfillOptions(to, rate, limit, vectors, stop or threading.Event())
        with self._state.maintenance.hold("backfill"):
            return backfill(self._state, options, progress)

    def rollback(
        self,
        *,
        drop: bool = False,
        cancel: bool = False,
        rate: float | None = None,
        stop: threading.Event | None = None,
        progress: Callable[[ReembedProgress], None] = lambda state: None,
    ) -> dict[str, Any]:
        """Remove the newest version. The one before it embeds queries from now on, and re-embeds its items.

        Refused, with nothing changed, if items have no image. After a kill or a stop the same call continues.

        drop: delete the items that cannot be re-embedded.
        cancel: keep a version that is partly removed, as the newest.
        rate: at most so many items per second; default no limit.
        stop: set it to stop after the current batch.
        progress: called after every batch that is on disk.
        """
        with self._state.maintenance.hold("rollback"):
            if cancel:
                return {"cancelled": cancel_rollback(self._state)}
            ended = stop or threading.Event()
            return roll_back(self._state, drop=drop, rate=rate, stop=ended, on_progress=progress)

    def reading(self) -> AbstractContextManager[None]:
        """In this context searches may use every version that exists at its start, also if a rollback removes one."""
        return self._state.searches.running()

    def writing(self) -> AbstractContextManager[Any]:
        """In this context no other thread writes; it waits until others have finished."""
        return self._state.writing

    def delete(self, ids: Iterable[str], *, receipt: Callable[[list[str]], Receipt] | None = None) -> list[str]:
        """Remove items; the ids that existed. Unknown ids are ignored.

        receipt: called with the ids that existed; its result is stored in one step with the removal.
        """
        with self._state.writing:
            return self._state.writer.remove([checked_id(one) for one in ids], receipt)

    def receipt(self, key: str) -> Receipt | None:
        """The receipt that a write stored in the last 24 hours of the gallery's use; None: the write was not done."""
        return self._state.catalogue.receipt(key)

    def get(self, ids: Sequence[str]) -> dict[str, dict[str, Any]]:
        """Version, label, metadata and path of the ids that exist."""
        found = self._state.catalogue.by_id([checked_id(one) for one in ids])
        return {
            name: {"version": item.version, "label": item.label, "metadata": dict(item.metadata), "path": item.path}
            for name, item in found.items()
        }

    @property
    def fields(self) -> set[str]:
        """The names of all metadata fields that an item ever had, and ``label``: searches can filter by them."""
        return self._state.catalogue.fields

    def stats(self) -> dict[str, Any]:
        """Numbers of items and vectors by version with its bridges, and the size on disk in bytes.

        newest: the version that embeds queries. rolling_back: one that a rollback removes and that still has items.
        """
        state = self._state
        counts, totals = state.catalogue.totals()
        with state.searches.running():
            rows = [
                {
                    "version": one.number,
                    "items": counts.get(one.number, 0),
                    "vectors": state.engine.count(one.collection),
                    "unindexed": state.engine.unindexed(one.collection),
                    "stored_dim": one.stored_dim,
                    "dim": one.dim,
                    "bridges": one.bridges,
                }
                for one in state.models.versions()
            ]
        return {
            "items": sum(counts.values()),
            **totals,
            "fields": sorted(self.fields),
            "bytes_on_disk": state.folder.bytes_on_disk(),
            "versions": rows,
            "newest": state.models.newest().number,
            "rolling_back": state.models.rollback_version,
            "engine": self.engine,
        }

    def build_index(self) -> bool:
        """Index all vectors that are not indexed yet; whether there were any. Searches continue meanwhile."""
        with self._state.writing:
            built = [self._state.engine.build_index(one.collection) for one in self.versions()]
        return any(built)

    def close(self) -> None:
        """Close all files and connections."""
        state = self._state
        with state.registering, state.writing:
            state.search_threads.shutdown()
            state.engine.close()
            state.catalogue.close()
            state.folder.unlock()


def _create_files(path: Path, candidate: VersionCandidate, address: EngineAddress) -> None:
    """Create the folder of a gallery with one version and no items; it appears when it is complete."""
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise HoldfastError(f"{path}: already there; give the gallery a folder of its own")
    version = candidate.version(1)
    with replacing_folder(path) as temporary:
        home = GalleryFolder(temporary)
        copy_model(candidate, home.version(1))
        catalogue = Catalogue(home.catalogue, new=True)
        settings = {"engine": address.url, "namespace": address.namespace}
        catalogue.put_version(1, version.as_json(), settings)
        catalogue.close()
        # Last, because a server's collection is not removed with the folder if something fails.
        engine = open_engine(address, home.vectors)
        try:
            if engine.collections():
                raise HoldfastError(f"{address.url}: the namespace {address.namespace} is in use; choose another one")
            engine.create(version.collection, version.stored_dim)
        finally:
            engine.close()


def _repair(state: GalleryState) -> None:
    """Delete vectors, collections and model folders that a killed process left behind."""
    known, counts = state.models.versions(), state.catalogue.counts()
    stored = set(state.engine.collections())
    for collection in stored - {one.collection for one in known}:
        state.engine.drop(collection)
    for version in (one for one in known if one.collection not in stored):
        if counts.get(version.number):
            where = f"{current_address(state.catalogue).url} has no collection {version.collection}"
            raise HoldfastError(
                f"{state.folder.path}: the vectors of {counts[version.number]} items of version {version.number} are "
                f"missing ({where}); restore them from a backup"
            )
        state.engine.create(version.collection, version.stored_dim)
    if not state.folder.versions.is_dir():
        raise HoldfastError(f"{state.folder.versions}: no such folder; restore the models from a backup")
    remove_temporaries(state.folder.versions)
    for number, folder in state.folder.version_folders().items():
        if number not in {one.number for one in known}:
            shutil.rmtree(folder)
    state.writer.delete_unowned()
