"""The page of bridges shows the committed figures, and these meet the goals."""

import json
import sys
from pathlib import Path
from statistics import mean

import pytest

BENCH = Path(__file__).parents[2] / "bench"
FIGURES = BENCH.parent / "results" / "bench"


@pytest.fixture
def bridge_page(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCH))
    monkeypatch.delitem(sys.modules, "bridge_page", raising=False)
    import bridge_page

    return bridge_page


def figures(name):
    return json.loads((FIGURES / f"bridge_quality_{name}.json").read_text(encoding="utf-8"))


def test_the_page_is_rendered_from_the_figures(bridge_page):
    assert bridge_page.PAGE.read_text(encoding="utf-8") == bridge_page.page()


@pytest.mark.parametrize(("name", "least"), [("cub-lite0-lite1", 0.93), ("cub-lite0-lite2", 0.91)])
def test_old_vectors_keep_most_of_the_accuracy(name, least):
    rows = [row for row in figures(name)["whole"] if (row["kind"], row["pairs"]) == ("auto", 1500)]
    assert len(rows) == 3
    assert mean(row["top1"] / row["reembedded"] for row in rows) >= least


@pytest.mark.parametrize(("layout", "kept", "at_1", "at_10"), [("even", 0.98, 0.8, 0.9), ("by class", 0.97, 0.9, 0.9)])
def test_old_items_are_found_in_a_mixed_gallery(layout, kept, at_1, at_10):
    rows = [
        row
        for row in figures("cub-lite0-lite2")["mixed"]
        if (row["layout"], row["pairs"], row["rule"]) == (layout, 1400, "best scores")
    ]
    assert len(rows) == 3
    assert mean(row["top1"] / row["reembedded"] for row in rows) >= kept
    assert min(row["exposure"]["1"] for row in rows) >= at_1
    assert min(row["exposure"]["10"] for row in rows) >= at_10


def test_the_choice_is_never_worse_than_no_map(bridge_page):
    """Where no map is possible, because both spaces have one size."""
    seen = 0
    for name in bridge_page.PAIRS:
        rows = figures(name)["whole"]
        for plain in (row for row in rows if row["kind"] == "none"):
            for row in rows:
                if row["kind"] == "auto" and row["seed"] == plain["seed"]:
                    noise = (plain["top1"] * (1 - plain["top1"]) / 2900) ** 0.5
                    assert row["top1"] >= plain["top1"] - noise
                    seen += 1
    assert seen >= 30
