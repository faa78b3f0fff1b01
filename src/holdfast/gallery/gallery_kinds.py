"""The calls that galleries share, whatever stores their vectors and whichever process has them open."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike

from holdfast.core.errors import HoldfastError
from holdfast.gallery.gallery_items import Hit, Item
from holdfast.gallery.gallery_versions import VectorSizes, Version
from holdfast.gallery.vector_sources import VectorSource

if TYPE_CHECKING:
    from holdfast.embedders.image_encoder import ImageEncoder
    from holdfast.embedders.model_inputs import ImageLike

AUTO = "auto"
"""The bridge that held-out pairs show to be best, or none."""
MOST_PAIRS = 2000
"""Items of each older version that a bridge is fitted and measured on by default."""

RegisterProgress = Callable[[str, int, int], None]
"""Called with what is being done, how much of it is done, and how much there is."""


class SearchableGallery(Protocol):
    """Every gallery: ``Gallery``, ``AttachedGallery``, and the client of a gallery that another process serves."""

    @property
    def read_only(self) -> str | None:
        """Why nothing can be written and what to do instead; None if the gallery can be written to."""

    def register(
        self,
        model: str | Path | None = None,
        *,
        force: bool = False,
        bridge: str = AUTO,
        bridge_pairs: int = MOST_PAIRS,
        new_vectors: VectorSource | None = None,
        old_vectors: VectorSource | None = None,
        progress: RegisterProgress = lambda stage, done, total: None,
    ) -> Version:
        """Make a model, or vectors alone, the newest version. See ``Gallery.register``."""

    def search(
        self,
        image: str | Path | None = None,
        *,
        vector: ArrayLike | None = None,
        id: str | None = None,
        k: int = 10,
        filter: Mapping[str, Any] | None = None,
        indexed_by: Collection[int] | None = None,
        exact: bool = False,
        offset: int = 0,
    ) -> Sequence[Hit]:
        """The ``k`` items nearest to an image, a vector or a stored item, best first; see ``Gallery.search``."""

    def versions(self) -> list[Version]:
        """All versions, oldest first."""

    def stats(self) -> dict[str, Any]:
        """Counts of items and vectors by version, and the size on disk."""

    def __enter__(self) -> Self: ...

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None: ...


@runtime_checkable
class WritableGallery(SearchableGallery, Protocol):
    """A gallery that stores its own items; ``writable`` checks for it."""

    def add(
        self,
        items: Iterable[Item],
        *,
        version: int | None = None,
        refused: Callable[[Item, HoldfastError], None],
        progress: Callable[[int], None] = lambda done: None,
        replaced: Callable[[int], None] = lambda count: None,
    ) -> int:
        """Store items; how many were stored. See ``Gallery.add``."""

    def delete(self, ids: Sequence[str]) -> list[str]:
        """Remove items; the ids that existed."""

    def vector_sizes(self, version: int) -> VectorSizes:
        """The sizes of vectors that can be added to a version."""


class OpenGallery(SearchableGallery, Protocol):
    """A gallery that is open in this process, as the service needs it."""

    @property
    def folder(self) -> Path:
        """The gallery's folder."""

    @property
    def models(self) -> "QueryModels":
        """The models that embed queries."""

    def search(
        self,
        image: "ImageLike | None" = None,
        *,
        vector: ArrayLike | None = None,
        id: str | None = None,
        k: int = 10,
        filter: Mapping[str, Any] | None = None,
        version: int | None = None,
        indexed_by: int | Collection[int] | None = None,
        exact: bool = False,
        offset: int = 0,
    ) -> Sequence[Hit]:
        """As ``SearchableGallery.search``; also by a vector.

        image, vector, id: the query, one of the three.
        k, offset: number of hits, after the first ``offset``.
        filter, indexed_by: only items with these fields, and of these versions.
        version: the version of the query; default the newest.
        exact: compare every vector.
        """

    def get(self, ids: Sequence[str]) -> dict[str, dict[str, Any]]:
        """Version, label, metadata and path of those ids that are stored."""

    def newest(self) -> Version:
        """The version that embeds queries."""

    def close(self) -> None:
        """Close files and connections."""


class QueryModels(Protocol):
    """The models of an open gallery."""

    def newest(self) -> Version:
        """The version that embeds queries."""

    def encoder(self, version: Version) -> "ImageEncoder":
        """The model of a version, loaded."""

    def image_vectors(self, images: np.ndarray, version: Version, encoder: "ImageEncoder") -> np.ndarray:
        """Prepared images (N x H x W x C) as query vectors, N x dim or, compact, N x stored_dim."""


def writable(gallery: SearchableGallery) -> WritableGallery:
    """The same gallery, typed as one that can be written to; refused if it is read-only."""
    if not isinstance(gallery, WritableGallery):
        raise HoldfastError(str(gallery.read_only))
    return gallery
