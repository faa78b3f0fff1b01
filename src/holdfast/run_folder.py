"""The layout of a run folder: the one place that knows the names."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from holdfast.errors import HoldfastError
from holdfast.storage import sweep_temporaries

try:
    import fcntl
except ImportError:  # not a POSIX system: there a second process is not noticed
    fcntl = None  # type: ignore[assignment]


class FolderRefusedError(HoldfastError):
    """The folder is somebody else's: nothing may be written there, not even why."""


class RunFolder:
    """recipe.toml, environment.json, log.jsonl, models/01 02 ..., features/, metrics.json, report.html."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Keep every other process from writing here; the system lets go of it even if this one is killed."""
        self.path.mkdir(parents=True, exist_ok=True)
        with self.lock.open("a") as file:
            if fcntl is not None:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except OSError:
                    raise FolderRefusedError(f"{self.path}: another process is working in this run folder") from None
            yield

    @property
    def lock(self) -> Path:
        return self.path / ".lock"

    @property
    def recipe(self) -> Path:
        return self.path / "recipe.toml"

    @property
    def environment(self) -> Path:
        return self.path / "environment.json"

    @property
    def log(self) -> Path:
        return self.path / "log.jsonl"

    def sink(self, name: str) -> Path:
        """Under which id a log sink knows the run; there only where one was asked for."""
        return self.path / "sinks" / f"{name}.json"

    @property
    def error(self) -> Path:
        """Why the last attempt in a sweep failed; gone once one is begun anew."""
        return self.path / "error.txt"

    @property
    def checkpoint(self) -> Path:
        """The middle of the task in progress; gone once the task is done."""
        return self.path / "checkpoint.safetensors"

    @property
    def models(self) -> Path:
        return self.path / "models"

    def model(self, task: int) -> Path:
        """The encoder of a finished task: ``Encoder.from_pretrained`` reads it."""
        return self.models / f"{task:02d}"

    def method(self, task: int) -> Path:
        """What the method keeps after a task, beside the encoder."""
        return self.model(task) / "method.safetensors"

    def kept(self, task: int) -> Path:
        """What the model gave the next task's buffered images; there only where the method reads it."""
        return self.model(task) / "kept.safetensors"

    def space_map(self, task: int) -> Path:
        """The map from the previous model's features to this one's; there only where the method learns one."""
        return self.model(task) / "space_map.safetensors"

    @property
    def features(self) -> Path:
        return self.path / "features"

    @property
    def metrics(self) -> Path:
        return self.path / "metrics.json"

    @property
    def stationarity(self) -> Path:
        """Whether Theorem 1's assumptions hold in this run; there once it was measured."""
        return self.path / "stationarity.json"

    @property
    def report(self) -> Path:
        return self.path / "report.html"

    def sweep(self) -> None:
        """Remove the half-written files that a killed run left behind."""
        for folder in (self.path, self.models, self.features, *self.features.glob("[0-9]*")):
            sweep_temporaries(folder)
