"""Networks, and the encoder that wraps one."""

from holdfast.backbones.encoder import Encoder
from holdfast.backbones.given_weights import load_weights
from holdfast.backbones.preprocess import Preprocess
from holdfast.backbones.table import BACKBONES, PREFIXES, backbone_builder, build_backbone, rebuild_backbone
from holdfast.backbones.vector_input import VectorInput

__all__ = [
    "BACKBONES",
    "PREFIXES",
    "Encoder",
    "Preprocess",
    "VectorInput",
    "backbone_builder",
    "build_backbone",
    "load_weights",
    "rebuild_backbone",
]
