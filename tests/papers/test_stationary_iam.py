"""The tables and figures of IAM-CL2R: the runs they need, and what they show of results made up for the purpose."""

import json
from pathlib import Path

import numpy as np
import pytest

from holdfast.train.encoders import build_backbone
from holdfast.train.experiments.models import named_models
from holdfast.train.experiments.schema import Recipe, check_recipe
from papers.stationary import PAGES, Results
from papers.stationary.cifar_runs import OURS, PAPER_METHODS, own_run, paper_run
from papers.stationary.fig10 import AXES, CENTRE, ablation_run
from papers.stationary.formatting import score
from papers.stationary.iam_runs import iam_run, pretraining_notes
from papers.stationary.recipe_files import read_study_recipe
from papers.stationary.result_page import EVERYTHING, printed_in_paper
from papers.stationary.study_runs import PASSES_WITH_VIEWS, SECONDS_PER_STEP, planned_steps, predicted_minutes

REPOSITORY = Path(__file__).parents[2]
NAMES = ("table5", "table6", "fig6", "fig7", "table7", "fig9", "fig10")
ON_CIFAR = SECONDS_PER_STEP["cifar100"]
TWO_SWEEPS = "6d27f6d"
RUNS_BY_PATH = {run.path: run for name in NAMES for run in PAGES[name].runs()}


@pytest.mark.parametrize(("tasks", "new"), [(7, 15), (31, 3)])
def test_steps_by_hand(tasks, new):
    """70 epochs; each has floor((300 new + 20 per class seen before) / 128) steps, and at least one."""
    by_hand = 70 * (3000 // 128) + sum(70 * ((300 * new + 20 * (10 + new * i)) // 128) for i in range(tasks - 1))
    assert iam_run("replaced", "er", tasks).steps == by_hand
    assert predicted_minutes(iam_run("replaced", "er", tasks).recipe) == pytest.approx(by_hand * 0.0015 / 60)


@pytest.mark.parametrize(
    ("family", "data", "network", "at_once"),
    [
        ("iam", "cifar100", "resnet18", (8,)),
        ("cifar100-10", "cifar100", "resnet32", range(12, 33)),
        ("tinyimagenet200-20", "tinyimagenet200", "resnet18", (5,)),
    ],
)
def test_minutes_are_predicted_by_what_was_measured(family, data, network, at_once):
    """The recorded runs that shared the device with enough others, as the prediction supposes.

    Not those of a commit whose runs were two sweeps beside each other: each counted the device as its own.
    """
    files = [file for root in ("results", "results/archive") for file in (REPOSITORY / root / family).glob("*/*.json")]
    recorded = [json.loads(file.read_text()) for file in files]
    alone = [run for run in recorded if not run.get("environment", {}).get("commit", "").startswith(TWO_SWEEPS)]
    shared = [run for run in alone if run.get("runs_at_once") in at_once]
    per_step = {
        views: [
            run["gpu_minutes"] * 60 / run["steps"]
            for run in shared
            if (run["recipe"]["method"].get("view_weight", 0) > 0) == views
        ]
        for views in (False, True)
    }
    one_pass = SECONDS_PER_STEP[data][network]
    assert np.median(per_step[False]) == pytest.approx(one_pass, rel=0.2)
    assert np.median(per_step[True]) == pytest.approx(PASSES_WITH_VIEWS * one_pass, rel=0.4)  # "about"


def test_a_networks_step_is_what_the_bench_of_a_sweep_measured():
    rows = json.loads((REPOSITORY / "results" / "bench" / "sweep-h200.json").read_text())["rows"]
    (side_by_side,) = [row["median_ms"] for row in rows if row["runs"] == 16 and row["executor"] == "auto"]
    assert side_by_side / 1000 == pytest.approx(ON_CIFAR["resnet32"], rel=0.05)


@pytest.mark.parametrize("method", ["er", "cvs"])
def test_a_second_view_is_twice_the_work(method):
    one, two = paper_run(method, 7), paper_run(method, 7, settings=("method.view_weight=0.5",))
    assert predicted_minutes(two.recipe) == 2 * predicted_minutes(one.recipe)
    ours = own_run(7)
    assert predicted_minutes(ours.recipe) == pytest.approx(ours.steps * 2 * ON_CIFAR["resnet32"] / 60)


def test_the_minutes_of_other_architectures_are_those_of_the_recorded_runs():
    files = (REPOSITORY / "results/iam/architectures").glob("*.json")
    recorded = [run for run in map(json.loads, (file.read_text() for file in files)) if run["runs_at_once"] == 3]
    per_step = np.mean([run["gpu_minutes"] * 60 / run["steps"] for run in recorded])
    assert per_step == pytest.approx(ON_CIFAR["senet18"], rel=0.05)
    assert ON_CIFAR["regnety_400mf"] == ON_CIFAR["senet18"]
    planned = iam_run("architectures", "er", 31)
    assert predicted_minutes(planned.recipe) == pytest.approx(planned.steps * ON_CIFAR["senet18"] / 60)


def test_no_minutes_where_a_size_was_not_timed():
    at_64 = {"name": "resnet32"}
    recipe = check_recipe(read_study_recipe("tinyimagenet200-20/er"))
    assert predicted_minutes(recipe) == pytest.approx(planned_steps(recipe) * 0.0017 / 60)
    assert predicted_minutes(Recipe({**recipe.tables, "backbone": at_64})) is None


def test_the_runs_the_plan_asks_for():
    two = {(c.method, c.tasks, c.seed) for c in PAGES["table6"].runs()}
    methods = (*PAPER_METHODS, OURS)
    seeds = {(m, 7, s) for m in ("simplex_fd", "simplex_hoc", OURS) for s in (1, 2)}
    assert two == {(m, t, 0) for m in methods for t in (7, 31)} | seeds
    assert {c.study for c in PAGES["fig6"].runs()} == {"replaced", "none"}
    assert all(path.parts[0] == "iam" for path in RUNS_BY_PATH)
    for one in RUNS_BY_PATH.values():
        scenario = one.recipe["scenario"]
        assert scenario["reference"] == "loaded"
        assert len(named_models(scenario)) == (1 if one.study == "none" else 3)
        assert one.recipe["method"].get("slots", 1024) == 1024


def test_the_axes_change_one_setting_and_cross_in_table_six():
    centre = iam_run("replaced", "simplex_hoc", 31)
    for axis, (key, values) in AXES.items():
        assert CENTRE[axis] in values
        for value in values:
            one = ablation_run(axis, value)
            assert one.is_of(dict(centre.recipe.tables)) == (value == CENTRE[axis])
            table = one.recipe.tables
            for part in key.split("."):
                table = table[part]
            assert table == value


def test_the_recipes_are_table_five_but_for_what_is_not_at_hand():
    rows = {(r["column"], r["setting"]): r for r in PAGES["table5"].rows(Results("nowhere"), EVERYTHING)}
    differs = {
        name: row["here"] for name, row in rows.items() if row["here"] is not None and row["here"] != row["paper"]
    }
    assert differs == {
        ("CIFAR100R/10", "pre-training set"): "tinyimagenet32",
        ("CIFAR100R/10", "pre-training classes"): 50,
        ("CIFAR100R/10", "classes of the replacements"): [100, 200],
        ("CIFAR100R/10", "pre-training: epochs"): 30,
        ("CIFAR100R/10", "fine-tuning: schedule"): "cosine",
    }
    assert build_backbone("resnet18").feature_dim == rows["CIFAR100R/10", "dimensions of compared methods"]["paper"]
    imagenet = read_study_recipe("pretrain/imagenet32")
    assert imagenet["train"]["epochs"] == rows["CIFAR100R/10", "pre-training: epochs"]["paper"]


def test_the_papers_numbers_agree_with_each_other():
    for name in ("table6", "table7"):
        assert set(printed_in_paper(name)) == set(PAPER_METHODS)
    for counts in printed_in_paper("table6").values():
        for tasks, (ac, aa) in counts.items():
            pairs = int(tasks) * (int(tasks) - 1) / 2
            assert isinstance(ac, str) or abs(ac * pairs - round(ac * pairs)) < 0.005 * pairs
            assert 29 < aa < 69
    assert max(printed_in_paper("table6").items(), key=lambda entry: entry[1]["7"][1])[0] == "simplex_hoc"


def from_models(fake, run, root, **losses):
    """A made-up record of a run that started from models with these losses, by the name of their network."""
    record = fake(run, root)
    models = {f"tinyimagenet32/{network}-200-simplex": {"loss": loss, "epochs": 15} for network, loss in losses.items()}
    (root / run.path).write_text(json.dumps({**record, "models": models}))


def test_epochs_are_those_on_record(tmp_path, fake):
    other, same = iam_run("architectures", "simplex_hoc", 31), iam_run("none", "simplex_hoc", 31)
    from_models(fake, other, tmp_path, regnety_400mf=1.0)
    (note,) = pretraining_notes(Results(tmp_path), [other])
    assert "(50, 100, 200 classes, 30, 30, 15 epochs)" in note
    (note,) = pretraining_notes(Results(tmp_path), [same])
    assert "(50 classes, 30 epochs)" in note


def test_an_ac_above_zero_is_never_shown_as_zero():
    assert [score("AC", value) for value in (0.0, 0.0043, 0.005, 0.0051)] == ["0.00", "<0.01", "0.01", "0.01"]
    assert score("AC", 0.002, 0.004) == "<0.01±0.00"
    assert score("ACA", 0.00001) == "0.00"
    assert score("AC", -0.001) == "-0.00"
