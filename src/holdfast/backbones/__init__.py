"""Networks, and the encoder that wraps one."""

from holdfast.backbones.encoder import Encoder
from holdfast.backbones.preprocess import Preprocess
from holdfast.backbones.table import BACKBONES, PREFIXES, backbone_builder, build_backbone, rebuild_backbone

__all__ = [
    "BACKBONES",
    "PREFIXES",
    "Encoder",
    "Preprocess",
    "backbone_builder",
    "build_backbone",
    "rebuild_backbone",
]
