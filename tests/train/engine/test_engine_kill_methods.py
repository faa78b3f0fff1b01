"""Every method's state survives a kill: centres, radii, adapters, discriminators, schedules."""

import signal

import pytest

from holdfast.core.run_folder import RunFolder
from holdfast.train.engine import RunControl
from holdfast.train.experiments.execute import execute
from holdfast.train.experiments.load import read_recipe
from holdfast.train.experiments.schema import check_recipe
from holdfast.train.methods import METHODS
from killed_runs import exit_code, kill_at, lasting

SETTINGS = ["train.epochs=4", "train.checkpoint_minutes=0"]
# Each is a place in a run of three tasks: in the middle of the second, at its end, and in the third.
MOMENTS = [("epoch", 2, 2), ("epoch", 2, 4), ("features", 2, None), ("epoch", 3, 1)]


def live(recipe, folder, dies_at=None):
    """Run in a child that kills itself when told of ``dies_at``; its exit code."""
    control = RunControl(kill_at(dies_at))
    return exit_code(lambda: execute(recipe, RunFolder(folder), device="cpu", resume=True, control=control))


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_killed_again_and_again(method, tiny_recipe, tmp_path):
    recipe = check_recipe(read_recipe(str(tiny_recipe), [f"method.name={method}", *SETTINGS]))
    assert live(recipe, tmp_path / "whole") == 0
    for moment in MOMENTS:
        assert live(recipe, tmp_path / "killed", dies_at=moment) == -signal.SIGKILL
    assert live(recipe, tmp_path / "killed") == 0
    assert lasting(tmp_path / "killed") == lasting(tmp_path / "whole")
