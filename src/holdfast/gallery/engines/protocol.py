"""What a gallery asks of a vector store: one collection per model version, keys are whole numbers.

Where a gallery's vectors are: an engine's address, and what sets the gallery apart from others on a server.
"""

import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple, Protocol
from urllib.parse import parse_qsl, urlsplit

import numpy as np

from holdfast.errors import HoldfastError
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


EMBEDDED = "embedded"
_PLAIN = re.compile(r"[a-z][a-z0-9_]{0,39}")
SECRETS = ("password", "sslpassword", "api_key", "api-key", "token")


@dataclass(frozen=True)
class Place:
    """url: ``embedded``, or a server's address without a password. namespace: begins the names of all that is kept
    there. shards, replicas: what a Qdrant cluster is asked to make of each collection."""

    url: str = EMBEDDED
    namespace: str = ""
    shards: int = 1
    replicas: int = 1

    @property
    def options(self) -> dict[str, Any]:
        """All but the address, as the catalogue keeps it."""
        return {name: value for name, value in asdict(self).items() if name != "url"}


def new_place(
    url: str, *, namespace: str | None = None, shards: int | None = None, replicas: int | None = None
) -> Place:
    """A place for a gallery that is about to be kept there; a namespace is made up where none is given.

    Refused: a password in the address. It would be kept in the catalogue, shown by ``stats`` and by the system's list
    of processes; servers' clients take it from the environment or from a file.
    """
    if url.partition(":")[0] == EMBEDDED:
        if (namespace, shards, replicas) != (None, None, None):
            raise HoldfastError("namespace, shards and replicas are for engines on a server, not for the embedded one")
        return Place(url)
    _check_no_secret(url)
    for name, value in (("shards", shards), ("replicas", replicas)):
        if value is not None and not url.startswith("http"):
            raise HoldfastError(f"{name} are for a Qdrant cluster (http:// or https://)")
        if value is not None and value < 1:
            raise HoldfastError(f"{name} must be at least 1, got {value}")
    chosen = f"holdfast_{secrets.token_hex(6)}" if namespace is None else namespace
    return Place(url, plain_name(chosen), shards or 1, replicas or 1)


def plain_name(name: str) -> str:
    """A name that every server takes as it is, in a statement or in an address."""
    if not _PLAIN.fullmatch(name):
        raise HoldfastError(f"name {name!r}: use at most 40 small letters, digits and underscores, a letter first")
    return name


def _check_no_secret(url: str) -> None:
    scheme = url.partition(":")[0]
    try:
        parts = urlsplit(url)
        asked = {name.lower() for name, _ in parse_qsl(parts.query, keep_blank_values=True)}
        secret = bool(parts.password) or bool(asked & set(SECRETS))
    except ValueError:
        raise HoldfastError(f"the address after {scheme}: cannot be read as a URL") from None
    if secret:
        instead = "QDRANT_API_KEY" if scheme.startswith("http") else "PGPASSWORD, PGPASSFILE or ~/.pgpass"
        raise HoldfastError(f"a password in the address {scheme}://... would be kept in plain sight; use {instead}")
