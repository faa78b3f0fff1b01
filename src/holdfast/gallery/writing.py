"""Items into catalogue and engine, in the order that a kill at any moment leaves whole (see ``catalogue``)."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from holdfast.errors import HoldfastError
from holdfast.gallery.catalogue import Catalogue
from holdfast.gallery.engines.protocol import Engine
from holdfast.gallery.items import Stored
from holdfast.gallery.models import Models, Prepared
from holdfast.gallery.versions import Version

INDEX_FROM = 5000
"""Vectors that no index holds are compared one by one: some 2 ms at 512 numbers each."""


class Writer:
    """One thread at a time."""

    def __init__(self, catalogue: Catalogue, engine: Engine, models: Models) -> None:
        self._catalogue, self._engine, self._models = catalogue, engine, models

    def store(self, prepared: Sequence[Prepared], version: Version) -> tuple[int, int]:
        """How many were stored, and how many of them replaced an item that was there."""
        if not prepared:
            return 0, 0
        if version.number == self._models.leaving or version not in self._models.versions():
            raise HoldfastError(f"version {version.number} is taken out by a rollback; add with another version")
        keys = self._catalogue.reserve(len(prepared), version.number)
        items = [replace(one.item, key=key) for one, key in zip(prepared, keys, strict=True)]
        vectors = np.stack([one.vector for one in prepared])
        self._engine.upsert(version.collection, keys, vectors, [item.fields() for item in items])
        replaced = self._catalogue.hand_over(items)
        self.sweep()
        return len(items), replaced

    def move(self, items: Sequence[Stored], vectors: np.ndarray, version: Version) -> int:
        """Give items of other versions new vectors in this one; how many had not changed since they were read."""
        keys = self._catalogue.reserve(len(items), version.number)
        self._engine.upsert(version.collection, keys, vectors, [item.fields() for item in items])
        moved = self._catalogue.move(items, keys, version.number)
        self.sweep()
        return moved

    def remove(self, ids: Sequence[str]) -> list[str]:
        gone = self._catalogue.remove(ids)
        self.sweep()
        return gone

    def sweep(self) -> None:
        """Delete the vectors that belong to nobody."""
        unsettled = self._catalogue.unsettled()
        for number, keys in unsettled.items():
            self._engine.delete(self._models.version(number).collection, keys)
        if unsettled:
            self._catalogue.settle([key for keys in unsettled.values() for key in keys])

    def index_where_due(self) -> None:
        """Build the index of every version whose unindexed vectors have become many, and a tenth of all."""
        for version in self._models.versions():
            waiting = self._engine.unindexed(version.collection)
            if waiting >= INDEX_FROM and 10 * waiting >= self._engine.count(version.collection):
                self._engine.build_index(version.collection)
