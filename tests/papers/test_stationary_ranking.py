"""The comparison of both rankings, for runs with made-up scores after each task."""

import json

import pytest

from papers.stationary import Results
from papers.stationary.iam_runs import iam_run
from papers.stationary.ranking import mean_curves, ranking_table


@pytest.fixture
def results(tmp_path, monkeypatch):
    """A function: method -> list of AA after each task, one list per seed; AC is a hundredth of it."""
    monkeypatch.setattr("papers.stationary.study_runs.StudyRun.is_of", lambda self, recipe: True)

    def write(**curves):
        runs = []
        for method, seeds in curves.items():
            for seed, curve in enumerate(seeds):
                run = iam_run("replaced", method, len(curve), seed=seed)
                ac = [None if value is None else value / 100 for value in curve]
                template = {"AC": ac[-1], "AA": curve[-1], "ACA": 0.0, "AA_tau": curve, "AC_tau": ac}
                path = tmp_path / run.path
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(json.dumps({"recipe": {}, "protocols": {"template": template}}))
                runs.append(run)
        return Results(tmp_path), runs

    return write


def lines(results, paper):
    (table,) = ranking_table(*results, {method: {"3": printed} for method, printed in paper.items()})
    return table.rows


def test_the_same_order(results):
    found = results(simplex_hoc=[[0.1, 0.5, 0.6]], er=[[0.1, 0.2, 0.3]], cvs=[[0.2, 0.3, 0.4]])
    assert lines(found, {"simplex_hoc": [0.9, 60.0, 50.0], "cvs": [0.2, 50.0, 1.0], "er": [0.1, 40.0, 1.0]}) == [
        ["3", "AC", "3", "d-Simplex-HOC", "d-Simplex-HOC", "3 of 3", "–"],
        ["3", "AA", "3", "d-Simplex-HOC", "d-Simplex-HOC", "3 of 3", "–"],
    ]


def test_another_order_names_the_methods_and_the_task(results):
    found = results(
        simplex_fd=[[0.5, 0.1, 0.1, 0.1]], er=[[0.1, 0.2, 0.3, 0.3]], bct=[[0.1, 0.05, 0.2, 0.4]], fan=[[0.6] * 4]
    )
    paper = {"fan": [0.0, 60.0], "simplex_fd": [0.0, 50.0], "er": [0.0, 40.0], "bct": [0.0, 30.0]}
    (table,) = ranking_table(*found, {method: {"4": printed} for method, printed in paper.items()})
    ac, aa = table.rows
    assert ac[3:] == ["FAN", "all", "–", "–"]  # the paper's AC are all the same
    assert aa[3:6] == ["FAN", "FAN", "3 of 6"]
    assert aa[6] == "d-Simplex-FD is behind ER since task 2, BCT-ER since task 3; ER is behind BCT-ER since task 4"


def test_curves_are_means_over_seeds(results):
    found = results(er=[[0.1, 0.2, 0.3], [0.3, 0.4, None]])
    assert mean_curves(*found)["er"]["AA"] == [pytest.approx(0.2), pytest.approx(0.3), None]


def test_what_cannot_be_compared_is_left_out(results):
    found = results(er=[[0.1, 0.2, None]], fan=[[0.2] * 3], cvs=[[0.3] * 3], simplex_hoc_views=[[0.9] * 3])
    (ac,) = lines(found, {"er": [0.0, 3.0], "fan": [0.1, 2.0], "cvs": ["<0.01", "–"]})
    assert ac[1:3] == ["AC", "2"]  # ER has no score, our own method is not in the paper
    assert ac[3:] == ["CVS", "FAN", "0 of 1", "FAN is behind CVS since task 1"]
