"""Search all versions of a gallery, merged by scores that can be compared between versions."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from holdfast.core.errors import HoldfastError
from holdfast.gallery.engines.engine import EngineHit
from holdfast.gallery.filters import Filter, possible
from holdfast.gallery.gallery_items import Hit
from holdfast.gallery.gallery_versions import Version
from holdfast.gallery.state import GalleryState
from holdfast.gallery.version_models import VersionQuery

TRIES = 3


@dataclass(frozen=True)
class GallerySearch:
    """One search.

    vector: the query, as version ``source`` stores vectors.
    k: number of hits.
    where: filter on label and metadata; None for none.
    exact: compare every vector.
    exclude_id: an item that is left out. By id, because its key changes when it is re-embedded.
    indexed_by: only items of these versions; None for all.
    """

    vector: np.ndarray
    source: Version
    k: int
    where: Filter | None = None
    exact: bool = False
    exclude_id: str | None = None
    indexed_by: frozenset[int] | None = None


def search_versions(state: GalleryState, arguments: GallerySearch) -> list[Hit]:
    """The best items of all versions, or of ``indexed_by``, each once.

    A search could miss an item that changes its version meanwhile, so the result is discarded if any item did. After
    ``TRIES`` such searches the catalogue is locked for the few milliseconds of one search. Others may still store
    vectors and build indexes then, because only the catalogue says which version an item belongs to.
    """
    if arguments.where is not None:
        where = possible(arguments.where, state.catalogue.field_types)
        if where is None:
            return []
        arguments = replace(arguments, where=where)
    for _ in range(TRIES):
        before = state.catalogue.changes
        hits, after = _search(state, arguments)
        if after == before:
            return hits
    with state.catalogue.locked():
        return _search(state, arguments)[0]


def stored_item(state: GalleryState, id: str) -> tuple[Version, np.ndarray]:
    """Version and vector of an item."""
    before = None
    while found := state.catalogue.by_id([id]).get(id):
        # The item may get another version between look-up and fetch: then it is looked up again.
        for version in state.models.versions():
            if version.number == found.version:
                vectors = state.engine.fetch(version.collection, [found.key])
                if found.key in vectors:
                    return version, vectors[found.key]
        if before == (found.key, found.version):
            raise HoldfastError(f"item {id!r}: its vector is missing in the store; add it again, or restore a backup")
        before = (found.key, found.version)
    raise HoldfastError(f"no item {id!r} in the gallery")


def _search(state: GalleryState, arguments: GallerySearch) -> tuple[list[Hit], int]:
    """The hits, and the catalogue's count of changes when their keys were looked up."""
    among, k, source = arguments.indexed_by, arguments.k, arguments.source
    versions = [one for one in state.models.versions() if among is None or one.number in among]
    for other in versions:
        if other.number > source.number and not source.can_compare(other):
            raise HoldfastError(
                f"queries of version {source.number} cannot search items of version {other.number}; query with version "
                f"{other.number}"
            )
    versions = [one for one in versions if source.can_compare(one)]
    # All before the engine is asked: a bridge may have to be read from disk first.
    queries = state.models.queries_for(arguments.vector, source, versions)
    wanted = k + (arguments.exclude_id is not None)
    while True:
        answers = _ask_engine(state, versions, queries, replace(arguments, k=wanted))
        # The engine's scores are cosines of full features: the length of a query that was only converted is included.
        merged = [(query.scale.score(one.score), one) for query, found in zip(queries, answers) for one in found]
        merged.sort(key=lambda scored: (-scored[0], scored[1].key))
        best = merged[:wanted]
        items, changes = state.catalogue.by_key([one.key for _, one in best])
        hits = [
            items[one.key].hit(score, one.score)
            for score, one in best
            if one.key in items and items[one.key].id != arguments.exclude_id
        ]
        # Vectors that are being written or deleted belong to no item. If they displaced others, fetch more.
        if len(hits) >= k or (len(merged) <= wanted and all(len(found) < wanted for found in answers)):
            break
        wanted *= 2
    return hits[:k], changes


def _ask_engine(
    state: GalleryState, versions: Sequence[Version], queries: Sequence[VersionQuery], arguments: GallerySearch
) -> list[list[EngineHit]]:
    """The best ``arguments.k`` vectors of each version; all versions at once if the engine can."""

    counts = state.catalogue.counts() if len(versions) > 1 else {}
    total = sum(counts.get(version.number, 0) for version in versions)

    def ask(version: Version, query: VersionQuery) -> list[EngineHit]:
        k, where, exact = arguments.k, arguments.where, arguments.exact
        share = counts.get(version.number, 0) / total if total else 1.0
        return state.engine.search(version.collection, query.vector, k, where, exact=exact, share=share)

    pairs = list(zip(versions, queries, strict=True))
    if len(pairs) < 2 or not state.engine.parallel:
        return [ask(*pair) for pair in pairs]
    others = [state.search_threads.submit(ask, *pair) for pair in pairs[1:]]
    return [ask(*pairs[0]), *(other.result() for other in others)]
