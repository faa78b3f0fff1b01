"""A backfill on Ray at toy size, with a worker process killed on the way."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "bench" / "ray_backfill.py"


@pytest.mark.slow
def test_every_item_moves_once_although_a_worker_is_killed(tmp_path):
    pytest.importorskip("ray")
    pytest.importorskip("qdrant_edge")
    words = ["--items", "600", "--kills", "1", "--side", "48", "--shard-items", "50", "--folder", str(tmp_path)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(SCRIPT), *words, "--json", str(tmp_path / "x.json")]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=500, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "x.json").read_text())
    assert len(found["killed"]) == 1
    assert found["every_item_once"] is True
    assert found["same_as_ray"] is True
    assert found["largest_difference_from_here"] < 1e-6
    for row in found["copies"].values():
        assert (row["moved"], row["unreadable"], row["changed"]) == (600, 0, 0)
        assert row["items_by_version"] == row["vectors_by_version"] == {"1": 0, "2": 600}
