"""Embeddings once computed: extract them, keep them."""

from holdfast.features.extract import extract
from holdfast.features.store import FeatureStore, ModelFeatures

__all__ = ["FeatureStore", "ModelFeatures", "extract"]
