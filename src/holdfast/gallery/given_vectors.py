"""Vectors of a version that were computed elsewhere, matched to items by id.

``NewModelVectors`` are those of some items, from which a bridge is fitted. ``GivenVectors`` are stored by a backfill;
there may be any number of them, so they are read block by block.
"""

from collections.abc import Callable, Collection, Generator, Sequence
from typing import NamedTuple

import numpy as np

from holdfast.core.errors import HoldfastError
from holdfast.core.locations import Location
from holdfast.gallery.gallery_items import StoredItem
from holdfast.gallery.gallery_versions import Version
from holdfast.gallery.reembed import ReembeddedBlock, ReembedProgress
from holdfast.gallery.state import GalleryState
from holdfast.gallery.vector_sources import BLOCK_ROWS, OpenVectors, VectorSource, is_model_hash
from holdfast.gallery.version_models import stored_form
from holdfast.vectors.feature_set import shorten

_LOOK_UP = 500


class OtherPairs(NamedTuple):
    """Things beside the items that both models embedded, such as queries of a log.

    rows: row numbers in the new vectors.
    old: their vectors as the older version stores them, N x stored_dim.
    """

    rows: list[int]
    old: np.ndarray


class NewModelVectors:
    """The new model's vectors of some items, and perhaps of other things.

    given: with ids.
    """

    def __init__(self, given: VectorSource) -> None:
        self._vectors = OpenVectors(given)
        self._vectors.refuse_without_ids()
        self.name = self._vectors.name
        self._row_of = {name: row for row, name in enumerate(self._vectors.ids())}
        self._items = 0

    def __contains__(self, id: object) -> bool:
        return id in self._row_of

    def ids(self) -> list[str]:
        """The id of each row."""
        return list(self._row_of)

    def paired_with(
        self,
        given: VectorSource,
        version: Version,
        stored: Callable[[np.ndarray, str], np.ndarray],
        items_among: Callable[[list[str]], Collection[str]],
        most: int,
    ) -> OtherPairs:
        """Things that are not items and have a vector in both files, at most ``most``, at random with a fixed seed.

        given: the vectors of ``version``, by id.
        stored: makes of a vector, named for errors, what the version stores.
        items_among: those of some ids that are items: their own vectors are used.
        Refused: vectors of another model or size; no id that both files have.
        """
        old = OpenVectors(given)
        old.refuse_without_ids()
        check_hash(old.name, old.model, version)
        row_of = {name: row for row, name in enumerate(old.ids())}
        shared = [name for name in self._row_of if name in row_of]
        if not shared:
            ids = shorten(list(row_of), 3)
            raise HoldfastError(f"{old.name}: none of its {len(row_of)} ids is in {self.name} ({ids})")
        items: set[str] = set()
        for start in range(0, len(shared), _LOOK_UP):
            items |= set(items_among(shared[start : start + _LOOK_UP]))
        names = [name for name in shared if name not in items]
        names = [names[place] for place in np.random.default_rng(0).permutation(len(names))[:most].tolist()]
        vectors = old.take(np.array([row_of[name] for name in names], dtype=np.int64))
        rows = [stored(vector, f"{old.name}: {name}") for name, vector in zip(names, vectors, strict=True)]
        return OtherPairs([self._row_of[name] for name in names], np.array(rows, np.float32))

    def notes(self, others: int) -> list[str]:
        """A sentence about vectors that no pair could be made of, if there are any.

        others: pairs with things that are not items.
        """
        unused, total = len(self._row_of) - self._items - others, len(self._row_of)
        if unused <= 0 or others:
            return []
        what = f"{unused:,} of {total:,} new vectors in {self.name} are of no item, so no pair was made of them"
        return [f"{what}; give the old model's vectors of the same things (--old-vectors FILE, in Python old_vectors)"]

    def choose(
        self, state: GalleryState, most: int, reserved: Collection[int], *, need_items: bool = True
    ) -> dict[int, list[StoredItem]]:
        """At most ``most`` items of each version that are in the file, at random with a fixed seed, by version.

        reserved: keys of items that are not used.
        need_items: refuse a file without an id of the gallery.
        """
        names = list(self._row_of)
        order = np.random.default_rng(0).permutation(len(names)).tolist()
        chosen: dict[int, list[StoredItem]] = {number: [] for number in state.catalogue.counts()}
        self._items = 0
        for start in range(0, len(order), _LOOK_UP):
            found = state.catalogue.by_id([names[row] for row in order[start : start + _LOOK_UP]])
            self._items += len(found)
            for item in found.values():
                kept = chosen.setdefault(item.version, [])
                if item.key not in reserved and len(kept) < most:
                    kept.append(item)
        if need_items and not self._items:
            raise HoldfastError(f"{self.name}: none of its {len(names)} ids is in the gallery ({shorten(names, 3)})")
        return chosen

    def rows(self, items: Sequence[StoredItem]) -> list[int]:
        """The row numbers of items."""
        return [self._row_of[item.id] for item in items]

    def stored(self, rows: Sequence[int], version: Version, basis: np.ndarray | None) -> np.ndarray:
        """These rows as ``version`` stores them, N x stored_dim.

        Refused: vectors that name the hash of another model, vectors of another size, and one of these that is
        zero or not finite.
        basis: the version's compact basis.
        """
        check_hash(self.name, self._vectors.model, version)
        width, ids = self._vectors.dim, self.ids()
        if width not in version.sizes:
            sizes = " or ".join(map(str, version.sizes))
            raise HoldfastError(f"{self.name}: vectors of {width} numbers, but the new model's have {sizes}")
        stored = np.empty((len(rows), version.stored_dim), dtype=np.float32)
        for place, vector in enumerate(self._vectors.take(np.asarray(rows, dtype=np.int64))):
            stored[place] = stored_form(version, lambda: basis, vector, f"{self.name}: {ids[rows[place]]}")
        return stored


class GivenVectors:
    """Vectors by id.

    given: with ids.
    version: the version that made them. Refused: those of another model, or of another size.
    """

    def __init__(self, given: VectorSource, version: Version) -> None:
        self._version, self._vectors = version, OpenVectors(given)
        self._vectors.refuse_without_ids()
        self.name, width = self._vectors.name, self._vectors.dim
        (check_model if self._vectors.from_embed else check_hash)(self.name, self._vectors.model, version)
        if width not in version.sizes:
            sizes = " or ".join(map(str, version.sizes))
            raise HoldfastError(f"{self.name}: vectors of {width} numbers, but version {version.number} has {sizes}")

    def count_waiting(self, state: GalleryState) -> int:
        """How many items of older versions have a vector here."""
        count = 0
        block: list[str] = []
        for name in self._vectors.ids():
            block.append(name)
            if len(block) == BLOCK_ROWS:
                count += len(self._waiting(state, block))
                block = []
        return count + len(self._waiting(state, block))

    def blocks(
        self, state: GalleryState, size: int, progress: ReembedProgress
    ) -> Generator[ReembeddedBlock, None, None]:
        """The items of older versions with their vectors, ``size`` at a time, in the order of the vectors."""
        for ids, vectors in self._vectors.blocks(size):
            waiting = self._waiting(state, ids)
            rows, items = [], []
            for row, name in enumerate(ids):
                if name not in waiting:
                    continue
                try:
                    what = f"{self.name}: {name}"
                    rows.append(state.models.stored_form(vectors[row], self._version, what))
                    items.append(waiting[name])
                except HoldfastError as error:
                    progress.refuse(name, str(error))
            if waiting:
                stored = np.stack(rows) if rows else np.empty((0, self._version.stored_dim), np.float32)
                yield ReembeddedBlock(len(waiting), items, stored)
        progress.changed += max(0, progress.left)  # deleted or replaced since they were counted

    def _waiting(self, state: GalleryState, ids: Sequence[str]) -> dict[str, StoredItem]:
        stored = state.catalogue.by_id(ids) if ids else {}
        return {name: item for name, item in stored.items() if item.version < self._version.number}


def check_hash(name: Location, model: str | None, version: Version) -> None:
    """As ``check_model`` for a file, which may name no model, or name it by another text than its hash."""
    if is_model_hash(model):
        check_model(name, model, version)


def check_model(name: Location, model: str | None, version: Version) -> None:
    """Refuse vectors of another model than the version's.

    name: of the vectors, for the message.
    model: the hash of the model that made them.
    """
    if model == version.weights_sha256:
        return
    made = "do not say which model made them" if model is None else f"were made by the model {model[:12]}"
    raise HoldfastError(
        f"{name}: these vectors {made}, but version {version.number} is {version.weights_sha256[:12]} "
        f"({version.source}); embed with that model"
    )
