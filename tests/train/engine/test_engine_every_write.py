"""A run that dies at any one of its writes, before or after the rename, can be gone on with."""

import pytest

from holdfast.core import storage
from holdfast.core.run_folder import RunFolder
from holdfast.train.experiments.execute import execute
from holdfast.train.experiments.load import read_recipe
from holdfast.train.experiments.schema import check_recipe
from killed_runs import DEAD, die_at_sync, exit_code, lasting


@pytest.fixture
def life(tiny_recipe):
    """Run the tiny recipe in a child that dies without a word at its n-th call for the disk; how the child ended."""
    recipe = check_recipe(read_recipe(str(tiny_recipe)))

    def live(folder, dies_at):
        def run():
            die_at_sync(dies_at)
            execute(recipe, RunFolder(folder), device="cpu", resume=True)

        return exit_code(run)

    return live


@pytest.mark.slow
def test_every_write(life, tiny_run, tmp_path):
    expected = lasting(tiny_run)
    count = 0
    while True:
        count += 1
        folder = tmp_path / f"{count:03d}"
        if (status := life(folder, dies_at=count)) == 0:
            break
        assert status == DEAD
        assert life(folder, dies_at=-1) == 0
        assert lasting(folder) == expected, f"died at call {count}"
        assert not list(folder.rglob(f"{storage.TEMPORARY}*"))
    assert count > 30  # three models, three pairs of features, settings, metrics
