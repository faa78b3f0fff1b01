"""The base of every gallery, whatever stores its vectors and whichever process has it open.

The options of searches and registrations are named, described and checked here only.
"""

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike

from holdfast.bridges import BRIDGES, NONE, Bridge
from holdfast.bridges.choice import FEWEST_PAIRS
from holdfast.core.errors import HoldfastError, unknown_name
from holdfast.gallery.gallery_items import Hit, Hits, Item
from holdfast.gallery.gallery_versions import Version
from holdfast.gallery.vector_sources import VectorSource

if TYPE_CHECKING:
    from holdfast.embedders.model_inputs import ImageLike
    from holdfast.gallery.backfill import Backfill
    from holdfast.gallery.reembed import ReembedProgress

AUTO = "auto"
"""The bridge that held-out pairs show to be best, or none."""
MOST_PAIRS = 2000
"""Items of each older version that a bridge is fitted and measured on by default."""
MOST_HITS = 10_000

RegisterProgress = Callable[[str, int, int], None]
"""Called with what is being done, how much of it is done, and how much there is."""


@dataclass(frozen=True)
class SearchQuery:
    """What is searched for: one of image, vector and id. See ``BaseGallery.search``."""

    image: "ImageLike | None" = None
    vector: ArrayLike | None = None
    id: str | None = None
    version: int | None = None

    def __post_init__(self) -> None:
        given = [name for name in ("image", "vector", "id") if getattr(self, name) is not None]
        if len(given) != 1:
            raise HoldfastError(f"search takes one of image, vector and id, not {' and '.join(given) or 'none'}")
        if self.id is not None and self.version is not None:
            raise HoldfastError("search: version is for an image or a vector; a stored item has its own version")


@dataclass(frozen=True)
class SearchOptions:
    """Which hits are wanted; the same in Python, over HTTP and on the command line. See ``BaseGallery.search``."""

    k: int = 10
    filter: Mapping[str, Any] | None = None
    indexed_by: Collection[int] | int | None = None
    exact: bool = False
    offset: int = 0

    def __post_init__(self) -> None:
        if not _is_whole(self.k) or not 1 <= self.k <= MOST_HITS:
            raise HoldfastError(f"k must be a whole number from 1 to {MOST_HITS}, got {self.k!r}")
        if not _is_whole(self.offset) or self.offset < 0:
            raise HoldfastError(f"offset must be a whole number from 0 on, got {self.offset!r}")
        if self.offset + self.k > MOST_HITS:
            raise HoldfastError(f"offset {self.offset} with k {self.k}: offset and k together are at most {MOST_HITS}")

    @property
    def all_hits(self) -> int:
        """Hits to be found: those that are left out, too."""
        return int(self.offset + self.k)

    def versions_among(self, known: Collection[int]) -> frozenset[int] | None:
        """The versions whose items are searched; None for all. Numbers not in ``known`` are refused.

        A version without items is accepted: callers that search version by version need not know which have items.
        """
        given = self.indexed_by
        if given is None:
            return None
        numbers = list(given) if isinstance(given, Iterable) and not isinstance(given, str) else [given]
        if not numbers:
            raise HoldfastError(
                "indexed_by: an empty list matches nothing; leave it out to search the items of all versions"
            )
        for number in numbers:
            if not _is_whole(number):
                raise HoldfastError(f"indexed_by takes numbers of versions, got {number!r}")
            if number not in known:
                raise unknown_name("version", str(number), known)
        return frozenset(int(number) for number in numbers)


def _is_whole(number: Any) -> bool:
    return isinstance(number, int | np.integer) and not isinstance(number, bool)


@dataclass(frozen=True)
class RegisterOptions:
    """How a model is registered. See ``BaseGallery.register``."""

    force: bool = False
    bridge: str = AUTO
    bridge_pairs: int = MOST_PAIRS
    new_vectors: VectorSource | None = None
    old_vectors: VectorSource | None = None
    progress: RegisterProgress = field(default=lambda stage, done, total: None)

    def __post_init__(self) -> None:
        if self.bridge not in (AUTO, NONE, *BRIDGES) and not Path(self.bridge).is_dir():
            raise unknown_name("kind of bridge", self.bridge, [AUTO, NONE, *BRIDGES])
        if self.bridge_pairs < FEWEST_PAIRS:
            raise HoldfastError(f"a bridge needs at least {FEWEST_PAIRS} pairs, got bridge_pairs {self.bridge_pairs}")
        if self.old_vectors is not None and self.new_vectors is None:
            raise HoldfastError("old vectors are paired by id with new vectors of the same things; give both")
        if self.bridge == NONE and self.new_vectors is not None:
            raise HoldfastError("new vectors are for fitting a bridge; give them or bridge 'none', not both")

    def ready_bridge(self, new_dim: int, old_dim: int) -> Bridge | None:
        """The bridge in the folder that ``bridge`` names; None if it names a kind. Refused: one of other sizes."""
        if self.bridge in (AUTO, NONE, *BRIDGES):
            return None
        ready = Bridge.load(self.bridge)
        if ready.dims != (new_dim, old_dim):
            sizes = f"from {ready.dims[0]} to {ready.dims[1]} numbers, and these versions store {new_dim} and {old_dim}"
            raise HoldfastError(f"{self.bridge}: a bridge {sizes}; fit it on vectors as the gallery stores them")
        return ready


class BaseGallery(ABC):
    """Every gallery: ``Gallery``, ``AttachedGallery``, and the client of a gallery that another process serves.

    A gallery that is read-only, because it searches another system's store, refuses to be written to.

    >>> from holdfast import Gallery
    >>> from holdfast.gallery.gallery_base import BaseGallery
    >>> issubclass(Gallery, BaseGallery)
    True
    """

    @property
    def read_only(self) -> str | None:
        """Why nothing can be written and what to do instead; None if the gallery can be written to."""
        return None

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
        """Make a model the newest version: it embeds new items and queries from now on.

        A bridge is fitted to each older version, on items embedded by both models. It carries queries of the new model
        into the older version's space; no stored vector is changed. Held-out items decide which kind of bridge is
        used, or none. Without enough items, queries are used as they are.

        Refused: weights that are a version already; slots or sizes that cannot be compared with an older version, if
        no bridge connects the models. If older versions hold items with labels and images, ``holdfast.check`` is run
        with the new model's queries on them; a model whose queries are shown to do worse is refused, unless the loss is
        shown to be at most one point. Bridges and checks are stored with the version. Others may search, add and delete
        meanwhile; a second ``register`` waits for the first.

        An attached gallery has one older version to bridge to, and no images: a bridge needs ``new_vectors`` of stored
        items, and the model is not checked; run ``holdfast check``.

        model: the model's folder. None for a version of vectors alone, which ``new_vectors`` are of: it has no model,
            so it is searched by vectors, is not checked, and a backfill to it takes given vectors.
        force: also register a model that the check refuses or, in an attached gallery, that no bridge connects.
        bridge: ``auto``, ``none``, a kind of ``holdfast.bridges``, such as ``rotation``, or the folder of a ready
            bridge from the new vectors to those of the newest older version.
        bridge_pairs: at most so many items of each older version are embedded to fit its bridge.
        new_vectors: the new model's vectors of some items, matched by id: a file (npz, npy, parquet) or a FeatureSet.
            Default: the new model embeds items that have an image.
        old_vectors: the vectors of the newest older version of other things, such as queries of a log or any texts or
            images of the domain. Those that ``new_vectors`` has, too, are pairs like the items.
        progress: called with what is being done, how much of it is done, and how much there is.
        """
        return self._register(model, RegisterOptions(force, bridge, bridge_pairs, new_vectors, old_vectors, progress))

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
    ) -> Hits:
        """The ``k`` items of all versions nearest to an image, a vector or an item, best first.

        Within a version items are ordered by cosine. Scores of versions with a bridge are put on the scale of the
        query's version, so that hits of all versions can be merged; see ``Hit``. Equal scores are ordered by age, the
        older item first; in an attached gallery by id. Give one of image, vector and id.

        image: a path, a PIL image or an array.
        vector: a feature by ``version``, full or compact, of any length. In an attached gallery a full feature, or for
            version 0 a vector as the store holds them.
        id: a stored item, which is itself left out.
        k: number of hits, at most 10,000.
        filter: conditions on label and metadata; see ``parse_filter``. In an attached gallery on the columns of the
            table with text, numbers or booleans (``column.member`` in a jsonb column), or the payload of the
            collection; ``label`` is the column or field that the gallery was attached with.
        version: the version of the image or vector; default the newest. A stored item has its own.
        indexed_by: only items that this version, or one of these versions, embedded.
        exact: compare every vector, without an index.
        offset: leave out so many of the best hits, for the next page of results; ``offset + k`` is at most 10,000.
            Pages fit together while the gallery is unchanged. If an index is used, hits at the ends of pages may
            differ unless ``exact`` is set.
        """
        query = SearchQuery(image, vector, id, version)
        return Hits(self._search(query, SearchOptions(k, filter, indexed_by, exact, offset)))

    def add(
        self,
        items: Iterable[Item],
        *,
        version: int | None = None,
        refused: Callable[[Item, HoldfastError], None] | None = None,
        progress: Callable[[int], None] = lambda done: None,
        replaced: Callable[[int], None] = lambda count: None,
    ) -> int:
        """Store items; how many were stored. See ``Gallery.add``."""
        raise HoldfastError(str(self.read_only))

    def delete(self, ids: Iterable[str]) -> list[str]:
        """Remove items; the ids that existed. Unknown ids are ignored."""
        raise HoldfastError(str(self.read_only))

    def backfill(
        self,
        to: int | None = None,
        *,
        rate: float | None = None,
        limit: int | None = None,
        vectors: VectorSource | None = None,
        stop: threading.Event | None = None,
        progress: "Callable[[Backfill], None]" = lambda state: None,
    ) -> "Backfill":
        """Re-embed items of older versions. See ``Gallery.backfill``."""
        raise HoldfastError(str(self.read_only))

    def rollback(
        self,
        *,
        drop: bool = False,
        cancel: bool = False,
        rate: float | None = None,
        stop: threading.Event | None = None,
        progress: "Callable[[ReembedProgress], None]" = lambda state: None,
    ) -> dict[str, Any]:
        """Remove the newest version. See ``Gallery.rollback``."""
        raise HoldfastError(str(self.read_only))

    @abstractmethod
    def _register(self, model: str | Path | None, options: RegisterOptions) -> Version: ...

    @abstractmethod
    def _search(self, query: SearchQuery, options: SearchOptions) -> Sequence[Hit]: ...

    @abstractmethod
    def versions(self) -> list[Version]:
        """All versions, oldest first, including one that a rollback is removing."""

    @abstractmethod
    def stats(self) -> dict[str, Any]:
        """Numbers of items and vectors by version with its bridges, and the size on disk in bytes."""

    def close(self) -> None:  # noqa: B027 (the client of a served gallery has nothing to close)
        """Close all files and connections."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()
