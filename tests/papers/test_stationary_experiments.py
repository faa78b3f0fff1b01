"""The experiments on Table 2: their runs, and what docs/reproduction-details.md says of them."""

import json
from pathlib import Path

import pytest

from papers.stationary import PAGES, Results
from papers.stationary.result_page import EVERYTHING
from papers.stationary.studies.table2_experiments import EXPERIMENTS

ROOT = Path(__file__).parents[2]
PAGE = PAGES["experiments"]


@pytest.fixture(scope="module")
def rows():
    return PAGE.rows(Results(ROOT / "results"), EVERYTHING)


@pytest.fixture(scope="module")
def said():
    return " ".join((ROOT / "docs/reproduction-details.md").read_text(encoding="utf-8").split())


def test_every_run_has_its_own_file_and_readings():
    runs = PAGE.runs()
    assert len({run.path for run in runs}) == len(runs) == 63
    assert all(run.measures == ("readings",) and run.study == "experiments" for run in runs)


def test_experiments_are_numbered_as_in_the_list_of_verdicts(said):
    assert [experiment.number for experiment in EXPERIMENTS] == [1, 2, 3, 4, 5, 6]
    assert all(f"| {number}. " in said for number in range(7))


def test_a_run_with_learned_maps_shows_its_own_scores(tmp_path):
    case = next(case for case in EXPERIMENTS[-1].cases if (case.about, case.tasks) == ("learned maps", 7))
    assert case.run.recipe["method"]["transformations"] is True
    scores = {"AC": 0.25, "AA": 0.4515, "ACA": 0.1038}
    protocols = {"template": scores, "instance": {"AC": 0.0, "AA": 0.4, "ACA": 0.0}}
    record = {
        "recipe": dict(case.run.recipe.tables),
        "readings": {"simplex": {"plain": protocols}},
        "protocols": protocols,
    }
    path = tmp_path / case.run.path
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(record), encoding="utf-8")
    tables = {table.title.split(":")[0]: table for table in PAGE.tables(Results(tmp_path), EVERYTHING)}
    start = ["7", "LCE-ER", "learned maps"]
    nothing = ["–"] * 5
    assert [*start, "**0.25 45.15 10.38**", *nothing, "0.24 45.15 10.38"] in tables["Experiment 6, by template"].rows
    assert [*start, "0.00 40.00 0.00", *nothing] in tables["Experiment 6, by instance"].rows
    assert ["LCE-ER", "learned maps", "simplex", "", "yes", "", ""] in next(iter(tables.values())).rows
