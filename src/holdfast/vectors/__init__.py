"""Vectors with ids and labels, the files they are read from, and exact nearest neighbours."""

from holdfast.vectors.feature_files import write_features
from holdfast.vectors.feature_set import FeatureSet, feature_set
from holdfast.vectors.neighbours import Neighbours, merge_neighbours, nearest

__all__ = ["FeatureSet", "Neighbours", "feature_set", "merge_neighbours", "nearest", "write_features"]
