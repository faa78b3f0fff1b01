"""Page ``search``: the tries of each method, and which of them is chosen without and with a rotation."""

import json

import pytest

from papers.stationary import PAGES, Results
from papers.stationary.cifar_runs import OURS
from papers.stationary.readings import OTHER_IMAGES
from papers.stationary.result_page import EVERYTHING, Selection
from papers.stationary.studies.validation_tries import METHODS, TRIED, winner

PAGE = PAGES["search"]


def test_every_method_has_six_tries():
    assert set(TRIED) == set(METHODS)
    for method, tries in TRIED.items():
        assert len(set(tries)) == 6, method
        assert () in tries or method == OURS
    runs = PAGE.runs()
    assert len({run.path for run in runs}) == len(runs) == 60
    assert {(run.tasks, run.recipe["train"]["epochs"]) for run in runs} == {(7, 40)}


def test_nothing_is_tried_on_the_test_classes():
    for run in PAGE.runs():
        assert {run.recipe["data"][split]["name"] for split in ("query", "gallery")} == {OTHER_IMAGES["name"]}


def scored(ac, aa, aca):
    return {"AC": ac, "AA": aa, "ACA": aca}


def test_each_score_chooses_a_try(tmp_path):
    """Made-up results: with each further try the plain ACA falls and the rotated ACA of the backbone rises."""
    runs = Selection(methods=["simplex_hoc"]).of(PAGE.runs())
    for number, run in enumerate(runs):
        falling, rising = scored(0.5, 0.4, 0.3 - 0.01 * number), scored(0.9, 0.4, 0.3 + 0.01 * number)
        record = {
            "recipe": dict(run.recipe.tables),
            "environment": {"commit": "0123abc"},
            "data": {},
            "protocols": {"template": falling, "instance": falling},
            "readings": {
                "simplex": {"rotation_gallery": {"template": falling}},
                "backbone": {"rotation_gallery": {"template": rising}},
            },
        }
        path = tmp_path / run.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(record), encoding="utf-8")
    rows = PAGE.rows(Results(tmp_path), Selection(methods=["simplex_hoc"]))
    assert [line["chosen"] for line in rows] == [["ACA"], [], [], [], [], ["ACA with rotation"]]
    assert rows[-1]["rotated"]["ACA"] == pytest.approx(0.35)


def test_no_try_is_chosen_before_all_are_there():
    rows = PAGE.rows(Results("nowhere"), EVERYTHING)
    assert all(line["chosen"] == [] and line["rotated"] is None for line in rows)


def test_the_winner_has_the_highest_aca_then_aa():
    tries = [{"ACA": aca, "AA": aa, "diverged": []} for aca, aa in ((0.3, 0.5), (0.4, 0.4), (0.4, 0.45))]
    assert winner(tries) is tries[2]
    assert winner([*tries, {"ACA": None, "AA": None, "diverged": []}]) is None
    assert winner([*tries, {"ACA": None, "AA": None, "diverged": [0]}]) is tries[2]
    assert winner([]) is None
