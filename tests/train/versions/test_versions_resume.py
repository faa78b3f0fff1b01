"""Killed at any moment, the same command goes on, to the same bits."""

import shutil

import pytest

from holdfast.core.errors import HoldfastError
from holdfast.train import versions as lifecycle
from holdfast.train.engine import Cancellation, Cancelled
from holdfast.train.versions import start, update
from killed_runs import DEAD, die_at_sync, exit_code


def lasting(folder):
    told = ("log.jsonl", "environment.json", ".lock")
    files = [file for file in folder.rglob("*") if file.is_file() and file.name not in told]
    return {str(file.relative_to(folder)): file.read_bytes() for file in files}


def test_interrupted_between_two_steps(first, second, photos, tmp_path):
    cancel = Cancellation()

    def stop(event):
        if event.kind == "epoch":
            cancel.cancel()

    with pytest.raises(Cancelled):
        update(first, photos / "2", tmp_path / "2", device="cpu", on_event=stop, cancel=cancel)
    assert (tmp_path / "2" / "checkpoint.safetensors").exists()
    steps = []
    update(first, photos / "2", tmp_path / "2", device="cpu", on_event=steps.append)
    done = next(event.step for event in steps if event.kind == "begin")
    assert done > 0
    assert f"training is resumed after step {done}" in [event.text for event in steps if event.kind == "note"]
    assert lasting(tmp_path / "2") == lasting(second)


def test_what_is_done_is_left_alone(first, second, photos):
    before = {file: file.stat().st_mtime_ns for file in second.rglob("*")}
    info = update(first, photos / "2", second, device="cpu")
    assert info["task"] == 2
    assert {file: file.stat().st_mtime_ns for file in second.rglob("*")} == before
    with pytest.raises(HoldfastError, match="holds another version"):
        update(first, photos / "3", second, device="cpu")
    with pytest.raises(HoldfastError, match="holds another version"):
        update(first, photos / "2", second, device="cpu", changes=["train.lr=0.01"])


def test_a_kill_after_the_last_write_leaves_no_checkpoint(first, second, photos, tmp_path):
    copied = shutil.copytree(second, tmp_path / "2")
    (copied / "checkpoint.safetensors").touch()
    update(first, photos / "2", copied, device="cpu")
    assert lasting(copied) == lasting(second)


@pytest.mark.slow
def test_every_write(first, second, photos, tmp_path):
    """A child dies without a word at every fifth of its calls for the disk, which come two to a file."""
    expected = lasting(second)
    count = 0
    while True:
        count += 5
        folder = tmp_path / f"{count:03d}"

        def dying(count=count, folder=folder):
            die_at_sync(count)
            update(first, photos / "2", folder, device="cpu")

        if (status := exit_code(dying)) == 0:
            break
        assert status == DEAD
        update(first, photos / "2", folder, device="cpu")
        assert lasting(folder) == expected, f"died at call {count}"
    assert count > 20


def test_python_and_recipes_describe_the_same_version(first, second, photos, recipe, tmp_path):
    """Made from a recipe, a version is found complete by the Python function with the same settings."""
    before = {file: file.stat().st_mtime_ns for file in second.rglob("*")}
    assert lifecycle.update(first, photos / "2", second, device="cpu")["task"] == 2
    assert {file: file.stat().st_mtime_ns for file in second.rglob("*")} == before
    settings = lifecycle.VersionSettings(backbone={"name": "small"}, data={"size": 16}, train={"epochs": 1})
    lifecycle.start(photos / "1", tmp_path / "1", settings=settings, device="cpu")
    recorded = str(tmp_path / "1" / "recipe.toml")
    assert start(photos / "1", tmp_path / "1", settings=recorded, device="cpu")["task"] == 1
    with pytest.raises(HoldfastError, match=r"method.nothing: unknown key"):
        lifecycle.VersionSettings(method={"name": "simplex_hoc", "nothing": 1})
