"""Networks, the encoder that wraps one, and the features it computes: extracted, compacted, stored."""

from holdfast.encoders.backbones import BACKBONES, PREFIXES, backbone_builder, build_backbone, rebuild_backbone
from holdfast.encoders.compact import change_basis, compact_basis, to_compact
from holdfast.encoders.encoder import Encoder, Readout
from holdfast.encoders.extract import extract
from holdfast.encoders.feature_store import FeatureStore, ModelFeatures, read_space_maps
from holdfast.encoders.preprocess import Input, Preprocess, VectorInput
from holdfast.encoders.weights import load_weights

__all__ = [
    "BACKBONES",
    "PREFIXES",
    "Encoder",
    "FeatureStore",
    "Input",
    "ModelFeatures",
    "Preprocess",
    "Readout",
    "VectorInput",
    "backbone_builder",
    "build_backbone",
    "change_basis",
    "compact_basis",
    "extract",
    "load_weights",
    "read_space_maps",
    "rebuild_backbone",
    "to_compact",
]
