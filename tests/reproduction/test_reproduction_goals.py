"""Goals are judged on what was measured, and on nothing while a run is missing."""

import pytest

from holdfast.reproduction import table2
from holdfast.reproduction.cifar import OURS, PAPER_METHODS
from holdfast.reproduction.goals import GOALS, Goal, judged

JUDGED_ON = ("tuned", "natural")
MEASURED = {(method, 7): {"AC": 0.1 * i, "AA": 0.4 + 0.01 * i} for i, method in enumerate(PAPER_METHODS)}


@pytest.mark.parametrize(
    ("goal", "found", "margin", "met"),
    [
        (Goal(OURS, 7, "AC", 0.9), 0.95, 0.05, True),
        (Goal(OURS, 7, "AC", 0.9), 0.9, 0.0, True),
        (Goal(OURS, 7, "AC", 0.9), 0.8, -0.1, False),
        (Goal(OURS, 7, "AA", "best other"), 0.465, -0.005, False),
        (Goal(OURS, 7, "AA", "best other", short=0.01), 0.465, 0.005, True),
        (Goal(OURS, 7, "AC", "ahead of others"), 0.7, 0.0, False),
        (Goal("simplex_hoc", 7, "AC", "ahead of others"), 0.7, 0.1, True),
    ],
)
def test_by_hand(goal, found, margin, met):
    measured = {**MEASURED, (goal.method, 7): {"AC": found, "AA": found}}
    row = judged(goal, measured)
    assert row["margin"] == pytest.approx(margin)
    assert row["met"] is met


def test_a_missing_run_decides_nothing():
    assert judged(Goal(OURS, 7, "AC", 0.9), MEASURED)["met"] is None
    some = {**MEASURED, (OURS, 7): {"AA": 0.9}, ("er", 7): {"AA": None}}
    assert judged(Goal(OURS, 7, "AA", "best other"), some)["met"] is None


def test_a_rival_that_is_ahead_decides_though_others_are_missing():
    some = {**MEASURED, (OURS, 7): {"AA": 0.1}, ("er", 7): {"AA": None}}
    row = judged(Goal(OURS, 7, "AA", "best other"), some)
    assert row["met"] is False
    assert row["so_far"]
    assert row["margin"] < 0


def test_what_is_needed_is_not_told_while_it_may_rise():
    row = judged(Goal(OURS, 7, "AA", "best other"), {("er", 7): {"AA": 0.4}})
    assert row["needed"] is row["met"] is None
    assert not row["so_far"]


def test_every_goal_is_of_a_run_of_table_two():
    planned = {(cell.method, cell.tasks) for cell in table2.cells() if (cell.set_name, cell.order) == JUDGED_ON}
    assert {(goal.method, goal.tasks) for goal in GOALS} <= planned
    assert {goal.method for goal in GOALS} == {"simplex_hoc", OURS}
    assert len(GOALS) == len(set(GOALS)) == 24
