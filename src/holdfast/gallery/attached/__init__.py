"""Read-only access to a vector store that another system fills."""

from holdfast.core.errors import HoldfastError, unknown_name
from holdfast.gallery.attached.postgres_table import PostgresSource
from holdfast.gallery.attached.qdrant_collection import QdrantSource
from holdfast.gallery.attached.source import POSTGRES, QDRANT, Address, AttachedSource
from holdfast.vectors import FeatureSet, feature_set


def open_source(address: Address) -> AttachedSource:
    """Connect for reading only, and check that table and columns exist."""
    scheme = address.url.partition(":")[0]
    if scheme in POSTGRES:
        return PostgresSource(address)
    if scheme in QDRANT:
        return QdrantSource(address)
    raise unknown_name("kind of store", scheme, ("postgresql://...", "http(s)://...", "qdrant:FOLDER"))


def stored_sample(address: Address, count: int | None = None, seed: int = 0) -> FeatureSet:
    """Stored vectors as a feature set, for ``check`` and ``bridge``, with ids and, if ``address.label`` is set, labels.

    count: number of random vectors; None for all.
    seed: the same seed gives the same vectors.
    """
    if count is not None and count < 1:
        raise HoldfastError(f"sample must be at least 1, got {count}")
    source = open_source(address)
    try:
        ids, vectors, labels = source.sample(count, seed)
    finally:
        source.close()
    return feature_set(source.name, vectors, labels, ids)
