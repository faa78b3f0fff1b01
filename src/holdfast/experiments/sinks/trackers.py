"""The log sinks by name (TensorBoard, Weights & Biases, MLflow), and the protocol that they implement."""

import os
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from holdfast.errors import HoldfastError, how_to_install
from holdfast.run_folder import RunFolder
from holdfast.storage import read_json, write_json


@dataclass(frozen=True)
class LoggedRun:
    """A run as its sinks see it.

    folder: the run folder.
    settings: the tables of the recipe.
    """

    folder: RunFolder
    settings: Mapping[str, Any]

    @property
    def name(self) -> str:
        return self.folder.path.resolve().name

    @property
    def flat_settings(self) -> dict[str, Any]:
        """``{"train.lr": 0.1, ...}``; settings that are None are left out."""
        return dict(_flat(self.settings))

    def stored_id(self, sink: str) -> str | None:
        """The id that ``sink`` gave this run in an earlier session, or None."""
        path = self.folder.sink(sink)
        return str(read_json(path)["id"]) if path.exists() else None

    def store_id(self, sink: str, run_id: str) -> None:
        write_json(self.folder.sink(sink), {"id": run_id})


def _flat(tables: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in tables.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        elif value is not None:
            yield prefix + key, value


class Sink(Protocol):
    """A log sink. All methods but ``require`` are called from one thread of its own; they may fail or block."""

    def __init__(self, run: LoggedRun) -> None: ...

    @staticmethod
    def require() -> None:
        """Raise an error that says what to install, if the package is missing."""

    def open(self) -> None:
        """Begin, or continue what an earlier session of the same run folder logged."""

    def scalars(self, values: Mapping[str, float], step: int) -> None:
        """Numbers at an optimiser step, counted over the whole run."""

    def summary(self, values: Mapping[str, float], step: int) -> None:
        """Final scores, sent once after the last step."""

    def close(self, finished: bool) -> None:
        """Send what is left. ``finished`` is False if the run failed or was interrupted."""


class TensorBoard:
    """Writes to ``RUN/tensorboard``; each session of the run adds a file."""

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

    The id is made here and stored before W&B receives it, so a run killed at any moment continues under the same id.
    """

    def __init__(self, run: LoggedRun) -> None:
        self._logged = run

    @staticmethod
    def require() -> None:
        try:
            import wandb  # noqa: F401
        except ImportError as error:
            raise HoldfastError(f"W&B is not installed; {how_to_install('wandb')}") from error

    def open(self) -> None:
        import wandb

        run_id = self._logged.stored_id("wandb") or uuid.uuid4().hex
        self._logged.store_id("wandb", run_id)
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "holdfast"),
            id=run_id,
            name=self._logged.name,
            resume="allow",
            reinit="create_new",  # runs of a sweep are threads of one process
            config=self._logged.flat_settings,
            dir=str(self._logged.folder.path),
            settings=wandb.Settings(console="off", silent=True, save_code=False),
        )
        # Our own step count: W&B's can only grow, and a resumed run may repeat an epoch that a kill undid.
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
"""Limits that every MLflow server accepts: parameters in one request, characters of one value."""


class MLflow:
    """One MLflow run per run folder, in the experiment ``$MLFLOW_EXPERIMENT_NAME`` or holdfast.

    ``$MLFLOW_TRACKING_URI`` chooses the server or store, as usual. Uses ``MlflowClient`` and not MLflow's active run:
    there is one active run per process, and the runs of a sweep are threads.
    """

    def __init__(self, run: LoggedRun) -> None:
        self._logged = run

    @staticmethod
    def require() -> None:
        try:
            import mlflow.tracking  # noqa: F401
        except ImportError as error:
            raise HoldfastError(f"MLflow is not installed; {how_to_install('mlflow')}") from error

    def open(self) -> None:
        from mlflow.tracking import MlflowClient

        self._client = MlflowClient()
        known = self._logged.stored_id("mlflow")
        if known and self._exists(known):
            self._run_id = known
            self._client.update_run(known, status="RUNNING")
            return
        run = self._client.create_run(self._experiment(), run_name=self._logged.name)
        self._run_id = run.info.run_id
        self._logged.store_id("mlflow", self._run_id)
        self._log_settings()

    def scalars(self, values: Mapping[str, float], step: int) -> None:
        from mlflow.entities import Metric

        now = int(1000 * time.time())
        self._client.log_batch(self._run_id, metrics=[Metric(name, value, now, step) for name, value in values.items()])

    def summary(self, values: Mapping[str, float], step: int) -> None:
        self.scalars(values, step)

    def close(self, finished: bool) -> None:
        self._client.set_terminated(self._run_id, status="FINISHED" if finished else "KILLED")

    def _exists(self, run_id: str) -> bool:
        """False only if the store says that there is no such run. Other errors are raised and start no second run."""
        from mlflow.exceptions import MlflowException

        try:
            self._client.get_run(run_id)
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
            except MlflowException:  # another run has just created it
                found = self._client.get_experiment_by_name(name)
                if found is None:
                    raise
        return found.experiment_id

    def _log_settings(self) -> None:
        from mlflow.entities import Param

        params = [Param(key, str(value)[:LONGEST_VALUE]) for key, value in self._logged.flat_settings.items()]
        for first in range(0, len(params), PARAMETERS_AT_ONCE):
            self._client.log_batch(self._run_id, params=params[first : first + PARAMETERS_AT_ONCE])


SINKS: dict[str, type[Sink]] = {"tensorboard": TensorBoard, "wandb": WandB, "mlflow": MLflow}
