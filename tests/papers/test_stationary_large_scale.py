"""The hours of all of Figure 8, added up from what was measured of two methods."""

import json
from pathlib import Path

import pytest

from papers.stationary import PAGES, Results
from papers.stationary.curve_figures import MEASURED, whole_experiment
from papers.stationary.result_page import EVERYTHING

REPOSITORY = Path(__file__).parents[2]
HOURS = [
    {"method": "simplex_hoc", "step": "fine-tuning", "hours": 100.0},
    {"method": "simplex_hoc", "step": "pre-training", "hours": 7.0},
    {"method": "er", "step": "fine-tuning", "hours": 10.0},
    {"method": "er", "step": "pre-training", "hours": 3.0},
]


def shown(root):
    (table,) = PAGES["fig8"].tables(Results(root), EVERYTHING)
    return table.notes[-1]


def test_the_sum_by_hand():
    """Five methods ask the old model for features; ER does not, nor do BCT and LCE, which ask its classifier."""
    whole = whole_experiment(HOURS)
    assert whole["counted_as"] == {
        "simplex_hoc": ["fan", "advbct", "cvs", "simplex_fd", "simplex_hoc"],
        "er": ["er", "bct", "lce"],
    }
    assert whole["runs"] == 16
    assert whole["hours"] == 2 * (5 * 100 + 3 * 10) + 7 + 3
    assert "the others (ER, BCT-ER, LCE-ER) as ER" in whole["assumption"]


@pytest.mark.parametrize("absent", range(4))
def test_no_sum_where_a_part_was_not_measured(absent):
    assert whole_experiment([one for i, one in enumerate(HOURS) if i != absent]) is None


def test_the_page_adds_up_what_is_on_record(tmp_path):
    (tmp_path / MEASURED).parent.mkdir()
    (tmp_path / MEASURED).write_text(json.dumps({"environment": {"gpu": "Abacus"}, "hours": HOURS}))
    assert "on one Abacus about 1070 hours for the paper's eight methods in both scenarios, 1060 for" in shown(tmp_path)
    (tmp_path / MEASURED).unlink()
    assert shown(tmp_path).endswith("`bench/large_step.py` says how many hours that is.")


def test_the_committed_hours_follow_from_the_committed_steps():
    record = json.loads((REPOSITORY / "results" / MEASURED).read_text(encoding="utf-8"))
    for row, hours in zip(record["rows"], record["hours"], strict=True):
        assert (row["method"], row["step"]) == (hours["method"], hours["step"])
        assert hours["hours"] == pytest.approx(hours["steps"] * row["median_ms"] / 3.6e6)
    assert "about 246 hours" in shown(REPOSITORY / "results")
