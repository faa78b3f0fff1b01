"""The engines a gallery can be created on, by name."""

from collections.abc import Callable
from pathlib import Path
from typing import Literal, get_args

from holdfast.errors import HoldfastError, unknown_name
from holdfast.gallery.edge import EdgeEngine
from holdfast.gallery.engine import Engine

Mode = Literal["hnsw", "exact"]
"""hnsw: an index, and one by one what it does not hold yet; exact: every vector is compared, in float32."""

ENGINES: dict[str, Callable[[str, Path, bool], Engine]] = {
    "embedded": lambda name, folder, indexed: EdgeEngine(folder, indexed=indexed),
}
"""By what comes before the first colon: (the whole name, the gallery's folder for vectors, with an index?)."""


def open_engine(name: str, folder: Path, mode: str) -> Engine:
    """The engine called ``name``; collections that it holds already are there at once."""
    scheme = name.partition(":")[0]
    if scheme not in ENGINES:
        raise unknown_name("gallery engine", scheme, ENGINES)
    if mode not in get_args(Mode):
        raise HoldfastError(f"unknown gallery mode {mode!r}; known: {', '.join(get_args(Mode))}")
    return ENGINES[scheme](name, folder, mode == "hnsw")
