"""A gallery whose items were embedded by different models and are searched by the newest, exactly.

A new gallery's folder and its first collection.

What a process that was killed left behind, put right when a gallery is opened.

What a gallery holds, in numbers.

The answers to a search, as a list that shows itself in a notebook.

What every search refuses, whatever it searches.
"""

import html
import itertools
import shutil
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike

from holdfast.devices import resolve_device
from holdfast.encoders.preprocess import OneImage
from holdfast.errors import HoldfastError, unknown_name
from holdfast.gallery.backfill import MOST_PROBES, Backfill, Order, backfill, backfill_record
from holdfast.gallery.catalogue import Catalogue, HitCounts
from holdfast.gallery.engine_move import Mover, opened, place_of
from holdfast.gallery.engines import Mode, open_engine
from holdfast.gallery.engines.protocol import Place, new_place
from holdfast.gallery.filters import Value, parse_filter
from holdfast.gallery.folder import GalleryFolder
from holdfast.gallery.items import Hit, Item, checked_id
from holdfast.gallery.models import Models
from holdfast.gallery.moving import Moving, moving_alone
from holdfast.gallery.registration import register
from holdfast.gallery.rollback import cancel as cancel_rollback
from holdfast.gallery.rollback import roll_back
from holdfast.gallery.searching import Question, search_all, stored_item
from holdfast.gallery.state import GalleryState
from holdfast.gallery.versions import VectorsTaken, Version, keep_model, read_candidate, vectors_taken
from holdfast.gallery.writing import Writer
from holdfast.storage import replacing_folder, sweep_temporaries


class Hits(list[Hit]):
    """Best first. In a notebook a table of what there is; paths stay out of it, for notebooks are passed on."""

    def _repr_html_(self) -> str:
        if not self:
            return "<p>no hits</p>"
        columns = {
            "": [str(place) for place in range(1, len(self) + 1)],
            "id": [hit.id for hit in self],
            "label": [hit.label or "" for hit in self],
            "score": [f"{hit.score:.4f}" for hit in self],
            "version": [str(hit.version) for hit in self],
            "metadata": [_words(hit.metadata) for hit in self],
        }
        columns = {name: cells for name, cells in columns.items() if any(cells)}
        head, rows = "".join(f"<th>{name}</th>" for name in columns), zip(*columns.values(), strict=True)
        body = "".join(f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
        return f"<table><tr>{head}</tr>{body}</table>"


def _words(metadata: Mapping[str, Value]) -> str:
    return ", ".join(f"{name}={value}" for name, value in metadata.items())


class Gallery:
    """Items with an id, each embedded by one of the gallery's versions; made by ``create`` or ``open``.

    One process at a time; within it any thread may search while another one adds. Everything acknowledged (a call that
    returned, a ``progress`` that was told) survives the end of the process at any moment, once, in one version.
    """

    def __init__(self, folder: GalleryFolder, device: torch.device) -> None:
        self._folder, self.device = folder, device
        self._writing = threading.RLock()
        self._catalogue = Catalogue(folder.catalogue)
        try:
            self.mode: Mode = self._catalogue.setting("mode")
            self._engine = opened(folder, self._catalogue)
            self.engine = place_of(self._catalogue).url
        except BaseException:
            self._catalogue.close()
            raise
        self._models = Models(folder, self._catalogue, device)
        self._writer = Writer(self._catalogue, self._engine, self._models)
        self._stores = (self._engine, self._catalogue, self._models)
        self._parts = GalleryState(folder, *self._stores, self._writer, self._writing)
        self._hits = HitCounts(self._catalogue)
        self._mover = Mover(folder, self._catalogue, self._engine, self._models, self._writer)
        repair(self._parts)

    @classmethod
    def create(
        cls,
        folder: str | Path,
        model: str | Path,
        *,
        engine: str = "embedded",
        mode: Mode = "hnsw",
        device: str | torch.device = "auto",
        **options: Any,
    ) -> "Gallery":
        """A new gallery with one version, in a folder that does not exist yet or is empty.

        engine: ``embedded``, or the address of a server; options for these: see ``new_place``. device: as in ``open``.
        """
        where = resolve_device(device)
        make_gallery(Path(folder), Path(model), new_place(engine, **options), mode)
        return cls.open(folder, device=where)

    @classmethod
    def open(cls, folder: str | Path, *, device: str | torch.device = "auto") -> "Gallery":
        """A gallery that was created before; what a killed process left half-written is put right.

        device: where its models embed, such as ``cpu`` or ``cuda:1``; ``auto`` is the GPU if there is one.
        """
        where, home = resolve_device(device), GalleryFolder(Path(folder))
        if not home.catalogue.is_file():
            how = f"make one with holdfast gallery create {folder} --model DIR"
            raise HoldfastError(f"{folder}: no gallery here; {how}")
        home.lock()
        try:
            return cls(home, where)
        except BaseException:
            home.unlock()
            raise

    def register(self, model: str | Path, *, force: bool = False) -> Version:
        """Add a model as the newest version: from now on it embeds what is added and what is asked.

        Refused: another K, slots that clash, weights that are a version already. Where older versions hold items with
        labels and images, ``check`` judges the new model's queries on them; a model it calls incompatible is refused
        unless ``force``. The verdicts are kept with the version. Others may search, add and delete while the new model
        embeds; a second ``register`` waits for the first.
        """
        with self._parts.registering:
            return register(self._parts, Path(model), force=force)

    def add(
        self,
        items: Iterable[Item],
        *,
        version: int | None = None,
        batch_size: int | None = None,
        refused: Callable[[Item, HoldfastError], None] | None = None,
        progress: Callable[[int], None] = lambda done: None,
        replaced: Callable[[int], None] = lambda count: None,
    ) -> int:
        """Store items, embedded by the newest version or ``version``; how many were stored.

        An id that is there already is replaced as a whole, vector, metadata and version, in one step; of an id given
        twice the last good one. Items are stored batch by batch, each wholly or not at all, and ``progress`` is told
        how many are on disk, ``replaced`` how many of a batch took the place of another. A bad item ends the call with
        nothing of its batch stored, or, with ``refused``, is handed to it and passed over. batch_size: None takes as
        many as suit the device.
        """
        size = self._models.sizes.added if batch_size is None else batch_size
        if size < 1:
            raise HoldfastError(f"batch_size must be at least 1, got {batch_size}")
        target = self._models.version(version)
        stream, done = iter(items), 0
        while batch := list(itertools.islice(stream, size)):
            prepared = self._models.embedded(batch, target, refused)
            with self._writing:
                stored, gone = self._writer.store(prepared, target)
            done += stored
            progress(done)
            replaced(gone)
        with self._writing:
            self._writer.index_where_due()
        return done

    def search(
        self,
        image: OneImage | None = None,
        *,
        vector: ArrayLike | None = None,
        id: str | None = None,
        k: int = 10,
        filter: Mapping[str, Any] | None = None,
        version: int | None = None,
        indexed_by: int | Collection[int] | None = None,
        exact: bool = False,
    ) -> Hits:
        """The ``k`` items of all versions nearest to an image, a vector or an item, best first, by true cosine.

        vector: by the newest version or ``version``, full or compact, of any length. id: an item that is there, which
        is itself left out. filter: see ``parse_filter``. indexed_by: only items that this version, or one of these,
        embedded; ``version`` is the query's. exact: compare every vector, whatever the mode. Equal scores go to the
        older item.
        """
        k = checked_question(image, vector, id, k)
        where = parse_filter(filter, self._catalogue.fields)
        among = checked_versions(indexed_by, [one.number for one in self.versions()])
        with self.reading():
            if id is not None:
                source, query = stored_item(*self._stores, checked_id(id))
            else:
                source = self._models.version(version)
                query = self._models.query_vector(image, vector, source)
            question = Question(query, source, k, where, exact or self.mode == "exact", id, among)
            hits = search_all(*self._stores, question)
        self._hits.count(hits)
        return Hits(hits)

    def backfill(
        self,
        to: int | None = None,
        *,
        order: Order = "oldest",
        rate: float | None = None,
        limit: int | None = None,
        probes: int = MOST_PROBES,
        stop: threading.Event | None = None,
        progress: Callable[[Backfill], None] = lambda state: None,
    ) -> Backfill:
        """Embed the items of versions before ``to`` (by default the newest) again, from their images, by ``to``.

        Searches go on and find every item once, in the old version or the new. Items without a path, or whose image
        cannot be read, stay and are counted. rate: at most so many items a second; limit: at most so many in all.
        Killed or stopped (``stop``), the same call goes on where it was. ``progress`` is told after every batch on
        disk. Where ``probes`` labelled images or fewer are at hand, accuracy is measured at every tenth of the way.
        """
        with moving_alone(self._parts, "backfill"):
            self._hits.flush()
            return backfill(self._parts, to, order, rate, limit, probes, stop or threading.Event(), progress)

    def backfill_record(self) -> dict[str, Any] | None:
        """The backfill that runs or ran last: to, order, share, accuracy, running; None before there was any."""
        return backfill_record(self._parts)

    def rollback(
        self,
        *,
        drop: bool = False,
        cancel: bool = False,
        rate: float | None = None,
        stop: threading.Event | None = None,
        progress: Callable[[Moving], None] = lambda state: None,
    ) -> dict[str, Any]:
        """Take the newest version out: the one before it asks from now on, and embeds its items again.

        Refused, with nothing changed, where items have no image at hand, unless ``drop`` deletes them. Killed or
        stopped, the same call goes on; ``cancel`` lets the version stay after all, as the newest.
        """
        with moving_alone(self._parts, "rollback"):
            if cancel:
                return {"cancelled": cancel_rollback(self._parts)}
            return roll_back(self._parts, drop=drop, rate=rate, stop=stop or threading.Event(), progress=progress)

    def reading(self) -> AbstractContextManager[None]:
        """While this is held, versions seen since can be named in searches, also one that a rollback takes out."""
        return self._parts.searches.one()

    def delete(self, ids: Iterable[str]) -> list[str]:
        """Take items out; the ids that were there. Unknown ones are no error."""
        with self._writing:
            return self._writer.remove([checked_id(one) for one in ids])

    def get(self, ids: Sequence[str]) -> dict[str, dict[str, Any]]:
        """What is known of the ids that are there: version, label, metadata, path."""
        found = self._catalogue.by_id([checked_id(one) for one in ids])
        return {
            name: {"version": item.version, "label": item.label, "metadata": dict(item.metadata), "path": item.path}
            for name, item in found.items()
        }

    def versions(self) -> list[Version]:
        """All versions, oldest first, one that is being taken out included."""
        return self._models.versions()

    def newest(self) -> Version:
        """The version that embeds what is added and asked."""
        return self._models.newest()

    def vectors_taken(self, version: int) -> VectorsTaken:
        """What vectors that somebody has already are to a version."""
        return vectors_taken(self._folder.version(version), self._models.version(version))

    def stats(self) -> dict[str, Any]:
        """How many items each version holds, in how many vectors, and what that takes up on disk."""
        return {**holdings(self._parts), "engine": self.engine, "mode": self.mode}

    def build_index(self) -> bool:
        """Index all that is not indexed yet; whether there was anything to do. Searches go on meanwhile."""
        with self._writing:
            built = [self._engine.build_index(one.collection) for one in self.versions()]
        return any(built)

    def move(
        self,
        to: str,
        *,
        keep: bool = False,
        stop: threading.Event | None = None,
        progress: Callable[[int], None] = lambda copied: None,
        **options: Any,
    ) -> dict[str, Any]:
        """Take all vectors to another engine, compared by count and checksum before it takes over; see ``engine_move``.

        Searches go on; writers wait while the two are compared. A move that was cut short goes on when it is called
        again, to where it was going; one that ``stop`` ends between two blocks raises. keep: do not drop what the
        engine before holds. progress: told how many vectors a block had. options: see ``new_place``.
        """
        place, ended = new_place(to, **options), stop or threading.Event()
        with moving_alone(self._parts, "move"):
            found = self._mover.move(place, self._writing, keep=keep, stop=ended, progress=progress)
        self.engine = found["engine"]
        return found

    def close(self) -> None:
        with self._parts.registering, self._writing:
            self._hits.flush()
            self._engine.close()
            self._catalogue.close()
            self._folder.unlock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def make_gallery(path: Path, model: Path, place: Place, mode: str) -> None:
    """A gallery with one version and no items; the folder appears when all of it is there."""
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise HoldfastError(f"{path}: already there; give the gallery a folder of its own")
    candidate = read_candidate(model)
    version = candidate.version(1, [])
    slots = None if candidate.registry is None else candidate.registry.to_json()
    with replacing_folder(path) as temporary:
        home = GalleryFolder(temporary)
        keep_model(candidate, home.version(1))
        catalogue = Catalogue(home.catalogue, new=True)
        settings = {"engine": place.url, "place": place.options, "mode": mode, "slots": slots}
        catalogue.put_version(1, version.as_json(), settings)
        catalogue.close()
        # Last: what is made on a server does not go with the folder if something fails.
        store = open_engine(place, home.vectors, mode)
        try:
            if store.collections():
                raise HoldfastError(f"{place.url}: the namespace {place.namespace} is in use; choose another one")
            store.create(version.collection, version.stored_dim)
        finally:
            store.close()


def repair(parts: GalleryState) -> None:
    """Take away vectors, collections and model folders that nobody owns."""
    known = parts.models.versions()
    for collection in set(parts.engine.collections()) - {one.collection for one in known}:
        parts.engine.drop(collection)
    sweep_temporaries(parts.folder.versions)
    for folder in set(parts.folder.versions.iterdir()) - {parts.folder.version(one.number) for one in known}:
        shutil.rmtree(folder)
    parts.writer.sweep()


def holdings(parts: GalleryState) -> dict[str, Any]:
    """Items, vectors and sizes by version; see ``Gallery.stats``."""
    counts = parts.catalogue.counts()
    with parts.searches.one():
        rows = [
            {
                "version": one.number,
                "items": counts.get(one.number, 0),
                "vectors": parts.engine.count(one.collection),
                "unindexed": parts.engine.unindexed(one.collection),
                "stored_dim": one.stored_dim,
                "dim": one.dim,
            }
            for one in parts.models.versions()
        ]
    return {
        "items": sum(counts.values()),
        **parts.catalogue.described(),
        "fields": sorted(parts.catalogue.fields),
        "bytes_on_disk": parts.folder.bytes_on_disk(),
        "versions": rows,
    }


MOST_HITS = 10_000


def checked_question(image: Any, vector: Any, id: str | None, k: Any) -> int:
    """``k`` as a number, where one of the three ways to ask is given and so many hits may be asked for."""
    given = [name for name, value in (("image", image), ("vector", vector), ("id", id)) if value is not None]
    if len(given) != 1:
        raise HoldfastError(f"search takes one of image, vector and id, not {' and '.join(given) or 'none'}")
    if isinstance(k, bool) or not isinstance(k, int | np.integer) or not 1 <= k <= MOST_HITS:
        raise HoldfastError(f"k must be a whole number from 1 to {MOST_HITS}, got {k!r}")
    return int(k)


def checked_versions(indexed_by: Any, known: Collection[int]) -> frozenset[int] | None:
    """Which versions' items are asked for, one number or several; None for all. One that is not ``known`` is refused.

    A version without items is no error: whoever asks version by version need not know which hold any.
    """
    if indexed_by is None:
        return None
    given = list(indexed_by) if isinstance(indexed_by, Iterable) and not isinstance(indexed_by, str) else [indexed_by]
    if not given:
        raise HoldfastError("indexed_by: an empty list fits nothing; leave it out to search the items of all versions")
    for one in given:
        if isinstance(one, bool) or not isinstance(one, int | np.integer):
            raise HoldfastError(f"indexed_by takes numbers of versions, got {one!r}")
        if one not in known:
            raise unknown_name("version", str(one), known)
    return frozenset(int(one) for one in given)
