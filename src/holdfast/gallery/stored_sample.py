"""Vectors of somebody else's store as a feature set, for ``check`` and ``adopt``."""

from holdfast.checking import FeatureSet, feature_set
from holdfast.errors import HoldfastError
from holdfast.gallery.attached_source import Address, open_source


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
