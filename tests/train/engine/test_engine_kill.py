"""A run killed with SIGKILL and resumed ends where one never killed ends, bit for bit."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from holdfast.core.storage import TEMPORARY
from holdfast.train.events import read_events

EPOCHS = 40
SETTINGS = [f"train.epochs={EPOCHS}", "train.checkpoint_minutes=0.0002", "method.negatives=masked"]
DEADLINE = 100.0


class Command:
    """``python -m holdfast run`` on one folder, as a user starts it: with as many threads as torch likes."""

    def __init__(self, recipe: Path, folder: Path) -> None:
        self.folder = folder
        sets = [word for setting in SETTINGS for word in ("--set", setting)]
        self.words = [sys.executable, "-m", "holdfast", "run", str(recipe), "--out", str(folder), *sets]
        own = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
        # Threads that wait for each other must not spin: beside other processes a run takes five times as long then.
        self.environment = {**own, "OMP_WAIT_POLICY": "passive"}

    def start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(self.words, env=self.environment, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)

    def finish(self) -> None:
        process = self.start()
        _, errors = process.communicate(timeout=DEADLINE)
        assert process.returncode == 0, errors.decode()

    def kill(self, *, seconds: float, epochs_done: int = 0) -> bool:
        """Kill the run so many seconds after its log tells of so many epochs; False if it had ended by then."""
        process = self.start()
        deadline = time.monotonic() + DEADLINE
        while len(epochs(self.folder)) < epochs_done and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)  # reading the log more often takes the core that the run needs
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
        _, errors = process.communicate()
        assert process.returncode in (0, -signal.SIGKILL), errors.decode()
        return process.returncode != 0


def matrices(folder: Path) -> dict[str, list]:
    protocols = json.loads((folder / "metrics.json").read_text())["protocols"]
    return {name: protocol["matrix"] for name, protocol in protocols.items()}


def lasting(folder: Path) -> dict[str, bytes]:
    """The files that must not depend on the kills: every model, what its method keeps, every feature."""
    files = [*folder.glob("models/*/*"), *folder.glob("features/**/*.npy"), folder / "recipe.toml"]
    return {str(file.relative_to(folder)): file.read_bytes() for file in files}


def epochs(folder: Path) -> list[tuple[int, int]]:
    events = read_events(folder / "log.jsonl")
    return [(event["task"], event["epoch"]) for event in events if event["event"] == "epoch"]


@pytest.fixture(scope="module")
def never_killed(tiny_recipe, tmp_path_factory):
    """The folder of a run that was left alone, and how long it took."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    started = time.monotonic()
    Command(tiny_recipe, folder).finish()
    return folder, time.monotonic() - started


def check(folder: Path, whole: Path) -> None:
    assert matrices(folder) == matrices(whole)
    found, expected = lasting(folder), lasting(whole)
    assert found.keys() == expected.keys()
    assert [name for name in expected if found[name] != expected[name]] == []
    assert epochs(folder) == [(task, epoch) for task in (1, 2, 3) for epoch in range(1, EPOCHS + 1)]
    assert not list(folder.rglob(f"{TEMPORARY}*"))
    assert not (folder / "checkpoint.safetensors").exists()


@pytest.mark.slow
def test_killed_again_and_again_in_training(tiny_recipe, never_killed, tmp_path):
    whole, _ = never_killed
    command = Command(tiny_recipe, tmp_path / "run")
    moments = random.Random(0)
    life = 3 * EPOCHS / 8  # eight lives: the last one ends by itself
    for i in range(7):
        epochs_done = round(life * (i + moments.random()))
        assert command.kill(seconds=moments.uniform(0, 0.02), epochs_done=epochs_done)
    command.finish()
    check(command.folder, whole)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_killed_at_any_moment(seed, tiny_recipe, never_killed, tmp_path):
    """Also while libraries are imported, data is drawn, features, matrices and the report are written."""
    whole, seconds = never_killed
    command = Command(tiny_recipe, tmp_path / "run")
    moments = random.Random(seed)
    for low, high in ((0.3, 0.6), (0.6, 0.8), (0.5, 0.95)):
        command.kill(seconds=seconds * moments.uniform(low, high))
    command.finish()
    check(command.folder, whole)
