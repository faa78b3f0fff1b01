"""The only package with an optimiser step: train one task or a whole scenario, save checkpoints, resume."""

from holdfast.training.control import Cancellation, Cancelled, RunControl
from holdfast.training.fit import fit
from holdfast.training.kept_features import KeptFeatures, buffer_features
from holdfast.training.options import FitOptions
from holdfast.training.survey import StoredReference
from holdfast.training.train_scenario import ScenarioSetup, TaskInputs, train_scenario, train_task

__all__ = [
    "Cancellation",
    "Cancelled",
    "FitOptions",
    "KeptFeatures",
    "RunControl",
    "ScenarioSetup",
    "StoredReference",
    "TaskInputs",
    "buffer_features",
    "fit",
    "train_scenario",
    "train_task",
]
