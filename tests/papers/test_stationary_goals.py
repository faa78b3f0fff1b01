"""Goals are judged on what was measured, and on nothing while a run is missing."""

import pytest

from papers.stationary import Results, Selection, table2
from papers.stationary.cifar_runs import OURS, PAPER_METHODS, tuned_run
from papers.stationary.result_page import EVERYTHING
from papers.stationary.studies.goals import GOALS, GOALS_PAGE, Goal, judged

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


def test_the_page_says_how_many_seeds_and_where_goals_come_from(tmp_path, fake):
    for seed in (0, 1, 2):
        fake(tuned_run(OURS, 7, seed=seed), tmp_path, seed=seed)
    rows, (table,) = (made(Results(tmp_path), EVERYTHING) for made in (GOALS_PAGE.rows, GOALS_PAGE.tables))
    counts = [line[table.header.index("n")] for line in table.rows]
    assert counts == ["3" if (row["method"], row["tasks"]) == (OURS, 7) else "0" for row in rows]
    assert any("set before these runs" in note for note in table.notes)
    assert any(note.startswith("(aim): ") for note in table.notes)


def test_what_is_chosen_is_judged(tmp_path, fake):
    records = [fake(tuned_run(OURS, 7, seed=seed), tmp_path, seed=seed) for seed in (0, 1)]
    for seed, record in enumerate(records):
        rows = GOALS_PAGE.rows(Results(tmp_path), Selection(methods=[OURS], tasks=[7], seeds=[seed]))
        assert {row["found"] for row in rows if row["score"] == "AC"} == {record["protocols"]["template"]["AC"]}
        assert all(row["seeds"] == [seed] for row in rows)
    for nothing in (Selection(seeds=[9]), Selection(orders=["icarl"]), Selection(sets=["paper"]), Selection(tasks=[3])):
        assert GOALS_PAGE.rows(Results(tmp_path), nothing) == []


def test_every_goal_is_of_a_run_of_table_two():
    planned = {(run.method, run.tasks) for run in table2.runs() if (run.set_name, run.order) == JUDGED_ON}
    assert {(goal.method, goal.tasks) for goal in GOALS} <= planned
    assert {goal.method for goal in GOALS} == {"simplex_hoc", OURS}
    assert len(GOALS) == len(set(GOALS)) == 24
