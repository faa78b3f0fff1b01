"""The whole story of an adopted store at toy size: a plain classifier's vectors, adopted, trained against, checked."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "bench" / "adopt.py"


@pytest.mark.slow
def test_every_way_is_adopted_trained_and_checked(tmp_path):
    words = ["--toy", "--device", "cpu", "--seeds", "0", "--lambdas", "0.5", "--json", str(tmp_path / "x.json")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, str(SCRIPT), *words], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    (story,) = json.loads((tmp_path / "x.json").read_text())["stories"]
    assert [way["name"] for way in story["adopt"]["ways"]] == ["projection", "means", "bridge"]
    assert set(story["checks"]) == {
        "new model as it is",
        "bridge",
        "projection, lambda 0.5",
        "projection, lambda 0.5, store projected",
        "means, lambda 0.5",
    }
    self_tests = {name: found["self"]["value"] for name, found in story["checks"].items()}
    del self_tests["projection, lambda 0.5, store projected"]
    assert len(set(self_tests.values())) == 1  # one untouched store for all
    for found in story["checks"].values():
        gain = found["gain"]
        assert gain["low"] <= gain["value"] <= gain["high"]
        assert gain["value"] == pytest.approx(found["cross"]["value"] - found["self"]["value"])


@pytest.mark.slow
def test_times_of_adopt(tmp_path):
    script = SCRIPT.parent / "adopt_time.py"
    words = ["--toy", "--threads", "1", "--json", str(tmp_path / "x.json")]
    done = subprocess.run([sys.executable, str(script), *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    rows = json.loads((tmp_path / "x.json").read_text())["rows"]
    assert [row["command"] for row in rows] == ["plain", "new", "all"]
    assert rows[1]["verdicts"] == rows[2]["verdicts"]  # so few items are not sampled
    assert all(0 < row["gap_s"] <= row["wall_s"] for row in rows)
