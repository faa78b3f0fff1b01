"""The demo: as users get it, and with all methods."""

import json
import math

import pytest
from typer.testing import CliRunner

from holdfast.cli import app
from holdfast.events import read_events
from holdfast.methods import METHODS
from holdfast.reports import METHOD_NAMES


def compared(out, *options):
    """The rows by method, once all that every demo must give is there."""
    result = CliRunner().invoke(app, ["demo", "--out", str(out), "--json", *options])
    assert result.exit_code == 0, result.output
    rows = {row["name"]: row for row in json.loads(result.stdout)}
    page = (out / "report.html").read_text(encoding="utf-8")
    for name, row in rows.items():
        assert len(row["matrix"]) >= 5
        losses = [e["loss"] for e in read_events(out / name / "log.jsonl") if e["event"] == "epoch"]
        assert losses
        assert all(math.isfinite(loss) for loss in losses)
        assert METHOD_NAMES[name] in page
    return rows


@pytest.mark.slow
@pytest.mark.ci
def test_as_it_is(tmp_path):
    rows = compared(tmp_path / "demo")
    assert list(rows) == ["er", "simplex_fd", "simplex_hoc"]
    assert rows["simplex_hoc"]["AC"] >= rows["er"]["AC"] + 0.3


# A third of the images in batches a third as large: as many steps, at the same rate, for a third of the work.
SMALLER = [
    "train.epochs=3", "data.train.per_class_train=20", "scenario.buffer_per_class=3", "train.batch_size=21",
    "data.query.per_class_query=8", "data.gallery.per_class_gallery=4",
]  # fmt: skip


@pytest.mark.slow
def test_all_are_compared(tmp_path):
    sets = [word for setting in SMALLER for word in ("--set", setting)]
    assert list(compared(tmp_path / "demo", "--methods", "all", *sets)) == list(METHODS)
