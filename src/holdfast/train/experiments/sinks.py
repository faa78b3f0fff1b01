"""Optional log sinks of a run: TensorBoard, Weights & Biases, MLflow. The run folder's own log is always written.

Each sink has a thread of its own: a slow or failing server does not affect training.
"""

import contextlib
import os
import queue
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Protocol

from holdfast.core.errors import HoldfastError, how_to_install, unknown_name
from holdfast.core.run_folder import RunFolder
from holdfast.core.storage import read_json, write_json
from holdfast.reports.records import flatten
from holdfast.train.events import EpochEnded, Event


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
        return {name: value for name, value in flatten(self.settings).items() if value is not None}

    def stored_id(self, sink: str) -> str | None:
        """The id that ``sink`` gave this run in an earlier session, or None."""
        path = self.folder.sink(sink)
        return str(read_json(path)["id"]) if path.exists() else None

    def store_id(self, sink: str, run_id: str) -> None:
        write_json(self.folder.sink(sink), {"id": run_id})


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


FINISHED_SECONDS, INTERRUPTED_SECONDS = 30.0, 10.0
"""How long a finished or an interrupted run waits for a sink to send what is left."""


def check_sinks(names: Sequence[str]) -> None:
    """Refuse an unknown name, and a sink with a package that is not installed."""
    for name in names:
        if name not in SINKS:
            raise unknown_name("log sink", name, SINKS)
        SINKS[name].require()


class _Forward:
    """One sink behind a queue. ``failure`` says why the sink was switched off, or is None."""

    def __init__(self, name: str, sink: Sink) -> None:
        self.name = name
        self.failure: str | None = None
        self._sink = sink
        self._calls: queue.SimpleQueue[Callable[[Sink], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name=f"holdfast-{name}", daemon=True)
        self._thread.start()

    def __call__(self, call: Callable[[Sink], None]) -> None:
        if self.failure is None:
            self._calls.put(call)

    def close(self, finished: bool, seconds: float) -> None:
        self._calls.put(lambda sink: sink.close(finished))
        self._calls.put(None)
        self._thread.join(seconds)
        if self._thread.is_alive():
            self.failure = f"did not accept everything within {seconds:g} seconds"

    def _work(self) -> None:
        try:
            self._sink.open()
            while (call := self._calls.get()) is not None:
                call(self._sink)
        except BaseException as error:  # also SystemExit, which some libraries raise: it ends only this thread
            reason = str(error).strip().splitlines()
            self.failure = f"{type(error).__name__}: {reason[0]}" if reason else type(error).__name__


class Sinks:
    """The sinks of one run. Called with every event; sends the losses and learning rate of each epoch."""

    def __init__(
        self, names: Sequence[str], run: LoggedRun, task_steps: Sequence[int], warn: Callable[[str], None]
    ) -> None:
        """task_steps: the steps of each task, so that steps are counted over the whole run even if it is resumed."""
        self._before = [0, *accumulate(task_steps)]
        self._warn = warn
        self._warned: set[str] = set()
        self._forwards = [_Forward(name, SINKS[name](run)) for name in dict.fromkeys(names)]

    def __call__(self, event: Event) -> None:
        if isinstance(event, EpochEnded):
            values = {f"loss/{name}": value for name, value in event.terms.items()}
            values |= {"lr": event.lr, "task": float(event.task)}
            at = self._before[event.task - 1] + event.step
            self._each(lambda sink: sink.scalars(values, at))

    def summary(self, protocols: Mapping[str, Mapping[str, Any]]) -> None:
        """Send AC, AA and ACA under each protocol, in [0, 1]; undefined ones are left out."""
        values = {
            f"{protocol}/{name}": float(scores[name])
            for protocol, scores in protocols.items()
            for name in ("AC", "AA", "ACA")
            if scores[name] is not None
        }
        self._each(lambda sink: sink.summary(values, self._before[-1]))

    def close(self, finished: bool) -> None:
        seconds = FINISHED_SECONDS if finished else INTERRUPTED_SECONDS
        for forward in self._forwards:
            forward.close(finished, seconds)
        self._report()

    def _each(self, call: Callable[[Sink], None]) -> None:
        for forward in self._forwards:
            forward(call)
        self._report()

    def _report(self) -> None:
        """Warn once, from the caller's thread, of each sink that was switched off."""
        for forward in self._forwards:
            if forward.failure is not None and forward.name not in self._warned:
                self._warned.add(forward.name)
                self._warn(f"{forward.name} is switched off for this run, which continues: {forward.failure}")


@contextlib.contextmanager
def logging_to(
    names: Sequence[str], run: LoggedRun, task_steps: Sequence[int], *, warn: Callable[[str], None]
) -> Iterator[Sinks]:
    """Open the named sinks for the block; they are closed as finished only if the block raises nothing."""
    sinks = Sinks(names, run, task_steps, warn)
    finished = False
    try:
        yield sinks
        finished = True
    finally:
        sinks.close(finished)
