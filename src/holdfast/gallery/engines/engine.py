"""The interface of a gallery's vector store, its address, and an engine that can be exchanged while in use.

A store has one collection per model version. Keys are whole numbers.
"""

import re
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeVar
from urllib.parse import parse_qsl, urlsplit

import numpy as np

from holdfast.core.errors import HoldfastError
from holdfast.gallery.filters import Filter, Value


class EngineHit(NamedTuple):
    """One stored vector that a search found, and its inner product with the query."""

    key: int
    score: float


class Engine(Protocol):
    """Vectors (float32) in named collections, each under a key of 63 bits, with plain fields to filter by.

    Writes are on disk when the call returns, and survive the end of the process. Any thread may search while another
    one writes; one thread writes at a time. New keys are larger than all earlier ones.

    parallel: whether searches of several threads run at the same time; if so, all versions are searched at once.
    """

    @property
    def parallel(self) -> bool: ...

    def create(self, collection: str, dim: int) -> None:
        """Create an empty collection for vectors of ``dim`` numbers."""

    def collections(self) -> list[str]:
        """The names of all collections."""

    def upsert(
        self, collection: str, keys: Sequence[int], vectors: np.ndarray, fields: Sequence[Mapping[str, Value]]
    ) -> None:
        """Store vectors (N x dim); an existing key is replaced."""

    def delete(self, collection: str, keys: Sequence[int]) -> None:
        """Remove these keys; unknown keys are ignored."""

    def search(
        self,
        collection: str,
        query: np.ndarray,
        k: int,
        where: Filter | None = None,
        *,
        exact: bool = False,
        share: float = 1.0,
    ) -> list[EngineHit]:
        """The ``k`` vectors with the largest inner product, best first, among those with fields that match ``where``.

        Scores include the length of the query, because scores of several collections are merged: a store that
        normalises the query multiplies the scores by that length.

        exact: compare all vectors in float32. Equal scores are then ordered by key, so that a search for fewer vectors
            finds the first of a search for more.
        share: of the vectors of all collections that are searched for the best ``k``, the share that this one holds;
            see ``index_candidates``.
        """

    def fetch(self, collection: str, keys: Sequence[int]) -> dict[int, np.ndarray]:
        """The vectors of those keys that exist."""

    def scan(self, collection: str, *, block: int = 1000, after: int = -1) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """All keys above ``after`` in ascending order, as (keys, vectors) of at most ``block`` at a time."""

    def count(self, collection: str) -> int:
        """How many keys the collection holds."""

    def drop(self, collection: str) -> None:
        """Remove a collection and its vectors."""

    def build_index(self, collection: str) -> bool:
        """Index the vectors that no index holds yet; whether there were any."""

    def unindexed(self, collection: str) -> int:
        """How many vectors no index holds yet; a search compares them one by one."""

    def claim(self, generation: str) -> str | None:
        """The generation of all vectors. The next write stores ``generation`` instead. None: nothing is stored.

        It tells which of several copies of a catalogue wrote last. An engine that stores none returns None.
        """

    def close(self) -> None:
        """Close all files and connections."""


FEWEST_CANDIDATES = 0.2
"""The least part of the candidates that a small collection is searched with."""


def index_candidates(most: int, k: int, share: float) -> int:
    """How many candidates are kept while one of several collections is searched for the best ``k`` of all.

    A collection that holds a part of the vectors has a part of the best only, so fewer candidates find them, down to a
    fifth: with five collections of 200,000 vectors recall@10 is above 0.98 (``bench/scale.py``).

    most: the number if there is one collection.
    share: of all vectors, those that the collection holds.
    """
    return max(k, round(most * min(1.0, max(share, FEWEST_CANDIDATES))))


MOST_TIED = 2**16
"""Vectors that are read to order those with the score of the last hit."""

Scored = TypeVar("Scored")


def with_ties(search: Callable[[int], list[Scored]], k: int, score: Callable[[Scored], float]) -> list[Scored]:
    """The best ``k`` of an exact search, all others with the score of the last of them, and perhaps more.

    A store returns any of the vectors with an equal score. Pages of hits fit together only if the choice is always the
    same, so the caller orders them and takes the first ``k``.

    search: the best so many vectors, best first. At most ``MOST_TIED`` are asked for, or ``k`` + 1.

    >>> with_ties(lambda count: [3, 2, 2, 2, 2, 1, 1, 1, 1][:count], 2, float)
    [3, 2, 2, 2, 2, 1, 1, 1, 1]
    """
    asked = k + 1
    while True:
        found = search(asked)
        if len(found) < asked or asked >= MOST_TIED or score(found[-1]) < score(found[k - 1]):
            return found
        asked = min(4 * asked, MOST_TIED)


EMBEDDED = "embedded"
_PLAIN = re.compile(r"[a-z][a-z0-9_]{0,39}")
SECRETS = ("password", "sslpassword", "api_key", "api-key", "token")


@dataclass(frozen=True)
class EngineAddress:
    """Where a gallery's vectors are stored.

    url: ``embedded``, or a server's address without a password.
    namespace: prefix of the names of everything that the gallery stores on a server.
    """

    url: str = EMBEDDED
    namespace: str = ""


def new_engine_address(url: str, namespace: str | None = None) -> EngineAddress:
    """The address of a gallery that is about to be stored there.

    url: ``embedded`` or ``postgresql://...``. A URL with a password is refused: it
    would be stored in the catalogue and shown by ``stats`` and in the list of processes. Clients read passwords from
    the environment or from a file.
    namespace: for servers; default: a random name.
    """
    if url == EMBEDDED:
        if namespace is not None:
            raise HoldfastError("a namespace is for an engine on a server, not for the embedded one")
        return EngineAddress(url)
    if url.partition(":")[0] == EMBEDDED:
        raise HoldfastError(f"engine {url!r}: the embedded engine has no address; write {EMBEDDED}")
    _check_no_secret(url)
    chosen = f"holdfast_{secrets.token_hex(6)}" if namespace is None else namespace
    return EngineAddress(url, plain_name(chosen))


def plain_name(name: str) -> str:
    """The name, if every server accepts it without quoting in a statement and in an address."""
    if not _PLAIN.fullmatch(name):
        raise HoldfastError(f"name {name!r}: use at most 40 small letters, digits and underscores, a letter first")
    return name


def _check_no_secret(url: str) -> None:
    scheme = url.partition(":")[0]
    try:
        parts = urlsplit(url)
        options = {name.lower() for name, _ in parse_qsl(parts.query, keep_blank_values=True)}
        secret = bool(parts.password) or bool(options & set(SECRETS))
    except ValueError:
        raise HoldfastError(f"the address after {scheme}: cannot be read as a URL") from None
    if secret:
        instead = "PGPASSWORD, PGPASSFILE or ~/.pgpass"
        raise HoldfastError(f"a password in the address {scheme}://... would be kept in plain sight; use {instead}")
