"""Where a run's numbers may go beside its own log: TensorBoard, W&B, MLflow; none unless asked for."""

from holdfast.sinks.forward import Sinks, check_sinks, logging_to
from holdfast.sinks.interface import LoggedRun, Sink
from holdfast.sinks.table import SINKS

__all__ = ["SINKS", "LoggedRun", "Sink", "Sinks", "check_sinks", "logging_to"]
