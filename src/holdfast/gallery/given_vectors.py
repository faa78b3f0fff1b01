"""Vectors of a version that were computed elsewhere: shards or a file, read block by block and matched by id."""

from collections.abc import Generator, Iterator, Sequence
from pathlib import Path

import numpy as np

from holdfast.errors import HoldfastError
from holdfast.evaluation import FeatureSet
from holdfast.evaluation.feature_files import read_features
from holdfast.evaluation.feature_shards import FeatureShards, is_shard_folder
from holdfast.gallery.protocol import VectorSource
from holdfast.gallery.reembed import ReembeddedBlock, ReembedProgress
from holdfast.gallery.state import GalleryState
from holdfast.gallery.versions import Version
from holdfast.locations import Location

_BLOCK_ROWS = 4096


class GivenVectors:
    """Vectors by id.

    given: a folder of shards, a file (npz, npy with ids beside it, parquet) or a FeatureSet with ids.
    version: the version that made them. Refused: those of another model, or of another size.
    """

    def __init__(self, given: VectorSource, version: Version) -> None:
        self._version = version
        self._source: FeatureShards | FeatureSet
        if not isinstance(given, FeatureSet) and is_shard_folder(given):
            self._source = FeatureShards(given)
            self.name, model, width = str(given), self._source.manifest.model, self._source.manifest.dim
            check_model(self.name, model, version)
        else:
            found = given if isinstance(given, FeatureSet) else read_features(Path(given), "gallery")
            if found.ids is None:
                raise HoldfastError(f"{found.name}: has no ids; they say which item each vector belongs to")
            self._source, self.name, model, width = found, found.name, found.model, found.dim
            if model is not None:
                check_model(self.name, model, version)
        if width not in (version.dim, version.stored_dim):
            sizes = " or ".join(str(size) for size in sorted({version.dim, version.stored_dim}))
            raise HoldfastError(f"{self.name}: vectors of {width} numbers, but version {version.number} has {sizes}")

    def count_waiting(self, state: GalleryState) -> int:
        """How many items of older versions have a vector here."""
        count = 0
        ids = self._source.ids() if isinstance(self._source, FeatureShards) else map(str, self._ids())
        block: list[str] = []
        for name in ids:
            block.append(name)
            if len(block) == _BLOCK_ROWS:
                count += len(self._waiting(state, block))
                block = []
        return count + len(self._waiting(state, block))

    def blocks(
        self, state: GalleryState, size: int, progress: ReembedProgress
    ) -> Generator[ReembeddedBlock, None, None]:
        """The items of older versions with their vectors, ``size`` at a time, in the order of the vectors."""
        for ids, vectors in self._rows(size):
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

    def _waiting(self, state: GalleryState, ids: Sequence[str]) -> dict:
        found = state.catalogue.by_id(ids) if ids else {}
        return {name: item for name, item in found.items() if item.version < self._version.number}

    def _rows(self, size: int) -> Iterator[tuple[list[str], np.ndarray]]:
        if isinstance(self._source, FeatureShards):
            for shard in self._source:
                for start in range(0, len(shard.ids), size):
                    yield list(shard.ids[start : start + size]), shard.vectors[start : start + size]
            return
        ids = self._ids()
        for start in range(0, len(ids), size):
            stop = min(len(ids), start + size)
            with np.errstate(over="ignore"):  # infinite numbers are refused later
                vectors = self._source.rows.block(start, stop).astype(np.float32)
            yield [str(one) for one in ids[start:stop]], vectors

    def _ids(self) -> np.ndarray:
        assert isinstance(self._source, FeatureSet)
        assert self._source.ids is not None
        return self._source.ids


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
