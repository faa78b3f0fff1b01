"""The engines a gallery can be created on, by name."""

from collections.abc import Callable
from pathlib import Path
from typing import Literal, get_args

from holdfast.errors import HoldfastError, unknown_name
from holdfast.gallery.engines.embedded import EdgeEngine
from holdfast.gallery.engines.postgres import PostgresEngine
from holdfast.gallery.engines.protocol import EMBEDDED, Engine, Place
from holdfast.gallery.engines.qdrant import QdrantEngine, connected

Mode = Literal["hnsw", "exact"]
"""hnsw: an index, and one by one what it does not hold yet; exact: every vector is compared, in float32."""

Maker = Callable[[Place, Path, bool], Engine]


def _postgres(place: Place, folder: Path, indexed: bool) -> Engine:
    return PostgresEngine(place.url, place.namespace, indexed=indexed)


def _qdrant(place: Place, folder: Path, indexed: bool) -> Engine:
    return QdrantEngine(connected(place.url), place, indexed=indexed)


ENGINES: dict[str, Maker] = {
    EMBEDDED: lambda place, folder, indexed: EdgeEngine(folder, indexed=indexed),
    "postgresql": _postgres,
    "postgres": _postgres,
    "http": _qdrant,
    "https": _qdrant,
}
"""By what comes before the first colon: (where, the gallery's folder for vectors, with an index?)."""


def open_engine(where: str | Place, folder: Path, mode: str) -> Engine:
    """The engine of this address; collections that it holds already are there at once."""
    place = Place(where) if isinstance(where, str) else where
    scheme = place.url.partition(":")[0]
    if scheme not in ENGINES:
        raise unknown_name("gallery engine", scheme, ENGINES)
    if mode not in get_args(Mode):
        raise HoldfastError(f"unknown gallery mode {mode!r}; known: {', '.join(get_args(Mode))}")
    return ENGINES[scheme](place, folder, mode == "hnsw")
