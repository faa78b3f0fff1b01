"""A run that goes on at another commit or on another GPU says so, and its record names all of them."""

import json

import pytest

from holdfast.core.run_folder import RunFolder
from holdfast.train.engine import RunControl
from holdfast.train.experiments import execute as executing
from holdfast.train.experiments.execute import execute
from holdfast.train.experiments.load import read_recipe
from holdfast.train.experiments.schema import check_recipe
from papers.run_pages.page import run_facts
from papers.run_pages.records import read_run
from papers.stationary.formatting import commit_note
from papers.sweeps.record import write_record


@pytest.fixture
def sit(tiny_recipe, tmp_path, monkeypatch):
    """Run, or go on, at a commit and on a GPU; the warnings. ``until``: the task at whose beginning it is stopped."""
    recipe = check_recipe(read_recipe(str(tiny_recipe), ["train.epochs=1", "scenario.tasks=3"]))
    real = executing.describe

    def one(commit, gpu=None, until=None):
        told = []
        monkeypatch.setattr(executing, "describe", lambda device: {**real(device), "commit": commit, "gpu": gpu})

        def watch(event):
            if event.kind == "warning":
                told.append(event.text)
            if event.kind == "begin" and event.task == until:
                raise KeyboardInterrupt

        try:
            execute(recipe, RunFolder(tmp_path / "run"), device="cpu", resume=True, control=RunControl(watch))
        except KeyboardInterrupt:
            assert until
        return told

    return one


@pytest.fixture
def record(tmp_path):
    def made():
        write_record(RunFolder(tmp_path / "run"), tmp_path / "record.json", "holdfast run mine")
        return json.loads((tmp_path / "record.json").read_text())["environment"]

    return made


def test_every_sitting_that_left_something_is_recorded(sit, record, tmp_path):
    assert sit("aaaaaaaaaaaa", until=1) == []  # stopped before there was a model: nothing of it is left
    assert sit("bbbbbbbbbbbb+", "one", until=2) == []
    commit, gpu = sit("cccccccccccc", "two", until=3)[::-1]
    assert commit == "started with commit bbbbbbbbbbbb+, resumed with cccccccccccc: its record names both"
    assert gpu == "started with gpu one, resumed with two: rounding will differ"
    assert len(sit("cccccccccccc", "two")) == 2  # still another than the first
    found = record()
    assert found["commit"] == "bbbbbbbbbbbb+ + cccccccccccc"
    assert found["gpu"] == "one + two"
    assert [(each["commit"], each["gpu"]) for each in found["sittings"]] == [
        ("bbbbbbbbbbbb+", "one"), ("cccccccccccc", "two"), ("cccccccccccc", "two")
    ]  # fmt: skip
    assert found["time"] == found["sittings"][0]["time"]
    (note,) = commit_note([{"commits": [found["commit"]]}])
    assert note.startswith("Runs by commit: 1 at bbbbbbb+ + ccccccc. ")
    assert run_facts(read_run(tmp_path / "run"))["sittings"] == 3


def test_one_sitting_is_recorded_as_it_always_was(sit, record):
    assert sit("aaaaaaaaaaaa", "one") == []
    assert "sittings" not in record()
    assert (record()["commit"], record()["gpu"]) == ("aaaaaaaaaaaa", "one")


def test_two_alike_are_named_once(sit, record):
    sit("aaaaaaaaaaaa", until=2)
    assert sit("aaaaaaaaaaaa") == []
    assert (record()["commit"], record()["gpu"], len(record()["sittings"])) == ("aaaaaaaaaaaa", None, 2)


def test_what_is_not_known_has_a_name_beside_what_is(sit, record):
    sit(None, until=2)
    assert sit("aaaaaaaaaaaa", "one") == []
    assert (record()["commit"], record()["gpu"]) == ("unknown + aaaaaaaaaaaa", "no GPU + one")
