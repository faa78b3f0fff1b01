"""Which runs the tables need: names, recipes, commands, order and cost."""

import itertools
import shlex

import numpy as np
import pytest

from holdfast.train.encoders import build_backbone
from holdfast.train.experiments.schema import check_recipe
from holdfast.train.scenarios.cl2r import class_order
from papers.readers import cub, tiny_imagenet_tests
from papers.stationary import PAGES, Results
from papers.stationary.cifar_runs import OURS, PAPER_METHODS, paper_run
from papers.stationary.recipe_files import read_study_recipe
from papers.stationary.result_page import EVERYTHING, printed_in_paper
from papers.stationary.studies.validation_tries import METHODS
from papers.stationary.study_runs import same_run
from papers.stationary.table2 import CHOSEN, WITHOUT

EVERY = [run for page in PAGES.values() for run in page.runs()]


@pytest.mark.parametrize("run", list({run.path: run for run in EVERY}.values()), ids=lambda run: run.name)
def test_a_command_gives_its_recipe(run):
    words = shlex.split(run.command)
    assert words[:4] == ["python", "-m", "papers.stationary", "run"]
    settings = [word for before, word in itertools.pairwise(words) if before == "--set"]
    recipe = check_recipe(read_study_recipe(words[4], settings))
    assert recipe.tables == run.recipe.tables
    assert (recipe.method, recipe.seed, recipe["scenario"]["tasks"]) == (run.method, run.seed, run.tasks)
    assert recipe["scenario"]["order_seed"] == (1993 if run.order == "icarl" else None)
    assert run.is_of(dict(recipe.tables))
    assert not run.is_of({**recipe.tables, "seed": 99})


@pytest.mark.parametrize(("tasks", "steps"), [(2, 27_440), (7, 30_240), (16, 35_350), (31, 43_890)])
def test_steps_by_hand(tasks, steps):
    """70 epochs; each has floor((500 new + 20 per class seen before) / 128) steps."""
    new = 90 // (tasks - 1)
    by_hand = 70 * (5000 // 128) + sum(70 * ((500 * new + 20 * (10 + new * i)) // 128) for i in range(tasks - 1))
    assert paper_run("er", tasks).steps == by_hand == steps
    assert paper_run("er", tasks, order="icarl", seed=3).steps == steps


def test_icarls_order():
    order = list(range(100))
    np.random.RandomState(1993).shuffle(order)
    assert tuple(order) == class_order(100, 1993)


@pytest.mark.parametrize("data", ["CIFAR100/10", "TinyImageNet200/20", "CUB180/20"])
def test_the_recipes_are_table_one_line_by_line(data):
    every = PAGES["table1"].rows(Results("nowhere"), EVERYTHING)
    assert list(dict.fromkeys(row["data"] for row in every)) == list(printed_in_paper("table1"))
    rows = {row["setting"]: row for row in every if row["data"] == data}
    assert list(rows) == list(printed_in_paper("table1")[data])
    decided_elsewhere = {"query samples", "gallery samples", "dimensions of compared methods"}
    decided_elsewhere |= {"input size"} if data == "CIFAR100/10" else set()  # its reader scales nothing
    for name, row in rows.items():
        assert set(row) == {"data", "setting", "paper", "here"}
        assert row["here"] == (None if name in decided_elsewhere else row["paper"]), name
    backbone = rows["backbone"]["here"]
    assert build_backbone(backbone).feature_dim == rows["dimensions of compared methods"]["paper"]


def test_table_one_has_the_counts_that_the_readers_hold_the_data_to():
    printed = printed_in_paper("table1")
    for data, counts, query, gallery in (
        ("TinyImageNet200/20", tiny_imagenet_tests.IMAGES_20, "train", "val"),
        ("CUB180/20", cub.IMAGES_20, "test", "train"),
    ):
        assert (counts[query], counts[gallery]) == (printed[data]["query samples"], printed[data]["gallery samples"])
    titles = [table.title for table in PAGES["table1"].tables(Results("nowhere"), EVERYTHING)]
    assert titles == [f"Settings of {data}, CL2R" for data in printed]


@pytest.mark.parametrize("method", PAPER_METHODS)
def test_the_paper_set_is_the_paper_to_the_letter(method):
    recipe = paper_run(method, 7).recipe
    assert recipe["train"]["schedule"] == "step"
    assert (recipe["train"]["momentum"], recipe["train"]["weight_decay"]) == (0.9, 5e-4)
    assert recipe["scenario"]["buffer_per_class"] == 20
    assert (recipe["data"]["query"]["split"], recipe["data"]["gallery"]["split"]) == ("train", "test")
    options = recipe["method"]
    if method.startswith("simplex"):
        assert (options["slots"], options["scale"]) == (100, "unit")
    if method == "simplex_hoc":
        assert (options["lambda"], options["rho"], options["negatives"]) == (0.1, 5.0, "authors")
    if method == "simplex_fd":
        assert (options["base"], options["on"], options["distance"]) == (5.0, "replayed", "cosine")


@pytest.mark.parametrize("method", METHODS)
def test_the_tuned_recipes_are_what_the_tries_chose(method):
    """They keep data, network, buffer and epochs of the method's recipe."""
    tuned = check_recipe(read_study_recipe(f"cifar100-10/tuned/{method}"))
    assert same_run(tuned, check_recipe(read_study_recipe(f"cifar100-10/{method}", CHOSEN[method][WITHOUT])))
    plain = check_recipe(read_study_recipe(f"cifar100-10/{method}"))
    for section in ("data", "scenario", "backbone", "preprocess", "evaluation"):
        assert tuned[section] == plain[section]
    assert tuned["train"]["epochs"] == plain["train"]["epochs"]
    assert tuned["train"]["batch_size"] == plain["train"]["batch_size"]


def test_table_eight_has_the_papers_values():
    rows = PAGES["table8"].rows(Results("nowhere"), EVERYTHING)
    values = {axis: [row["value"] for row in rows if row["axis"] == axis] for axis in ("K", "lambda", "rho")}
    assert values == {
        "K": [100, 200, 500, 1000, 5000, 10000],
        "lambda": [0, 0.05, 0.1, 0.25, 0.5, 1],
        "rho": [0.1, 0.5, 1, 5, 10, 25],
    }
    runs = PAGES["table8"].runs()
    assert len([run for run in runs if run.study == "ablation"]) == 15
    assert [run.path.name for run in runs if run.study == "paper"] == ["simplex_hoc-t16-natural-s0.json"]
    for run in runs:
        changed = {key: value for key, value in run.recipe["method"].items() if value != PLAIN[key]}
        assert len(changed) == (run.study == "ablation")


PLAIN = paper_run("simplex_hoc", 16).recipe["method"]


def test_the_papers_numbers_agree_with_each_other():
    """AC is a multiple of one pair, ACA lies between 0 and what AC pairs could have, and tables repeat each other."""
    table2, table8 = printed_in_paper("table2"), printed_in_paper("table8")
    assert set(table2) == set(PAPER_METHODS)
    for method, counts in table2.items():
        for tasks, (ac, aa, aca) in counts.items():
            pairs = int(tasks) * (int(tasks) - 1) / 2
            assert abs(ac * pairs - round(ac * pairs)) < 0.005 * pairs, (method, tasks)
            assert 10 < aa < 60
            assert (aca == 0) == (ac == 0)
            assert aca <= 100 * ac
    centre = table2["simplex_hoc"]["16"]
    for axis, value in (("K", "100"), ("lambda", "0.1"), ("rho", "5.0")):
        assert table8[axis][value] == pytest.approx(centre, abs=0.005)


@pytest.mark.parametrize(
    ("name", "family", "first", "others", "queries"),
    [("table3", "tinyimagenet200-20", 50, 150, "miniimagenet20"), ("table4", "cub180-20", 60, 120, "cub20")],
)
def test_tables_three_and_four_have_every_cell_of_the_paper(name, family, first, others, queries):
    runs = PAGES[name].runs()
    of_the_paper = [(run.tasks, run.method) for run in runs if run.method != OURS]
    assert of_the_paper == [(t, m) for t in (2, 7, 16, 31) for m in PAPER_METHODS]
    assert [run.tasks for run in runs if run.method == OURS] == ([7, 16] if name == "table3" else [7])
    for run in runs:
        assert run.path.as_posix() == f"{family}/paper/{run.method}-t{run.tasks}-natural-s0.json"
        assert run.recipe["scenario"]["initial"] == first
        assert others % (run.tasks - 1) == 0
        assert run.recipe["data"]["query"]["name"] == queries
    for method, counts in printed_in_paper(name).items():
        assert method in PAPER_METHODS
        for tasks, (ac, aa, aca) in counts.items():
            pairs = int(tasks) * (int(tasks) - 1) / 2
            high = 0.01 if ac == "<0.01" else ac
            assert ac == "<0.01" or abs(ac * pairs - round(ac * pairs)) < 0.005 * pairs, (method, tasks)
            assert 10 < aa < 50
            assert (aca == 0) == (high == 0)
            assert aca <= 100 * high, (method, tasks)


@pytest.mark.parametrize("tasks", [2, 7, 16, 31])
def test_steps_of_table_three_by_hand(tasks):
    """90 epochs; each has floor((500 new + 20 per class seen before) / 256) steps."""
    new = 150 // (tasks - 1)
    by_hand = 90 * (25_000 // 256) + sum(90 * ((500 * new + 20 * (50 + new * i)) // 256) for i in range(tasks - 1))
    assert {run.steps for run in PAGES["table3"].runs() if run.tasks == tasks} == {by_hand}


def test_steps_of_table_four_by_hand():
    """150 epochs; 30 images of a class, 29 of four classes that the second task brings."""
    by_hand = 150 * (60 * 30 // 64) + 150 * ((120 * 30 - 4 + 20 * 60) // 64)
    assert {run.steps for run in PAGES["table4"].runs() if run.tasks == 2} == {by_hand}
