"""Hostile files of every format, with committed seeds: one line at most. The bench finds each kind of failure."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[2] / "bench"


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.parametrize("seed", [0])
def test_hostile_files(seed, tmp_path):
    pytest.importorskip("qdrant_edge")
    pytest.importorskip("pyarrow")
    words = ["--files", "63", "--seed", str(seed), "--seconds", "30", "--json", str(tmp_path / "x.json")]
    command = [sys.executable, str(BENCH / "hostile_files.py"), *words, "--folder", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((tmp_path / "x.json").read_text())
    assert found["failures"] == []
    assert len(found["rows"]) == 21
    assert all(row["files"] == 3 == row["refused"] + row["accepted"] for row in found["rows"])
    assert sum(row["refused"] for row in found["rows"]) > 25
    assert all(0 < row["peak_mb"] < 2048 for row in found["rows"])


SCRIPT = """
import os, sys, time
sys.path.insert(0, {bench!r})
from hostile_files import HoldfastError, in_a_process

def refuse(): raise HoldfastError("one line")
def two_lines(): raise HoldfastError("one\\nline")
for work in (refuse, two_lines, lambda: 1 / 0, lambda: time.sleep(60), os.abort, lambda: None,
             lambda: b"x" * (2200 * 2**20), lambda: bytearray(2**36)):
    print(in_a_process(work, 8).kind)
"""


@pytest.mark.slow
def test_every_kind_of_failure_is_found():
    pytest.importorskip("qdrant_edge")
    script = SCRIPT.format(bench=str(BENCH))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=200, check=False)
    kinds = ["refused", "unclear", "traceback", "hang", "crash", "accepted", "memory", "traceback"]
    assert done.stdout.split() == kinds, done.stderr
