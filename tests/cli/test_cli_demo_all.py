"""The demo as it is: all methods on glyphs, with the recipe users get."""

import json
import math

import pytest
from typer.testing import CliRunner

from holdfast.cli import app
from holdfast.engine.journal import read_events
from holdfast.methods import METHODS


@pytest.mark.slow
def test_all_are_compared(tmp_path):
    result = CliRunner().invoke(app, ["demo", "--methods", "all", "--out", str(tmp_path / "demo"), "--json"])
    assert result.exit_code == 0, result.output
    rows = {row["name"]: row for row in json.loads(result.stdout)}
    assert list(rows) == list(METHODS)
    for name, row in rows.items():
        assert len(row["matrix"]) >= 5
        losses = [e["loss"] for e in read_events(tmp_path / "demo" / name / "log.jsonl") if e["event"] == "epoch"]
        assert losses
        assert all(math.isfinite(loss) for loss in losses)
    assert rows["simplex_hoc"]["AC"] >= rows["er"]["AC"] + 0.3
    page = (tmp_path / "demo" / "report.html").read_text(encoding="utf-8")
    for shown in (
        "ER",
        "FAN",
        "BCT-ER",
        "LCE-ER",
        "AdvBCT-ER",
        "CVS",
        "d-Simplex-FD",
        "d-Simplex-HOC",
        "d-Simplex-HOC-Views (ours)",
    ):
        assert shown in page
