"""The layout of a run folder: the one place that knows the names.

What a folder holds, where a finished run was expected: told by the files that only one kind has.
"""

import contextlib
import tomllib
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


NAMED = 4


def no_finished_run(path: Path | str) -> HoldfastError:
    """The refusal of ``path``, which has no record of a run: what it is instead, and which command fits."""
    return HoldfastError(f"{path}: {_kind(Path(path))}")


def _kind(path: Path) -> str:
    if not path.exists():
        return "not a run folder: there is nothing of that name"
    if not path.is_dir():
        return "a file, not a run folder"
    if (path / "catalogue.sqlite").exists():
        return f"a gallery, not a run; holdfast gallery stats {path} tells of it"
    if (path / "update.json").exists():
        return _version(path)
    if (path / "config.json").exists():
        return _model(path)
    if RunFolder(path).recipe.exists():
        return _begun(RunFolder(path))
    runs = sorted(one.name for one in path.iterdir() if RunFolder(one).metrics.exists())
    if runs:
        more = f" and {len(runs) - NAMED} more" if len(runs) > NAMED else ""
        return f"not a run folder, but holds some; name them: {', '.join(runs[:NAMED])}{more}"
    return "not a run folder (no recipe.toml in it)"


def _version(path: Path) -> str:
    if not (path / "seal.json").exists():
        return "a version whose training is not finished, not a run; the same holdfast start or update goes on with it"
    evidence = path / "check.html"
    judged = f"{evidence} has its verdict" if evidence.exists() else "holdfast update judges the version after it"
    return f"a version made by holdfast start or update, not a run; {judged}"


def _model(path: Path) -> str:
    run = RunFolder(path.resolve().parent.parent)
    if run.models == path.resolve().parent and run.recipe.exists():
        shown = path.parent.parent if len(path.parts) > 2 else run.path
        return f"one model of a run; give the run's folder, {shown}"
    return "a model, not a run; holdfast check compares what two models make of the same queries"


def _begun(folder: RunFolder) -> str:
    try:
        trains_one_model = "scenario" not in tomllib.loads(folder.recipe.read_text(encoding="utf-8"))
    except (ValueError, OSError):
        return f"recipe.toml in it is not readable, and {folder.metrics.name} is missing"
    if trains_one_model:
        return "a model whose training is not finished, not a run; the same holdfast pretrain goes on with it"
    return f"a run that is not finished; holdfast run RECIPE --out {folder.path} --resume goes on with it"
