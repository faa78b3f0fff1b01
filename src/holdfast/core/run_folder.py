"""The files of a run folder, its lock, and the error for a folder that is not a finished run."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

from holdfast.core import file_lock
from holdfast.core.errors import HoldfastError
from holdfast.core.storage import remove_temporaries
from holdfast.core.untrusted_files import read_toml
from holdfast.core.wording import first_few


class FolderRefusedError(HoldfastError):
    """The folder belongs to another run or process: nothing may be written to it, not even the error."""


class RunFolder:
    """recipe.toml, environment.json, log.jsonl, models/01 02 ..., features/, metrics.json."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)

    @contextlib.contextmanager
    def locked(self, then: Callable[[], None] = lambda: None) -> Iterator[None]:
        """Keep every other process from writing here. The lock is released even if this process is killed.

        then: called first with the lock held; it looks again at what another process may have written before.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        with file_lock.locked(
            self.lock, busy=FolderRefusedError(f"{self.path}: another process is working in this run folder")
        ):
            then()
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

    @property
    def error(self) -> Path:
        """The error of the last attempt in a sweep; removed when the run starts again."""
        return self.path / "error.txt"

    @property
    def checkpoint(self) -> Path:
        """The checkpoint of the task in progress; removed when the task is done."""
        return self.path / "checkpoint.safetensors"

    @property
    def models(self) -> Path:
        return self.path / "models"

    def model(self, task: int) -> Path:
        """The encoder of a finished task, for ``Encoder.from_pretrained``."""
        return self.models / f"{task:02d}"

    def method(self, task: int) -> Path:
        """The state of the method after a task."""
        return self.model(task) / "method.safetensors"

    def kept_features(self, task: int) -> Path:
        """Features that the model gave the next task's buffered images; exists only if the method reads them."""
        return self.model(task) / "kept.safetensors"

    def space_map(self, task: int) -> Path:
        """The map from the previous model's features to this model's; exists only if the method learns one."""
        return self.model(task) / "space_map.safetensors"

    @property
    def features(self) -> Path:
        return self.path / "features"

    @property
    def metrics(self) -> Path:
        return self.path / "metrics.json"

    @property
    def stationarity(self) -> Path:
        """Whether the assumptions of Theorem 1 hold in this run; exists once measured."""
        return self.path / "stationarity.json"

    def remove_temporaries(self) -> None:
        """Remove unfinished files that a killed run left behind."""
        for folder in (self.path, self.models, self.features, *self.features.glob("[0-9]*")):
            remove_temporaries(folder)


MAX_NAMES = 4


def not_a_run_error(path: Path | str) -> HoldfastError:
    """The error for a folder without a finished run: what the folder is, and which command to use."""
    return HoldfastError(f"{path}: {_describe(Path(path))}")


def _describe(path: Path) -> str:
    if not path.exists():
        return "not a run folder: it does not exist"
    if not path.is_dir():
        return "a file, not a run folder"
    if (path / "catalogue.sqlite").exists():
        return f"a gallery, not a run; use holdfast gallery stats {path}"
    if (path / "update.json").exists():
        return _describe_version(path)
    if (path / "config.json").exists():
        return _describe_model(path)
    if RunFolder(path).recipe.exists():
        return _describe_unfinished(RunFolder(path))
    runs = sorted(one.name for one in path.iterdir() if RunFolder(one).metrics.exists())
    if runs:
        return f"not a run folder, but contains run folders; name them: {first_few(runs, MAX_NAMES)}"
    return "not a run folder (no recipe.toml in it)"


def _describe_version(path: Path) -> str:
    if not (path / "seal.json").exists():
        return "a version with unfinished training, not a run; repeat holdfast start or update to resume it"
    evidence = path / "check.html"
    checked = f"{evidence} has its check" if evidence.exists() else "holdfast update checks the version after it"
    return f"a version made by holdfast start or update, not a run; {checked}"


def _describe_model(path: Path) -> str:
    run = RunFolder(path.resolve().parent.parent)
    if run.models == path.resolve().parent and run.recipe.exists():
        shown = path.parent.parent if len(path.parts) > 2 else run.path
        return f"one model of a run; give the run's folder, {shown}"
    return "a model, not a run; to compare two models, embed items with both and give the files to holdfast check"


def _describe_unfinished(folder: RunFolder) -> str:
    try:
        trains_one_model = "scenario" not in read_toml(folder.recipe)
    except HoldfastError:
        return f"its recipe.toml is not readable, and {folder.metrics.name} is missing"
    if trains_one_model:
        return "a model with unfinished training, not a run; repeat holdfast pretrain to resume it"
    return f"an unfinished run; resume it by holdfast run RECIPE --out {folder.path}"
