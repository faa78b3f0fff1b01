"""The page that shows how far an update goes at one lambda."""

import numpy as np
import pytest

from holdfast.train.scenarios import cl2r
from papers.stationary import Results
from papers.stationary.cifar_runs import paper_run
from papers.stationary.pages import PAGES
from papers.stationary.result_page import EVERYTHING, Selection
from papers.stationary.studies.update_gain import LAMBDAS, PRINTED, lambda_run
from papers.stationary.study_runs import classes_seen

UPDATE_GAIN = PAGES["stride"]


@pytest.mark.parametrize("tasks", [2, 7, 16, 31])
def test_the_classes_seen_are_the_scenarios(tasks):
    labels = np.repeat(np.arange(100), 30)
    made = cl2r(labels, [str(label) for label in range(100)], initial=10, tasks=tasks)
    assert classes_seen(paper_run("er", tasks).recipe) == [len(task.seen_classes) for task in made.tasks]


def test_other_lambdas_are_all_that_is_changed():
    for tasks, values in LAMBDAS.items():
        own = paper_run("simplex_hoc", tasks)
        for value in values:
            method = lambda_run(tasks, value).recipe["method"]
            assert method == {**own.recipe["method"], "lambda": value}
        assert lambda_run(tasks, PRINTED) == own
    assert lambda_run(7, 0.3) in PAGES["questions"].runs()
    assert {lambda_run(16, value) for value in LAMBDAS[16]} <= set(PAGES["table8"].runs())


def test_what_a_run_shows(tmp_path, fake):
    run = lambda_run(7, PRINTED)
    matrix = fake(run, tmp_path)["protocols"]["template"]["matrix"]
    own = [line[i] for i, line in enumerate(matrix)]
    (row,) = (r for r in UPDATE_GAIN.rows(Results(tmp_path), EVERYTHING) if r["seeds"])
    assert row["self_tests"] == own
    assert row["classes"] == [10, 25, 40, 55, 70, 85, 100]
    strides, lambdas = UPDATE_GAIN.tables(Results(tmp_path), Selection(tasks=[2, 7]))
    shown = [f"{100 * own[model]:.2f}" for model in (0, 1, 2, 6)]
    assert strides.rows[1] == ["d-Simplex-HOC", "6", "15", *shown]
    assert strides.rows[0] == ["d-Simplex-HOC", "1", "90", "missing", "missing", "–", "missing"]
    assert [line[:2] for line in lambdas.rows][3:] == [["7", "0.1 (paper's)"], ["7", "0.2"], ["7", "0.3"]]
    assert lambdas.rows[3][2] != "missing" == lambdas.rows[4][2]
    (figure,) = UPDATE_GAIN.figures(Results(tmp_path))
    assert figure.data == {"d-Simplex-HOC, λ 0.1": {"6 updates": [row["classes"], own]}}
    figure.draw(figure.data, tmp_path / "stride.png")
    assert (tmp_path / "stride.png").read_bytes().startswith(b"\x89PNG")


def test_nothing_is_drawn_of_nothing(tmp_path):
    assert UPDATE_GAIN.figures(Results(tmp_path)) == []
