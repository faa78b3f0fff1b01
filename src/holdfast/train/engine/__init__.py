"""The only package with an optimiser step: train one task or a whole scenario, save checkpoints, resume."""

from holdfast.train.engine.control import Cancellation, Cancelled, RunControl
from holdfast.train.engine.fit import fit
from holdfast.train.engine.fit_options import FitOptions
from holdfast.train.engine.kept_features import KeptFeatures, buffer_features
from holdfast.train.engine.train_scenario import ScenarioSetup, TaskInputs, train_scenario, train_task

__all__ = [
    "Cancellation",
    "Cancelled",
    "FitOptions",
    "KeptFeatures",
    "RunControl",
    "ScenarioSetup",
    "TaskInputs",
    "buffer_features",
    "fit",
    "train_scenario",
    "train_task",
]
