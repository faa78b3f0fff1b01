"""The tables and figures of IAM-CL2R: the runs they need, and what they show of results made up for the purpose."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from holdfast.core.storage import without_nan
from holdfast.metrics import compatibility_summary
from holdfast.train.encoders import build_backbone
from holdfast.train.experiments.models import named_models
from holdfast.train.experiments.schema import Recipe, check_recipe
from papers.stationary import PAGES, Results, Selection
from papers.stationary.cifar_runs import OURS, PAPER_METHODS, own_run, paper_run
from papers.stationary.fig10 import AXES, CENTRE, ablation_run
from papers.stationary.formatting import score
from papers.stationary.iam_runs import iam_run, pretrained_models, pretraining_notes
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


def test_rows_from_other_weights_are_named(tmp_path, fake):
    """A run counts as different only against runs of models with the same name, and of equally many tasks."""
    runs = [iam_run("replaced", method, 31) for method in ("simplex_hoc", "simplex_fd", OURS, "er")]
    short = iam_run("replaced", "simplex_hoc", 7)
    for run, loss in zip(runs[:3], (1.25, 1.5, 1.25), strict=True):
        from_models(fake, run, tmp_path, resnet18=loss)
    from_models(fake, runs[3], tmp_path, other=2.0)
    from_models(fake, short, tmp_path, resnet18=1.75)
    _, note = pretraining_notes(Results(tmp_path), [*runs, short])
    assert note == (
        "The models were pre-trained more than once with these settings; d-Simplex-FD started from other weights than"
        " the rest."
    )
    assert len(list(pretraining_notes(Results(tmp_path), [runs[0], *runs[2:], short]))) == 1


def test_every_page_says_what_the_models_were_trained_on(tmp_path):
    (note,) = pretraining_notes(Results(tmp_path), [iam_run("replaced", "er", 7)])
    assert "tinyimagenet32 (50, 100, 200 classes, 30 epochs)" in note
    assert [name.split("/")[1].partition("-")[0] for name in pretrained_models("architectures")] == [
        "resnet18",
        "senet18",
        "regnety_400mf",
    ]
    for name in NAMES[1:]:
        for table in PAGES[name].tables(Results(tmp_path), EVERYTHING):
            assert any(note.startswith("Models pre-trained on tinyimagenet32") for note in table.notes), table.title


def test_an_ac_above_zero_is_never_shown_as_zero():
    assert [score("AC", value) for value in (0.0, 0.0043, 0.005, 0.0051)] == ["0.00", "<0.01", "0.01", "0.01"]
    assert score("AC", 0.002, 0.004) == "<0.01±0.00"
    assert score("ACA", 0.00001) == "0.00"
    assert score("AC", -0.001) == "-0.00"


def test_table_six_says_what_its_seeds_change(tmp_path):
    (table,) = PAGES["table6"].tables(Results(tmp_path), EVERYTHING)
    assert read_study_recipe("pretrain/tinyimagenet32")["seed"] == 0
    assert any("the same models, pre-trained once with seed 0" in note for note in table.notes)
    named = {tuple(named_models(one.recipe["scenario"])) for one in PAGES["table6"].runs()}
    assert len(named) == 1  # whatever the seed


def unequal(record, path, first):
    """The record as of models whose features change size at task ``first``."""
    for scores in record["protocols"].values():
        matrix = np.array(scores["matrix"], dtype=float)
        matrix[first - 1 :, : first - 1] = np.nan
        scores.update(compatibility_summary(matrix), matrix=matrix.tolist())
    path.write_text(json.dumps(without_nan(record)))


def test_rows_tables_and_figures(tmp_path, fake):
    made = {
        one.path: fake(one, tmp_path)
        for one in RUNS_BY_PATH.values()
        if one.method in ("er", "simplex_hoc")
        and (not one.change or one.change in ("buffer-0", "buffer-300", "rate-0.01"))
    }
    er, hoc = (iam_run("architectures", method, 31).path for method in ("er", "simplex_hoc"))
    unequal(made[er], tmp_path / er, 21)
    results = Results(tmp_path)
    figures = {figure.name: figure for name in NAMES for figure in PAGES[name].figures(results)}
    assert set(figures) == {"fig6", "fig7", "fig9", "fig10"}
    for name, figure in figures.items():
        figure.draw(figure.data, tmp_path / f"{name}.png")
        assert Image.open(tmp_path / f"{name}.png").width > 400
    assert [panel["replaced"] for panel in figures["fig6"].data] == [[11, 21], []]
    assert {tuple(panel["replaced"]) for panel in figures["fig7"].data} == {(3, 5)}
    assert "Boxed indices: the first models after a replacement (3 and 5)." in figures["fig7"].caption
    rate, buffer, images = figures["fig10"].data  # the paper's order
    assert [point[0] for point in rate["points"]] == ["0.001 (paper's)", "0.01"]
    assert list(buffer["lines"]) == ["0", "20 (paper's)", "300"]
    assert [point[0] for point in images["points"]] == ["300 (paper's)"]
    rows = {row["method"]: row for row in PAGES["table7"].rows(results, EVERYTHING)}
    expected = made[hoc]["protocols"]["template"]["AA_tau"]
    assert [pair["AA"] for pair in rows["simplex_hoc"]["up_to"]] == [expected[i] for i in (10, 19, 20, 30)]
    table, ranking = PAGES["table7"].tables(results, EVERYTHING)
    assert ranking.title == "The paper's ranking"
    assert [line[0] for line in ranking.rows] == ["11", "11", "20", "20"]  # in the end ER cannot be compared
    lines = {line[0]: line[1:] for line in table.rows}
    assert lines["ER"][1] != "–"
    assert lines["ER"][3] != "–"
    assert lines["ER"][5] == lines["ER"][7] == "–"
    assert lines["ER"][8:] == ["0.00 53.29", "0.00 41.39", "– –"]
    assert lines["FAN"][0] == "missing"
    assert ", seed 0; dotted: a model of another architecture comes in;" in figures["fig9"].caption
    table, ranking = PAGES["table6"].tables(results, EVERYTHING)
    assert ranking.title == "The paper's ranking"
    shown = {(line[0], line[1]): line for line in table.rows}
    assert shown["31", "ER"][-2] == "<0.01 31.30"
    assert shown["7", "d-Simplex-HOC"][5] == "3"


def test_what_a_mixed_gallery_shows_of_older_items(tmp_path, fake):
    """Items that came before the last replacement, which is task 5 of 7."""
    one = iam_run("replaced", "simplex_hoc", 7)
    record = fake(one, tmp_path)
    versions = [
        {"model": k, "share_of_gallery": 0.1 * k / 2.8, "share_of_hits": 0.01 * k, "score_offset": -0.1 / k}
        for k in range(1, 8)
    ]
    record["mixed"] = {"accuracy": [0.2, 0.5], "reindexed": [0.2, 0.6], "queries": [9, 9], "versions": versions}
    (tmp_path / one.path).write_text(json.dumps(record))
    (table,) = PAGES["mixed"].tables(Results(tmp_path), Selection(methods=["simplex_hoc"], tasks=[7]))
    (line,) = table.rows
    assert line[2:] == ["d-Simplex-HOC", "50.00", "60.00", "35.71", "10.00", "-0.10 to -0.03"]
    (table,) = PAGES["mixed"].tables(Results(tmp_path), Selection(methods=["er"], tasks=[7]))
    assert table.rows[0][3] == "missing"


def test_pairs_with_a_replacement_between_them_are_counted_alone(tmp_path, fake):
    """Tasks 1 and 2, 3 and 4, and 5 to 7 of 7 share a network: 16 of the 21 pairs have a replacement between them."""
    (one,) = [run for run in PAGES["replacing"].runs() if (run.method, run.tasks, run.change) == ("er", 7, "again")]
    record = fake(one, tmp_path)
    matrix = np.where(np.tri(7) > 0, 0.4, np.nan)
    np.fill_diagonal(matrix, 0.5)
    matrix[1, 0] = matrix[6, 4] = 0.6  # compatible, with the same network
    matrix[2, 1] = matrix[4, 3] = matrix[6, 0] = 0.6
    record["protocols"]["template"]["matrix"] = matrix.tolist()
    (tmp_path / one.path).write_text(json.dumps(without_nan(record)))
    row = PAGES["replacing"].rows(Results(tmp_path), EVERYTHING)[0]
    assert (row["across"], row["newest"]) == ([3, 16], 0.5)
    (table,) = PAGES["replacing"].tables(Results(tmp_path), EVERYTHING)
    assert table.rows[0][5:7] == ["3/16", "50.00"]
    assert table.rows[1][2:7] == ["missing", "", "", "", ""]
