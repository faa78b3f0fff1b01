"""Vectors given to a gallery: a file, a folder of shards, a ``FeatureSet`` or an array, read block by block."""

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from holdfast.core.errors import HoldfastError
from holdfast.vectors import FeatureSet, feature_set
from holdfast.vectors.feature_files import read_features
from holdfast.vectors.feature_shards import FeatureShards, is_shard_folder

VectorSource = str | Path | FeatureSet | np.ndarray
"""A file (npz, npy, parquet), a folder of shards as ``holdfast embed`` writes it, a ``FeatureSet``, or an array N x d.

Vectors are matched to items by their ids. An array has none: it gives a version of vectors alone its size.
"""

BLOCK_ROWS = 4096
_HASH = re.compile("[0-9a-f]{64}")


class OpenVectors:
    """Vectors with their ids.

    name: where they are from, for messages.
    dim: numbers of each.
    model: what they name as their model; None if they name none.
    from_embed: whether ``holdfast embed`` wrote them, which always names the model.
    """

    def __init__(self, given: VectorSource) -> None:
        self._source: FeatureShards | FeatureSet
        self.from_embed = isinstance(given, str | Path) and is_shard_folder(given)
        if isinstance(given, str | Path) and self.from_embed:
            self._source = FeatureShards(given)
            self.name, self.dim, self.model = str(given), self._source.manifest.dim, self._source.manifest.model
            return
        if isinstance(given, str | Path):
            self._source = read_features(given, "gallery")
        else:
            self._source = given if isinstance(given, FeatureSet) else feature_set("the vectors", given)
        self.name, self.dim, self.model = self._source.name, self._source.dim, self._source.model

    def refuse_without_ids(self) -> None:
        """Refuse vectors of which it is unknown to which item each belongs."""
        if isinstance(self._source, FeatureSet) and self._source.ids is None:
            raise HoldfastError(f"{self.name}: has no ids; they say which item of the gallery each vector belongs to")

    def ids(self) -> Iterator[str]:
        """The id of each vector, or its row number."""
        return self._source.ids() if isinstance(self._source, FeatureShards) else map(str, self._source.names())

    def take(self, rows: np.ndarray) -> np.ndarray:
        """The vectors with these row numbers, in this order."""
        if isinstance(self._source, FeatureSet):
            return self._source.rows.take(rows)
        vectors, order, start = np.empty((len(rows), self.dim), np.float32), np.argsort(rows, kind="stable"), 0
        for shard in self._source:
            stop = start + len(shard.ids)
            places = order[np.searchsorted(rows[order], start) : np.searchsorted(rows[order], stop)]
            vectors[places] = shard.vectors[rows[places] - start]
            start = stop
        return vectors

    def blocks(self, size: int) -> Iterator[tuple[list[str], np.ndarray]]:
        """Ids and vectors (float32), at most ``size`` at a time."""
        if isinstance(self._source, FeatureShards):
            for shard in self._source:
                for start in range(0, len(shard.ids), size):
                    yield list(shard.ids[start : start + size]), shard.vectors[start : start + size]
            return
        ids = self._source.names()
        for start in range(0, len(ids), size):
            stop = min(len(ids), start + size)
            with np.errstate(over="ignore"):  # infinite numbers are refused later
                vectors = self._source.rows.block(start, stop).astype(np.float32)
            yield [str(name) for name in ids[start:stop]], vectors


def is_model_hash(model: str | None) -> bool:
    """Whether a name is the hash of a model's weights."""
    return model is not None and _HASH.fullmatch(model) is not None
