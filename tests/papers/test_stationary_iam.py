"""The tables and figures of IAM-CL2R: the runs they need, and what they show of results made up for the purpose."""

import json

import pytest

from holdfast.train.encoders import build_backbone
from holdfast.train.experiments.models import named_models
from papers.stationary import PAGES, Results
from papers.stationary.cifar_runs import OURS, PAPER_METHODS
from papers.stationary.fig10 import AXES, CENTRE, ablation_run
from papers.stationary.iam_runs import iam_run, pretraining_notes
from papers.stationary.recipe_files import read_study_recipe
from papers.stationary.result_page import EVERYTHING, printed_in_paper
from papers.stationary.study_runs import predicted_minutes

NAMES = ("table5", "table6", "fig6", "fig7", "table7", "fig9", "fig10")


RUNS_BY_PATH = {run.path: run for name in NAMES for run in PAGES[name].runs()}


@pytest.mark.parametrize(("tasks", "new"), [(7, 15), (31, 3)])
def test_steps_by_hand(tasks, new):
    """70 epochs; each has floor((300 new + 20 per class seen before) / 128) steps, and at least one."""
    by_hand = 70 * (3000 // 128) + sum(70 * ((300 * new + 20 * (10 + new * i)) // 128) for i in range(tasks - 1))
    assert iam_run("replaced", "er", tasks).steps == by_hand
    assert predicted_minutes(iam_run("replaced", "er", tasks).recipe) == pytest.approx(by_hand * 0.0015 / 60)


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
