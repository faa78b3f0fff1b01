"""Networks, the encoder that wraps one, and the features it computes: extracted, compacted, stored."""

from holdfast.embedders.model_folder import Readout
from holdfast.train.encoders.backbones import BACKBONES, PREFIXES, backbone_builder, build_backbone, rebuild_backbone
from holdfast.train.encoders.compact import change_basis, compact_basis, to_compact
from holdfast.train.encoders.encoder import Encoder
from holdfast.train.encoders.extract import extract
from holdfast.train.encoders.feature_store import FeatureStore, ModelFeatures, read_space_maps
from holdfast.train.encoders.preprocess import Input, Preprocess, VectorInput
from holdfast.train.encoders.weights import load_weights

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
