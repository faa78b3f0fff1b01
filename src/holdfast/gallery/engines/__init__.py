"""The engines that can store a gallery's vectors, by URL scheme."""

from collections.abc import Callable
from pathlib import Path

from holdfast.core.errors import HoldfastError, unknown_name
from holdfast.gallery.engines.embedded_engine import EdgeEngine
from holdfast.gallery.engines.engine import EMBEDDED, Engine, EngineAddress
from holdfast.gallery.engines.postgres_engine import PostgresEngine

EngineFactory = Callable[[EngineAddress, Path], Engine]


def _postgres(address: EngineAddress, folder: Path) -> Engine:
    return PostgresEngine(address.url, address.namespace)


ENGINES: dict[str, EngineFactory] = {
    EMBEDDED: lambda address, folder: EdgeEngine(folder),
    "postgresql": _postgres,
    "postgres": _postgres,
}
"""By URL scheme: a function of (address, the gallery's folder for vectors)."""


def open_engine(address: EngineAddress, folder: Path) -> Engine:
    """Open the engine at an address with the collections that it holds.

    folder: where the embedded engine stores its files.
    """
    scheme, colon, _ = address.url.partition(":")
    if scheme == EMBEDDED and colon:
        raise HoldfastError(f"engine {address.url!r}: the embedded engine has no address; write {EMBEDDED}")
    if scheme not in ENGINES:
        raise unknown_name("gallery engine", scheme, ENGINES)
    return ENGINES[scheme](address, folder)
