"""The interface of a vector store that another system fills, and its address. Nothing here writes."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol
from urllib.parse import unquote, urlsplit, urlunsplit

import numpy as np

from holdfast.core.errors import HoldfastError
from holdfast.gallery.engines.engine import SECRETS
from holdfast.gallery.filters import Filter

POSTGRES = ("postgresql", "postgres")
QDRANT = ("qdrant", "http", "https")


class Neighbour(NamedTuple):
    """One stored vector: its id as text, the cosine of query and vector, and its label, if there are labels."""

    id: str
    cosine: float
    label: str | None


class Sample(NamedTuple):
    """Stored vectors (n x dim, float32) with ids and, if there are any, labels."""

    ids: np.ndarray
    vectors: np.ndarray
    labels: np.ndarray | None


class AttachedSource(Protocol):
    """Vectors of ``dim`` numbers in another system's table or collection, opened for reading only."""

    name: str
    dim: int
    index: str
    """Description of the index that searches use unless they are exact."""

    @property
    def fields(self) -> list[str]:
        """Names that filters may use; a store without a fixed schema may have others."""

    def parse_filter(self, given: Mapping[str, Any] | None) -> Filter | None:
        """A filter on the store's fields, as ``holdfast.gallery.filters.parse_filter``; ``label`` is the address's."""

    def search(self, query: np.ndarray, k: int, where: Filter | None = None, *, exact: bool = False) -> list[Neighbour]:
        """The ``k`` stored vectors that match ``where`` with the largest cosine, best first; equal ones by id.

        Any number of threads may call it.
        """

    def fetch(self, ids: list[str]) -> dict[str, np.ndarray]:
        """The vectors of those ids that exist."""

    def labels(self, ids: list[str]) -> dict[str, str | None]:
        """The labels of those ids that exist; None for one without a label."""

    def sample(self, count: int | None, seed: int = 0) -> Sample:
        """``count`` random vectors, the same for the same seed; None for all."""

    def count(self, *, labelled: bool = False) -> int:
        """Number of stored vectors, or of those with a label."""

    def close(self) -> None:
        """Close the connection."""


@dataclass(frozen=True)
class Address:
    """Address of vectors in another system's store.

    url: ``postgresql://...``, ``http(s)://...`` of Qdrant, or ``qdrant:FOLDER``.
    table: the table (or SCHEMA.TABLE), or Qdrant's collection.
    id: column of ids; in Qdrant "id" for the points' own ids, or a payload field.
    vector: column of vectors; in Qdrant the name of a vector, "" for the unnamed one.
    label: column of classes, in Qdrant a payload field; None for none.

    >>> from holdfast.gallery import Address
    >>> address = Address("postgresql://host/shop", table="items", id="id", vector="embedding")
    >>> address.table, address.label
    ('items', None)
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


def local_folder(url: str) -> Path | None:
    """The folder of ``qdrant:FOLDER``; None for a server's address."""
    rest = url.removeprefix("qdrant:")
    return None if rest == url or rest.startswith(("http://", "https://")) else Path(rest)


def with_absolute_folder(url: str) -> str:
    """The same address for a process with another working directory."""
    folder = local_folder(url)
    return url if folder is None else f"qdrant:{folder.absolute()}"


def without_password(url: str) -> str:
    """The URL without a password before the host or among its options, as it may be stored and shown."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return url.partition(":")[0] + ":..."
    user, at, host = parts.netloc.rpartition("@")
    if at:
        parts = parts._replace(netloc=f"{user.partition(':')[0]}@{host}")
    options = parts.query.split("&") if parts.query else []
    kept = "&".join(one for one in options if unquote(one.partition("=")[0]).lower() not in SECRETS)
    return url if not at and kept == parts.query else urlunsplit(parts._replace(query=kept))


def float32_rows(vectors: np.ndarray, name: str) -> np.ndarray:
    """The rows as float32; no rows are refused, because the address is then probably wrong."""
    if len(vectors) == 0:
        raise HoldfastError(f"{name}: holds no vectors")
    return vectors.astype(np.float32)
