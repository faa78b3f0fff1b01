"""What a gallery asks of a vector store: one collection per model version, keys are whole numbers."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from holdfast.gallery.filters import Filter, Value


class Found(NamedTuple):
    """One stored vector that a search found, and its inner product with the query."""

    key: int
    score: float


class Engine(Protocol):
    """Vectors (float32) in named collections, each under a key of 63 bits, with plain fields to filter by.

    What a call has written is on disk when it returns: it survives the end of the process. Any thread may search while
    another one writes; one thread writes at a time. New keys are larger than all before them.
    """

    def create(self, collection: str, dim: int) -> None:
        """Make an empty collection for vectors of ``dim`` numbers."""

    def collections(self) -> list[str]:
        """The names of all collections there are."""

    def upsert(
        self, collection: str, keys: Sequence[int], vectors: np.ndarray, fields: Sequence[Mapping[str, Value]]
    ) -> None:
        """Store vectors (N x dim); a key that is there already is replaced."""

    def delete(self, collection: str, keys: Sequence[int]) -> None:
        """Remove these keys; those that are not there are no error."""

    def search(
        self, collection: str, query: np.ndarray, k: int, where: Filter | None = None, *, exact: bool = False
    ) -> list[Found]:
        """The ``k`` vectors with the largest inner product, best first, among those whose fields fit ``where``.

        The query keeps its length: a store that normalises it multiplies the scores by what it took away, because
        scores of several collections are merged. exact: all vectors are compared in float32, index or not.
        """

    def fetch(self, collection: str, keys: Sequence[int]) -> dict[int, np.ndarray]:
        """The vectors of those keys that are there."""

    def scan(self, collection: str, *, block: int = 1000, after: int = -1) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """All keys beyond ``after``, as (keys, vectors) of at most ``block`` at a time, by ascending key."""

    def count(self, collection: str) -> int:
        """How many keys the collection holds."""

    def drop(self, collection: str) -> None:
        """Remove a collection and all it holds."""

    def build_index(self, collection: str) -> bool:
        """Index what is not indexed yet; whether there was anything to do. Without an index this does nothing."""

    def unindexed(self, collection: str) -> int:
        """How many vectors a search has to compare one by one because no index holds them yet."""

    def close(self) -> None:
        """Let go of all files and connections."""
