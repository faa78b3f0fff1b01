"""The log sinks by name.

Scalars for TensorBoard, in the run folder.

A run on Weights & Biases.

A run on an MLflow tracking server, or in a local store of MLflow's.
"""

import os
import time
import uuid
from collections.abc import Mapping
from typing import Any

from holdfast.errors import HoldfastError, how_to_install
from holdfast.experiments.sinks.interface import LoggedRun, Sink


class TensorBoard:
    """Writes ``RUN/tensorboard``; another sitting of the run adds a file there."""

    def __init__(self, run: LoggedRun) -> None:
        self._folder = run.folder.path / "tensorboard"

    @staticmethod
    def require() -> None:
        try:
            import torch.utils.tensorboard  # noqa: F401
        except ImportError as error:
            raise HoldfastError(f"TensorBoard is not installed; {how_to_install('tensorboard')}") from error

    def open(self) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(self._folder))

    def scalars(self, values: Mapping[str, float], step: int) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def summary(self, values: Mapping[str, float], step: int) -> None:
        self.scalars(values, step)

    def close(self, finished: bool) -> None:
        self._writer.close()


class WandB:
    """One W&B run per run folder, in the project ``$WANDB_PROJECT`` or holdfast; ``WANDB_MODE=offline`` sends nothing.

    The id is ours and is kept before W&B hears of it, so a run killed at any moment goes on as the same one.
    """

    def __init__(self, run: LoggedRun) -> None:
        self._about = run

    @staticmethod
    def require() -> None:
        try:
            import wandb  # noqa: F401
        except ImportError as error:
            raise HoldfastError(f"W&B is not installed; {how_to_install('wandb')}") from error

    def open(self) -> None:
        import wandb

        number = self._about.known_as("wandb") or uuid.uuid4().hex
        self._about.keep_id("wandb", number)
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "holdfast"),
            id=number,
            name=self._about.name,
            resume="allow",
            reinit="create_new",  # runs of a sweep are threads of one process
            config=self._about.flat_settings,
            dir=str(self._about.folder.path),
            settings=wandb.Settings(console="off", silent=True, save_code=False),
        )
        # Steps by our own count: W&B's never goes back, and a resumed run may repeat an epoch that a kill undid.
        self._run.define_metric("step", hidden=True)
        self._run.define_metric("*", step_metric="step")

    def scalars(self, values: Mapping[str, float], step: int) -> None:
        self._run.log({**values, "step": step})

    def summary(self, values: Mapping[str, float], step: int) -> None:
        self._run.summary.update(dict(values))

    def close(self, finished: bool) -> None:
        self._run.finish(exit_code=0 if finished else 1)


PARAMETERS_AT_ONCE = 100
LONGEST_VALUE = 500
"""What every MLflow server takes in one request, and of one parameter."""


class MLflow:
    """One MLflow run per run folder, in the experiment ``$MLFLOW_EXPERIMENT_NAME`` or holdfast.

    ``$MLFLOW_TRACKING_URI`` says where, as for any use of MLflow. Goes through the client, not through the active run:
    that is one per process, and the runs of a sweep are threads.
    """

    def __init__(self, run: LoggedRun) -> None:
        self._about = run

    @staticmethod
    def require() -> None:
        try:
            import mlflow.tracking  # noqa: F401
        except ImportError as error:
            raise HoldfastError(f"MLflow is not installed; {how_to_install('mlflow')}") from error

    def open(self) -> None:
        from mlflow.tracking import MlflowClient

        self._client = MlflowClient()
        known = self._about.known_as("mlflow")
        if known and self._still_there(known):
            self._number = known
            self._client.update_run(known, status="RUNNING")
            return
        run = self._client.create_run(self._experiment(), run_name=self._about.name)
        self._number = run.info.run_id
        self._about.keep_id("mlflow", self._number)
        self._log_settings()

    def scalars(self, values: Mapping[str, float], step: int) -> None:
        from mlflow.entities import Metric

        now = int(1000 * time.time())
        self._client.log_batch(self._number, metrics=[Metric(name, value, now, step) for name, value in values.items()])

    def summary(self, values: Mapping[str, float], step: int) -> None:
        self.scalars(values, step)

    def close(self, finished: bool) -> None:
        self._client.set_terminated(self._number, status="FINISHED" if finished else "KILLED")

    def _still_there(self, number: str) -> bool:
        """False only where the store says so: one that cannot be asked is trouble, not a reason for a second run."""
        from mlflow.exceptions import MlflowException

        try:
            self._client.get_run(number)
        except MlflowException as error:
            if error.error_code != "RESOURCE_DOES_NOT_EXIST":
                raise
            return False
        return True

    def _experiment(self) -> Any:
        from mlflow.exceptions import MlflowException

        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", "holdfast")
        found = self._client.get_experiment_by_name(name)
        if found is None:
            try:
                return self._client.create_experiment(name)
            except MlflowException:  # another run was a moment quicker
                found = self._client.get_experiment_by_name(name)
                if found is None:
                    raise
        return found.experiment_id

    def _log_settings(self) -> None:
        from mlflow.entities import Param

        params = [Param(key, str(value)[:LONGEST_VALUE]) for key, value in self._about.flat_settings.items()]
        for first in range(0, len(params), PARAMETERS_AT_ONCE):
            self._client.log_batch(self._number, params=params[first : first + PARAMETERS_AT_ONCE])


SINKS: dict[str, type[Sink]] = {"tensorboard": TensorBoard, "wandb": WandB, "mlflow": MLflow}
