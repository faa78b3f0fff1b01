"""The log sinks by name."""

from holdfast.sinks.interface import Sink
from holdfast.sinks.mlflow import MLflow
from holdfast.sinks.tensorboard import TensorBoard
from holdfast.sinks.wandb import WandB

SINKS: dict[str, type[Sink]] = {"tensorboard": TensorBoard, "wandb": WandB, "mlflow": MLflow}
