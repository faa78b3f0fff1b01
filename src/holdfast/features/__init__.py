"""Embeddings once computed: extract them, keep them."""

from holdfast.features.compact import carried_query, compact_basis, compacted
from holdfast.features.extract import extract
from holdfast.features.maps import read_space_maps
from holdfast.features.store import FeatureStore, ModelFeatures

__all__ = ["FeatureStore", "ModelFeatures", "carried_query", "compact_basis", "compacted", "extract", "read_space_maps"]
