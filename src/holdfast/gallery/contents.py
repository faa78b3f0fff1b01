"""What a collection holds, in a form that two engines can be compared by."""

import hashlib
from dataclasses import dataclass

import numpy as np

from holdfast.gallery.engine import Engine


@dataclass(frozen=True)
class Contents:
    """keys: ascending, int64. sha256: over each key (8 bytes) and its vector (float32), little-endian, by key."""

    keys: np.ndarray
    sha256: str

    def same(self, other: "Contents") -> bool:
        return len(self.keys) == len(other.keys) and self.sha256 == other.sha256

    def lacks(self, other: "Contents") -> list[int]:
        """The keys that only ``other`` has."""
        found: list[int] = np.setdiff1d(other.keys, self.keys, assume_unique=True).tolist()
        return found


def contents_of(engine: Engine, collection: str) -> Contents:
    """Reads all of it."""
    digest, blocks = hashlib.sha256(), [np.zeros(0, dtype=np.int64)]
    for keys, vectors in engine.scan(collection):
        rows = np.empty(len(keys), dtype=[("key", "<i8"), ("vector", "<f4", vectors.shape[1:])])
        rows["key"], rows["vector"] = keys, vectors
        digest.update(rows.tobytes())  # row by row, so that it does not matter where a block ends
        blocks.append(keys)
    return Contents(np.concatenate(blocks), digest.hexdigest())
