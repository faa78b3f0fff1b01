"""The estimate of ``doctor --plan``: its figures are those of the bench, and it grows as it should."""

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from holdfast.cli import app
from holdfast.core.errors import HoldfastError
from holdfast.gallery.capacity import MEASURED, MEASURED_DIM, MEASURED_ITEMS, parse_count, plan_capacity

RESULTS = Path(__file__).parents[2] / "results" / "bench" / "scale-2cores.json"


def test_the_plan_for_the_measured_size_is_what_was_measured():
    record = json.loads(RESULTS.read_text())
    assert (record["items"], record["dim"]) == (MEASURED_ITEMS, MEASURED_DIM)
    row, several = (record["rows"][f"embedded-{versions}"] for versions in (1, MEASURED.index_versions))
    plan = plan_capacity(MEASURED_ITEMS, MEASURED_DIM)
    assert plan.disk_gb + plan.index_disk_gb == pytest.approx(row["disk_gb"], rel=0.05)  # before and after the index
    # The bench shared the cores with other work: this row is the least disturbed, and processor time counts.
    assert plan.store_s == pytest.approx(MEASURED_ITEMS / several["stored_per_s"], rel=0.05)
    assert plan.index_memory_gb == pytest.approx(row["index_gb"], rel=0.05)
    plan = plan_capacity(MEASURED_ITEMS, MEASURED_DIM, versions=MEASURED.index_versions)
    assert plan.index_s == pytest.approx(several["index_cpu_s"] / 2, rel=0.05)
    for name, found in record["rows"].items():
        kind, _, versions = name.rpartition("-")
        if kind == "embedded":
            plan = plan_capacity(MEASURED_ITEMS, MEASURED_DIM, versions=int(versions))
            assert plan.search_ms == pytest.approx(found["gallery"]["p50_ms"], rel=0.05)


def test_sizes_grow_with_items_and_numbers():
    one, ten = (plan_capacity(items, 512, embedded_per_s=100) for items in (10**6, 10**7))
    assert ten.disk_gb == pytest.approx(10 * one.disk_gb)
    assert ten.memory_gb == pytest.approx(10 * one.memory_gb)
    assert 10 * one.index_s < ten.index_s < 13 * one.index_s
    assert ten.reembed_s == 10**5
    wide = plan_capacity(10**6, 1024)
    assert one.disk_gb < wide.disk_gb < 2 * one.disk_gb
    assert wide.index_s == pytest.approx(2 * one.index_s)


def test_versions_share_the_items():
    one, five = (plan_capacity(10**6, 512, versions=n, embedded_per_s=100) for n in (1, 5))
    assert five.disk_gb == pytest.approx(one.disk_gb)
    assert five.index_disk_gb == pytest.approx(one.index_disk_gb / 5)
    assert five.index_s < one.index_s
    assert five.search_ms > one.search_ms
    assert (one.bridges_mb, one.bridge_s) == (0, 0)
    assert five.bridges_mb == pytest.approx(20 * 512 * 512 * 4 / 1e6)
    assert five.bridge_s == 80


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("250000", 250_000),
        ("20M", 20_000_000),
        ("1.5b", 1_500_000_000),
        ("2 k", 2000),
        ("1,500,000", 1_500_000),
        ("20_000", 20_000),
    ],
)
def test_counts(text, count):
    assert parse_count(text) == count


@pytest.mark.parametrize("text", ["", "many", "-3", "3T", "nan", "1,5M", "1,50", "2__000"])
def test_counts_that_are_none(text):
    with pytest.raises(HoldfastError, match="give a number of items"):
        parse_count(text)


def test_refusals():
    with pytest.raises(HoldfastError, match="items must be at least 1"):
        plan_capacity(0, 512)
    with pytest.raises(HoldfastError, match="above 0"):
        plan_capacity(1, 512, embedded_per_s=0)


def test_the_page_shows_what_the_command_prints():
    page = (Path(__file__).parents[2] / "docs" / "capacity.md").read_text(encoding="utf-8")
    command, _, shown = re.search(r"```console\n\$ holdfast (.*?)(\n)(.*?)```", page, re.DOTALL).groups()
    printed = CliRunner().invoke(app, command.split()).output
    assert [line.rstrip() for line in shown.splitlines()] == [line.rstrip() for line in printed.splitlines()]


def test_command():
    words = ["doctor", "--plan", "20M", "--dim", "512", "--versions", "3", "--rate", "500"]
    shown = CliRunner().invoke(app, words)
    assert shown.exit_code == 0, shown.output
    assert "20,000,000 vectors of 512 numbers in 3 versions" in shown.output
    assert "11.1 hours" in shown.output
    assert max(map(len, shown.output.splitlines())) <= 80
    found = json.loads(CliRunner().invoke(app, [*words, "--json"]).output)
    assert found["reembed_s"] == 40_000
    assert found["bridge_s"] == 8
