"""A store that somebody else fills: what is asked of it, and how one is opened. Nothing here can write.

Vectors of somebody else's store as a feature set, for ``check`` and ``adopt``.
"""

from dataclasses import dataclass
from typing import NamedTuple, Protocol
from urllib.parse import unquote, urlsplit, urlunsplit

import numpy as np

from holdfast.errors import HoldfastError, unknown_name
from holdfast.evaluation import FeatureSet, feature_set
from holdfast.gallery.engines.protocol import SECRETS

POSTGRES = ("postgresql", "postgres")
QDRANT = ("qdrant", "http", "https")


class Nearby(NamedTuple):
    """One stored vector: its id as text, the cosine of query and vector, its label where there are labels."""

    id: str
    cosine: float
    label: str | None


class Sample(NamedTuple):
    """Some stored vectors (n x dim, float32) with ids and, where there are labels, these."""

    ids: np.ndarray
    vectors: np.ndarray
    labels: np.ndarray | None


class AttachedSource(Protocol):
    """Vectors of ``dim`` numbers in somebody else's table or collection, opened for reading only."""

    name: str
    dim: int
    index: str
    """What a search that need not be exact uses: words for people."""

    def search(self, query: np.ndarray, k: int, *, exact: bool = False) -> list[Nearby]:
        """The ``k`` stored vectors with the largest cosine, best first; equal ones by id."""

    def fetch(self, ids: list[str]) -> dict[str, np.ndarray]:
        """The vectors of those ids that are there."""

    def sample(self, count: int | None, seed: int = 0) -> Sample:
        """``count`` vectors at random, the same for one seed; None for all."""

    def count(self) -> int:
        """How many vectors there are."""

    def close(self) -> None:
        """Let go of the connection."""


@dataclass(frozen=True)
class Address:
    """Where stored vectors lie. table: the table (perhaps SCHEMA.TABLE) or collection. id, vector, label: columns.

    In Qdrant ``id`` is the points' own id ("id") or a payload field, ``vector`` the name of a vector ("" for the one
    without a name), ``label`` a payload field.
    """

    url: str
    table: str
    id: str
    vector: str
    label: str | None = None

    @property
    def shown(self) -> str:
        """The URL without its password."""
        return without_password(self.url)


def is_url(text: str) -> bool:
    """Whether ``text`` names a store rather than a file."""
    scheme, colon, _ = text.partition(":")
    return bool(colon) and scheme in (*POSTGRES, *QDRANT)


def open_source(address: Address) -> AttachedSource:
    """Connect, read-only, and see that the columns are what they are said to be."""
    scheme = address.url.partition(":")[0]
    if scheme in POSTGRES:
        from holdfast.gallery.attached.postgres import PostgresSource

        return PostgresSource(address)
    if scheme in QDRANT:
        from holdfast.gallery.attached.qdrant import QdrantSource

        return QdrantSource(address)
    raise unknown_name("kind of store", scheme, ("postgresql://...", "http(s)://...", "qdrant:FOLDER"))


def without_password(url: str) -> str:
    """The address as it may be kept and shown: no password before the host, none among its options."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return url.partition(":")[0] + ":..."
    user, at, host = parts.netloc.rpartition("@")
    if at:
        parts = parts._replace(netloc=f"{user.partition(':')[0]}@{host}")
    asked = parts.query.split("&") if parts.query else []
    kept = "&".join(one for one in asked if unquote(one.partition("=")[0]).lower() not in SECRETS)
    return url if not at and kept == parts.query else urlunsplit(parts._replace(query=kept))


def refuse_bad(vectors: np.ndarray, name: str) -> np.ndarray:
    """float32 rows; an empty answer is a mistake in the address more often than an empty store."""
    if len(vectors) == 0:
        raise HoldfastError(f"{name}: holds no vectors")
    return vectors.astype(np.float32)


def stored_sample(address: Address, count: int | None = None, seed: int = 0) -> FeatureSet:
    """``count`` stored vectors at random, all where None, with their ids and, where a label is named, labels."""
    if count is not None and count < 1:
        raise HoldfastError(f"sample must be at least 1, got {count}")
    source = open_source(address)
    try:
        ids, vectors, labels = source.sample(count, seed)
    finally:
        source.close()
    return feature_set(source.name, vectors, labels, ids)
