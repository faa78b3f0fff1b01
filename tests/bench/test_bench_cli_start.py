"""The bench of short commands runs and writes what it prints."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[2] / "bench" / "cli_start.py"


@pytest.mark.slow
def test_every_command_is_measured(tmp_path):
    pytest.importorskip("qdrant_edge")
    command = [sys.executable, str(BENCH), "--repeats", "1", "--json", str(tmp_path / "x.json")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "x.json").read_text())
    rows = {row["command"]: row for row in found["rows"]}
    assert list(rows) == [
        "python",
        "import torch",
        "holdfast --help",
        "holdfast doctor",
        "holdfast gallery search",
    ]
    cpu = {name: row["cpu_s"]["median"] for name, row in rows.items()}
    assert cpu["python"] < cpu["holdfast --help"] < cpu["holdfast gallery search"]
    beyond = rows["holdfast gallery search"]["cpu_beyond_torch_s"]
    assert beyond == pytest.approx(cpu["holdfast gallery search"] - cpu["import torch"])
    assert f"{beyond:.2f}" in done.stdout
