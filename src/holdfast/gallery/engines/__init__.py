"""The engines that can store a gallery's vectors, by URL scheme."""

from collections.abc import Callable
from pathlib import Path
from typing import Literal, get_args

from holdfast.core.errors import HoldfastError, unknown_name
from holdfast.gallery.engines.embedded_engine import EdgeEngine
from holdfast.gallery.engines.engine import EMBEDDED, Engine, EngineAddress
from holdfast.gallery.engines.postgres_engine import PostgresEngine

Mode = Literal["hnsw", "exact"]
"""hnsw: search an index, and compare vectors that are not indexed yet one by one; exact: compare all in float32."""

EngineFactory = Callable[[EngineAddress, Path, bool], Engine]


def _postgres(address: EngineAddress, folder: Path, indexed: bool) -> Engine:
    return PostgresEngine(address.url, address.namespace, indexed=indexed)


ENGINES: dict[str, EngineFactory] = {
    EMBEDDED: lambda address, folder, indexed: EdgeEngine(folder, indexed=indexed),
    "postgresql": _postgres,
    "postgres": _postgres,
}
"""By URL scheme: a function of (address, the gallery's folder for vectors, whether to index)."""


def open_engine(address: EngineAddress, folder: Path, mode: str) -> Engine:
    """Open the engine at an address with the collections that it holds.

    folder: where the embedded engine stores its files.
    mode: see ``Mode``.
    """
    scheme, colon, _ = address.url.partition(":")
    if scheme == EMBEDDED and colon:
        raise HoldfastError(f"engine {address.url!r}: the embedded engine has no address; write {EMBEDDED}")
    if scheme not in ENGINES:
        raise unknown_name("gallery engine", scheme, ENGINES)
    if mode not in get_args(Mode):
        raise HoldfastError(f"unknown gallery mode {mode!r}; known: {', '.join(get_args(Mode))}")
    return ENGINES[scheme](address, folder, mode == "hnsw")
