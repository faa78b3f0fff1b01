"""A run that dies at any one of its writes, before or after the rename, can be gone on with."""

import json
import os

import pytest

from holdfast import storage
from holdfast.experiments.execute import execute
from holdfast.experiments.load import read_recipe
from holdfast.experiments.schema import check_recipe
from holdfast.run_folder import RunFolder

DEAD = 9


@pytest.fixture
def life(tiny_recipe):
    """Run the tiny recipe in a child that dies without a word at its n-th call for the disk; how the child ended."""
    recipe = check_recipe(read_recipe(str(tiny_recipe)))

    def live(folder, dies_at):
        child = os.fork()
        if child == 0:
            _die_at(dies_at)
            status = 1
            try:
                execute(recipe, RunFolder(folder), device="cpu", resume=True)
                status = 0
            finally:
                os._exit(status)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    return live


def _die_at(count):
    calls = iter(range(1, 10_000))
    sync = storage._sync

    def dying_sync(path):
        if next(calls) == count:
            os._exit(DEAD)
        sync(path)

    storage._sync = dying_sync


def lasting(folder):
    protocols = json.loads((folder / "metrics.json").read_text())["protocols"]
    files = [*folder.glob("models/*/*"), *folder.glob("features/**/*.npy")]
    return protocols, {str(file.relative_to(folder)): file.read_bytes() for file in files}


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
    assert count > 40  # three models, three pairs of features, settings, metrics, the report
