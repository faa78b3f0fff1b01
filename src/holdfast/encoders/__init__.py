"""Networks, and the encoder that wraps one.

Embeddings once computed: extract them, keep them.
"""

from holdfast.encoders.backbones import BACKBONES, PREFIXES, backbone_builder, build_backbone, rebuild_backbone
from holdfast.encoders.compact import carried_query, compact_basis, compacted
from holdfast.encoders.encoder import Encoder
from holdfast.encoders.extract import extract
from holdfast.encoders.feature_store import FeatureStore, ModelFeatures, read_space_maps
from holdfast.encoders.preprocess import Preprocess, VectorInput
from holdfast.encoders.weights import load_weights

__all__ = [
    "BACKBONES",
    "PREFIXES",
    "Encoder",
    "FeatureStore",
    "ModelFeatures",
    "Preprocess",
    "VectorInput",
    "backbone_builder",
    "build_backbone",
    "carried_query",
    "compact_basis",
    "compacted",
    "extract",
    "load_weights",
    "read_space_maps",
    "rebuild_backbone",
]
