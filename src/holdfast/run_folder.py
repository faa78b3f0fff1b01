"""The layout of a run folder: the one place that knows the names."""

from pathlib import Path

from holdfast.storage import sweep_temporaries


class RunFolder:
    """recipe.toml, environment.json, log.jsonl, models/01 02 ..., features/, metrics.json, report.html."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)

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

    @property
    def features(self) -> Path:
        return self.path / "features"

    @property
    def metrics(self) -> Path:
        return self.path / "metrics.json"

    @property
    def report(self) -> Path:
        return self.path / "report.html"

    def sweep(self) -> None:
        """Remove the half-written files that a killed run left behind."""
        for folder in (self.path, self.models, self.features, *self.features.glob("[0-9]*")):
            sweep_temporaries(folder)
