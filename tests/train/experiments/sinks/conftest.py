"""Events of a run as the loop sends them, and a short run that is logged."""

import pytest

from holdfast.core.run_folder import RunFolder
from holdfast.train.engine import RunControl
from holdfast.train.events import EpochEnded
from holdfast.train.experiments.execute import execute
from holdfast.train.experiments.load import read_recipe
from holdfast.train.experiments.schema import check_recipe
from holdfast.train.experiments.sinks import LoggedRun


@pytest.fixture
def epoch():
    return epoch_event


def epoch_event(task, step, loss=1.0):
    return EpochEnded(task, 1, step, 0.1, 1.0, {"ce": loss}, 1.0)


@pytest.fixture
def logged(tmp_path):
    return LoggedRun(RunFolder(tmp_path / "my-run"), {"seed": 3, "train": {"lr": 0.1, "clip": None}})


@pytest.fixture
def short_run(tiny_recipe, tmp_path):
    """Run the tiny recipe for one epoch a task; ``stop_at`` a task's end as an interruption would."""

    def call(*sinks, stop_at=None, name="run"):
        texts = []

        def watch(event):
            if event.kind == "warning":
                texts.append(event.text)
            if event.kind == "task" and event.task == stop_at:
                raise KeyboardInterrupt

        recipe = check_recipe(read_recipe(str(tiny_recipe), ["train.epochs=1"]))
        folder = RunFolder(tmp_path / name)
        control, resume = RunControl(watch), folder.recipe.exists()
        metrics = execute(recipe, folder, device="cpu", sinks=sinks, control=control, resume=resume)
        return metrics, texts

    return call
