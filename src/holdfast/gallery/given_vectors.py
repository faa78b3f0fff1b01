"""Vectors of a version that were computed elsewhere, matched to items by id.

``NewVectors`` are those of some items, from which a bridge is fitted. ``GivenVectors`` are stored by a backfill; there
may be any number of them, so they are read block by block.
"""

from collections.abc import Collection, Generator, Sequence

import numpy as np

from holdfast.core.errors import HoldfastError
from holdfast.core.locations import Location
from holdfast.gallery.items import Stored
from holdfast.gallery.models import stored_form
from holdfast.gallery.reembed import ReembeddedBlock, ReembedProgress
from holdfast.gallery.state import GalleryState
from holdfast.gallery.vector_sources import BLOCK_ROWS, OpenVectors, VectorSource, is_model_hash
from holdfast.gallery.versions import Version
from holdfast.vectors.feature_set import shorten

_LOOK_UP = 500


class NewVectors:
    """The new model's vectors of some items.

    given: with ids, which are those of items.
    """

    def __init__(self, given: VectorSource) -> None:
        self._vectors = OpenVectors(given)
        self._vectors.refuse_without_ids()
        self.name = self._vectors.name
        self._row_of = {name: row for row, name in enumerate(self._vectors.ids())}

    def __contains__(self, id: object) -> bool:
        return id in self._row_of

    def ids(self) -> list[str]:
        """The id of each row."""
        return list(self._row_of)

    def choose(self, state: GalleryState, most: int, reserved: Collection[int]) -> dict[int, list[Stored]]:
        """At most ``most`` items of each version that are in the file, at random with a fixed seed, by version.

        reserved: keys of items that are not used.
        Refused: a file without an id of the gallery.
        """
        names = list(self._row_of)
        order = np.random.default_rng(0).permutation(len(names)).tolist()
        chosen: dict[int, list[Stored]] = {number: [] for number in state.catalogue.counts()}
        matched = False
        for start in range(0, len(order), _LOOK_UP):
            found = state.catalogue.by_id([names[row] for row in order[start : start + _LOOK_UP]])
            matched = matched or bool(found)
            for item in found.values():
                kept = chosen.setdefault(item.version, [])
                if item.key not in reserved and len(kept) < most:
                    kept.append(item)
            if all(len(kept) == most for kept in chosen.values()):
                break
        if not matched:
            raise HoldfastError(f"{self.name}: none of its {len(names)} ids is in the gallery ({shorten(names, 3)})")
        return chosen

    def rows(self, items: Sequence[Stored]) -> list[int]:
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

    def _waiting(self, state: GalleryState, ids: Sequence[str]) -> dict[str, Stored]:
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
