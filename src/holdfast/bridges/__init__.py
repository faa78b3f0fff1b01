"""Bridges: small maps that carry a new model's queries into an old model's space. No stored vector is changed."""

from holdfast.bridges.bridge import Bridge
from holdfast.bridges.choice import BRIDGES, NONE, Candidate, Evidence
from holdfast.bridges.export import export_bridge
from holdfast.bridges.index_side import IndexMap
from holdfast.bridges.maps import QueryMap
from holdfast.bridges.pairs import Pairs, read_pairs
from holdfast.bridges.score_scale import ScoreScale, measure_scale

__all__ = [
    "BRIDGES",
    "NONE",
    "Bridge",
    "Candidate",
    "Evidence",
    "IndexMap",
    "Pairs",
    "QueryMap",
    "ScoreScale",
    "export_bridge",
    "measure_scale",
    "read_pairs",
]
