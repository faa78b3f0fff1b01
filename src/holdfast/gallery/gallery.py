"""A gallery whose items were embedded by different models and are searched by the newest, exactly."""

import itertools
import shutil
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from torch import Tensor

from holdfast.backbones import Encoder
from holdfast.backbones.preprocess import OneImage
from holdfast.checking.result import INCOMPATIBLE
from holdfast.errors import HoldfastError
from holdfast.gallery.catalogue import Catalogue
from holdfast.gallery.creating import make_gallery
from holdfast.gallery.engine_move import Mover, opened, place_of
from holdfast.gallery.engines import Mode
from holdfast.gallery.filters import parse_filter
from holdfast.gallery.folder import GalleryFolder
from holdfast.gallery.items import Hit, Item, checked_id
from holdfast.gallery.models import Models, ready
from holdfast.gallery.place import new_place
from holdfast.gallery.registration import judge
from holdfast.gallery.searching import Question, search_all
from holdfast.gallery.versions import Version, keep_model, read_candidate, registry_of, slots_together
from holdfast.gallery.writing import Writer
from holdfast.storage import sweep_temporaries

MOST_HITS = 10_000
ITEMS_AT_ONCE = 256


class Gallery:
    """Items with an id, each embedded by one of the gallery's versions; made by ``create`` or ``open``.

    One process at a time; within it any thread may search while another one adds. Everything acknowledged (a call that
    returned, a ``progress`` that was told) survives the end of the process at any moment, once, in one version.
    """

    def __init__(self, folder: GalleryFolder) -> None:
        self._folder = folder
        self._writing = threading.RLock()
        self._catalogue = Catalogue(folder.catalogue)
        try:
            self.mode: Mode = self._catalogue.setting("mode")
            self._engine = opened(folder, self._catalogue)
            self.engine = place_of(self._catalogue).url
        except BaseException:
            self._catalogue.close()
            raise
        self._models = Models(folder, self._catalogue)
        self._writer = Writer(self._catalogue, self._engine, self._models)
        self._mover = Mover(folder, self._catalogue, self._engine, self._models, self._writer)
        self._repair()

    @classmethod
    def create(
        cls, folder: str | Path, model: str | Path, *, engine: str = "embedded", mode: Mode = "hnsw", **options: Any
    ) -> "Gallery":
        """A new gallery with one version, in a folder that does not exist yet or is empty.

        engine: ``embedded``, or the address of a server; options for these: see ``new_place``.
        """
        make_gallery(Path(folder), Path(model), new_place(engine, **options), mode)
        return cls.open(folder)

    @classmethod
    def open(cls, folder: str | Path) -> "Gallery":
        """A gallery that was created before; what a killed process left half-written is put right."""
        home = GalleryFolder(Path(folder))
        if not home.catalogue.is_file():
            raise HoldfastError(
                f"{folder}: no gallery here; make one with holdfast gallery create {folder} --model DIR"
            )
        home.lock()
        try:
            return cls(home)
        except BaseException:
            home.unlock()
            raise

    def register(self, model: str | Path, *, force: bool = False) -> Version:
        """Add a model as the newest version: from now on it embeds what is added and what is asked.

        Refused: another K, slots that clash, weights that are a version already. Where older versions hold items with
        labels and images, ``check`` judges the new model's queries on them; a model it calls incompatible is refused
        unless ``force``. The verdicts are kept with the version.
        """
        candidate = read_candidate(Path(model))
        with self._writing:
            for known in self._models.versions():
                if known.weights_sha256 == candidate.weights_sha256:
                    raise HoldfastError(f"{model}: these weights are version {known.number} already")
            newest = self._models.newest()
            slots = slots_together(registry_of(self._catalogue.setting("slots")), candidate, newest.dim)
            number = newest.number + 1
            keep_model(candidate, self._folder.version(number))
            try:
                version = candidate.version(number, [])
                version = replace(version, checks=self._checks(version, candidate.encoder))
                refused = [check for check in version.checks if check["verdict"] == INCOMPATIBLE]
                if refused and not force:
                    where = f"on version {refused[0]['version']}: {refused[0]['reason']}"
                    raise HoldfastError(f"{model}: incompatible {where}; force registers it all the same")
                self._engine.create(version.collection, version.stored_dim)
            except BaseException:
                self._models.forget(number)
                raise
            record = None if slots is None else slots.to_json()
            self._catalogue.put_version(number, version.as_json(), {"slots": record})
            self._models.welcome(version, candidate.encoder)
        return version

    def add(
        self,
        items: Iterable[Item],
        *,
        version: int | None = None,
        batch_size: int = ITEMS_AT_ONCE,
        refused: Callable[[Item, HoldfastError], None] | None = None,
        progress: Callable[[int], None] = lambda done: None,
    ) -> int:
        """Store items, embedded by the newest version or ``version``; how many were stored.

        An id that is there already is replaced as a whole, vector, metadata and version, in one step; of an id given
        twice the last good one. Items are stored batch by batch, each wholly or not at all, and ``progress`` is told
        how many are on disk. A bad item ends the call with nothing of its batch stored, or, with ``refused``, is
        handed to it and passed over.
        """
        if batch_size < 1:
            raise HoldfastError(f"batch_size must be at least 1, got {batch_size}")
        target = self._models.version(version)
        stream, done = iter(items), 0
        while batch := list(itertools.islice(stream, batch_size)):
            prepared = self._models.embedded(batch, target, refused)
            with self._writing:
                done += self._writer.store(prepared, target)
            progress(done)
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
        exact: bool = False,
    ) -> list[Hit]:
        """The ``k`` items of all versions nearest to an image, a vector or an item, best first, by true cosine.

        vector: by the newest version or ``version``, full or compact, of any length. id: an item that is there, which
        is itself left out. filter: see ``parse_filter``. exact: compare every vector, whatever the mode. Equal scores
        go to the older item.
        """
        given = [name for name, value in (("image", image), ("vector", vector), ("id", id)) if value is not None]
        if len(given) != 1:
            raise HoldfastError(f"search takes one of image, vector and id, not {' and '.join(given) or 'none'}")
        if isinstance(k, bool) or not isinstance(k, int | np.integer) or not 1 <= k <= MOST_HITS:
            raise HoldfastError(f"k must be a whole number from 1 to {MOST_HITS}, got {k!r}")
        where = parse_filter(filter, self._catalogue.fields)
        itself = None
        if id is not None:
            source, query, itself = self._stored(id)
        else:
            source = self._models.version(version)
            query = (
                self._models.image_vector(image, source)
                if vector is None
                else self._models.stored_form(vector, source, "query")
            )
        question = Question(query, source, int(k), where, exact or self.mode == "exact", itself)
        hits = search_all(self._engine, self._catalogue, self._models, question)
        if hits is None:  # items kept moving: hold writers up for the few milliseconds of one search
            with self._writing:
                hits = search_all(self._engine, self._catalogue, self._models, question)
        assert hits is not None
        return hits

    def delete(self, ids: Iterable[str]) -> list[str]:
        """Take items out; the ids that were there. Unknown ones are no error."""
        with self._writing:
            return self._writer.remove([checked_id(one) for one in ids])

    def get(self, ids: Sequence[str]) -> dict[str, dict[str, Any]]:
        """What is known of the ids that are there: version, label, metadata, path."""
        found = self._catalogue.by_id(list(ids))
        return {
            name: {"version": item.version, "label": item.label, "metadata": dict(item.metadata), "path": item.path}
            for name, item in found.items()
        }

    def versions(self) -> list[Version]:
        """All versions, oldest first; the last one embeds what is added and asked."""
        return self._models.versions()

    def stats(self) -> dict[str, Any]:
        """How many items each version holds, in how many vectors, and what that takes up on disk."""
        counts = self._catalogue.counts()
        rows = [
            {
                "version": one.number,
                "items": counts.get(one.number, 0),
                "vectors": self._engine.count(one.collection),
                "unindexed": self._engine.unindexed(one.collection),
                "stored_dim": one.stored_dim,
                "dim": one.dim,
            }
            for one in self.versions()
        ]
        return {
            "items": sum(counts.values()),
            **self._catalogue.described(),
            "fields": sorted(self._catalogue.fields),
            "engine": self.engine,
            "mode": self.mode,
            "bytes_on_disk": self._folder.bytes_on_disk(),
            "versions": rows,
        }

    def build_index(self) -> bool:
        """Index all that is not indexed yet; whether there was anything to do. Searches go on meanwhile."""
        with self._writing:
            built = [self._engine.build_index(one.collection) for one in self.versions()]
        return any(built)

    def move(
        self, to: str, *, keep: bool = False, progress: Callable[[int], None] = lambda copied: None, **options: Any
    ) -> dict[str, Any]:
        """Take all vectors to another engine, compared by count and checksum before it takes over; see ``engine_move``.

        Searches go on; writers wait while the two are compared. A move that was cut short goes on when it is called
        again, to where it was going. keep: do not drop what the engine before holds. options: see ``new_place``.
        """
        found = self._mover.move(new_place(to, **options), self._writing, keep=keep, progress=progress)
        self.engine = found["engine"]
        return found

    def close(self) -> None:
        with self._writing:
            self._engine.close()
            self._catalogue.close()
            self._folder.unlock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _repair(self) -> None:
        """Put right what a process that was killed left: vectors, collections and model folders that nobody owns."""
        known = self.versions()
        for collection in set(self._engine.collections()) - {one.collection for one in known}:
            self._engine.drop(collection)
        sweep_temporaries(self._folder.versions)
        for folder in set(self._folder.versions.iterdir()) - {self._folder.version(one.number) for one in known}:
            shutil.rmtree(folder)
        self._writer.sweep()

    def _checks(self, new: Version, encoder: Encoder) -> list[dict[str, Any]]:
        """The new model's queries on what each older version holds."""
        verdicts = []
        for old in self.versions():

            def embed(images: Tensor, old: Version = old) -> np.ndarray:
                return self._models.carry(self._models.image_vectors(images, new, encoder), new, old)

            def fetch(keys: list[int], old: Version = old) -> dict[int, np.ndarray]:
                return self._engine.fetch(old.collection, keys)

            items = self._catalogue.labelled_images(old.number)
            if items:
                verdicts.append(judge(old.number, items, fetch, lambda item: ready(encoder, str(item.path)), embed))
        return verdicts

    def _stored(self, name: str) -> tuple[Version, np.ndarray, int]:
        """Version, vector and key of an item."""
        with self._writing:  # between look-up and fetch the item might move
            found = self._catalogue.by_id([checked_id(name)]).get(name)
            if found is None:
                raise HoldfastError(f"no item {name!r} in the gallery")
            version = self._models.version(found.version)
            return version, self._engine.fetch(version.collection, [found.key])[found.key], found.key
