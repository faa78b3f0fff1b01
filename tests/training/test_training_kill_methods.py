"""Every method's state survives a kill: centres, radii, adapters, discriminators, schedules."""

import json
import os
import signal

import pytest

from holdfast.experiments.execute import execute
from holdfast.experiments.load import read_recipe
from holdfast.experiments.schema import check_recipe
from holdfast.methods import METHODS
from holdfast.run_folder import RunFolder
from holdfast.training import RunControl

SETTINGS = ["train.epochs=4", "train.checkpoint_minutes=0"]
# Each is a place in a run of three tasks: in the middle of the second, at its end, and in the third.
MOMENTS = [("epoch", 2, 2), ("epoch", 2, 4), ("features", 2, None), ("epoch", 3, 1)]


def live(recipe, folder, dies_at=None):
    """Run in a child that kills itself when told of ``dies_at``; its exit code."""

    def watch(event):
        if (event.kind, getattr(event, "task", None), getattr(event, "epoch", None)) == dies_at:
            os.kill(os.getpid(), signal.SIGKILL)

    child = os.fork()
    if child == 0:
        status = 1
        try:
            execute(recipe, RunFolder(folder), device="cpu", resume=True, control=RunControl(watch))
            status = 0
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def lasting(folder):
    protocols = json.loads((folder / "metrics.json").read_text())["protocols"]
    files = [*folder.glob("models/*/*"), *folder.glob("features/**/*.npy")]
    return protocols, {str(file.relative_to(folder)): file.read_bytes() for file in files}


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_killed_again_and_again(method, tiny_recipe, tmp_path):
    recipe = check_recipe(read_recipe(str(tiny_recipe), [f"method.name={method}", *SETTINGS]))
    assert live(recipe, tmp_path / "whole") == 0
    for moment in MOMENTS:
        assert live(recipe, tmp_path / "killed", dies_at=moment) == -signal.SIGKILL
    assert live(recipe, tmp_path / "killed") == 0
    assert lasting(tmp_path / "killed") == lasting(tmp_path / "whole")
