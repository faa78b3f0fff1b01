"""Optional log sinks of a run: TensorBoard, W&B, MLflow. The run folder's own log is always written."""

from holdfast.experiments.sinks.forward import Sinks, check_sinks, logging_to
from holdfast.experiments.sinks.trackers import SINKS, LoggedRun, Sink

__all__ = ["SINKS", "LoggedRun", "Sink", "Sinks", "check_sinks", "logging_to"]
