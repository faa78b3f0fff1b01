"""Where a run's numbers may go beside its own log: TensorBoard, W&B, MLflow; none unless asked for."""

from holdfast.experiments.sinks.forward import Sinks, check_sinks, logging_to
from holdfast.experiments.sinks.interface import LoggedRun, Sink
from holdfast.experiments.sinks.trackers import SINKS

__all__ = ["SINKS", "LoggedRun", "Sink", "Sinks", "check_sinks", "logging_to"]
