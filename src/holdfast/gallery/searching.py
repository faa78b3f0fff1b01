"""One question to all versions, merged by true cosine."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from holdfast.errors import HoldfastError
from holdfast.gallery.catalogue import Catalogue
from holdfast.gallery.engines.protocol import Engine
from holdfast.gallery.filters import Filter
from holdfast.gallery.items import Hit
from holdfast.gallery.models import Models
from holdfast.gallery.versions import Version

TRIES = 3


@dataclass(frozen=True)
class Question:
    """A query vector as ``source`` stores it, and which items it asks for: ``k``, the item ``itself`` left out."""

    vector: np.ndarray
    source: Version
    k: int
    where: Filter | None
    exact: bool
    itself: str | None = None  # by id: its key changes when it moves
    indexed_by: frozenset[int] | None = None  # None: whichever version embedded them


class SearchesUnderWay:
    """Who searches now, so that what searches use is taken away only once those that may see it have ended."""

    def __init__(self) -> None:
        self._ended = threading.Condition()
        self._begun = 0
        self._running: set[int] = set()

    @contextmanager
    def one(self) -> Iterator[None]:
        with self._ended:
            self._begun += 1
            number = self._begun
            self._running.add(number)
        try:
            yield
        finally:
            with self._ended:
                self._running.remove(number)
                self._ended.notify_all()

    def wait(self) -> None:
        """Until every search that has begun by now has ended; later ones are not waited for."""
        with self._ended:
            last = self._begun
            self._ended.wait_for(lambda: all(number > last for number in self._running))


def search_all(engine: Engine, catalogue: Catalogue, models: Models, question: Question) -> list[Hit]:
    """The best items of all versions, or of those asked for, each once.

    An item that moves to another version while this runs might be missed in both: then the answer is thrown away.
    Where items keep moving, the catalogue is held still for the few milliseconds of one search; whoever stores vectors
    or builds an index meanwhile goes on, for only the catalogue moves items.
    """
    for _ in range(TRIES):
        before = catalogue.changes
        hits, after = _search(engine, catalogue, models, question)
        if after == before:
            return hits
    with catalogue.still():
        return _search(engine, catalogue, models, question)[0]


def stored_item(engine: Engine, catalogue: Catalogue, models: Models, name: str) -> tuple[Version, np.ndarray]:
    """Version and vector of an item."""
    while found := catalogue.by_id([name]).get(name):
        # It may move between look-up and fetch, and its version may be taken out: then it is looked up again.
        for version in models.versions():
            if version.number == found.version:
                vectors = engine.fetch(version.collection, [found.key])
                if found.key in vectors:
                    return version, vectors[found.key]
    raise HoldfastError(f"no item {name!r} in the gallery")


def _search(engine: Engine, catalogue: Catalogue, models: Models, question: Question) -> tuple[list[Hit], int]:
    # A version has a collection of its own in every engine: those of other versions are not asked at all.
    wanted_by = question.indexed_by
    versions = [one for one in models.versions() if wanted_by is None or one.number in wanted_by]
    carried = [models.carry(question.vector[None], question.source, version)[0] for version in versions]
    wanted = question.k + (question.itself is not None)
    while True:
        answers = [
            engine.search(version.collection, vector, wanted, question.where, exact=question.exact)
            for version, vector in zip(versions, carried, strict=True)
        ]
        owned, changes = catalogue.by_key([one.key for found in answers for one in found])
        kept_keys = {key for key, item in owned.items() if item.id != question.itself}
        live = [[one for one in found if one.key in kept_keys] for found in answers]
        # A vector that is being written or deleted belongs to nobody; where such took up places, more are asked for.
        if all(len(found) < wanted or len(kept) >= question.k for found, kept in zip(answers, live, strict=True)):
            break
        wanted *= 2
    # The scores are inner products with the carried query, its length included: cosines of full features.
    merged = sorted((one for kept in live for one in kept), key=lambda one: (-one.score, one.key))
    return [owned[one.key].hit(one.score) for one in merged[: question.k]], changes
