"""The only place with an optimiser step: fit one task, walk a scenario, checkpoint, resume."""

from holdfast.training.fit import fit
from holdfast.training.kept_features import KeptFeatures, remember
from holdfast.training.options import FitOptions
from holdfast.training.survey import StoredReference
from holdfast.training.train_scenario import walk

__all__ = ["FitOptions", "KeptFeatures", "StoredReference", "fit", "remember", "walk"]
