"""Holdfast: embedding models that can be updated and replaced without re-indexing what is already stored.

The public surface, loaded when first touched so that ``import holdfast`` costs nothing:

geometry    DSimplex, nearest
losses      simplex_cross_entropy, info_nce, hoc_loss, feature_distillation
data        load_split, read_dataset, ImageSet
training    build_backbone, load_weights, Encoder, Preprocess, VectorInput, cl2r, iam_cl2r, SlotRegistry, METHODS,
            FitOptions, fit, run_recipe
evaluation  compatibility_matrix, average_compatibility, average_accuracy, average_compatible_accuracy,
            compatibility_summary
release     check, check_history
adoption    adopt, read_adopted
serving     Gallery
errors      HoldfastError
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.data import ImageSet, load_split
    from holdfast.data.readers.torch_dataset import read_dataset
    from holdfast.encoders import Encoder, Preprocess, VectorInput, build_backbone, load_weights
    from holdfast.errors import HoldfastError
    from holdfast.evaluation import check, check_history, compatibility_matrix
    from holdfast.experiments.execute import run_recipe
    from holdfast.gallery import Gallery
    from holdfast.geometry import DSimplex, nearest
    from holdfast.lifecycle import adopt, read_adopted
    from holdfast.losses import feature_distillation, hoc_loss, info_nce, simplex_cross_entropy
    from holdfast.methods import METHODS
    from holdfast.metrics import (
        average_accuracy,
        average_compatibility,
        average_compatible_accuracy,
        compatibility_summary,
    )
    from holdfast.scenarios import SlotRegistry, cl2r, iam_cl2r
    from holdfast.training import FitOptions, fit

_HOME = {
    "METHODS": "methods",
    "DSimplex": "geometry",
    "Encoder": "encoders",
    "FitOptions": "training",
    "Gallery": "gallery",
    "HoldfastError": "errors",
    "ImageSet": "data",
    "Preprocess": "encoders",
    "SlotRegistry": "scenarios",
    "VectorInput": "encoders",
    "adopt": "lifecycle",
    "average_accuracy": "metrics",
    "average_compatibility": "metrics",
    "average_compatible_accuracy": "metrics",
    "build_backbone": "encoders",
    "check": "evaluation",
    "check_history": "evaluation",
    "cl2r": "scenarios",
    "compatibility_matrix": "evaluation",
    "compatibility_summary": "metrics",
    "feature_distillation": "losses",
    "fit": "training",
    "hoc_loss": "losses",
    "iam_cl2r": "scenarios",
    "info_nce": "losses",
    "load_split": "data",
    "load_weights": "encoders",
    "nearest": "geometry",
    "read_adopted": "lifecycle",
    "read_dataset": "data.readers.torch_dataset",
    "run_recipe": "experiments.execute",
    "simplex_cross_entropy": "losses",
}

__all__ = [
    "METHODS",
    "DSimplex",
    "Encoder",
    "FitOptions",
    "Gallery",
    "HoldfastError",
    "ImageSet",
    "Preprocess",
    "SlotRegistry",
    "VectorInput",
    "adopt",
    "average_accuracy",
    "average_compatibility",
    "average_compatible_accuracy",
    "build_backbone",
    "check",
    "check_history",
    "cl2r",
    "compatibility_matrix",
    "compatibility_summary",
    "feature_distillation",
    "fit",
    "hoc_loss",
    "iam_cl2r",
    "info_nce",
    "load_split",
    "load_weights",
    "nearest",
    "read_adopted",
    "read_dataset",
    "run_recipe",
    "simplex_cross_entropy",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(f"holdfast.{_HOME[name]}"), name)
    raise AttributeError(f"module 'holdfast' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
