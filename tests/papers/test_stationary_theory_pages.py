"""Pages ``theory`` and ``fig3``: their runs, the numbers in a record, and the words worked out from them."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from holdfast.train.encoders import Encoder, extract
from holdfast.train.experiments.assemble import SharedData, assemble
from holdfast.train.geometry import DSimplex
from papers.stationary import PAGES, Results, StudyRun
from papers.stationary.execute import execute_runs
from papers.stationary.studies.theory_on_cifar import summary


@pytest.fixture(scope="module")
def executed(tiny_recipe, tmp_path_factory):
    """Records of a tiny HOC and a tiny ER run with the measures of both pages, and their folders."""
    folder = tmp_path_factory.mktemp("theory")
    runs = [
        StudyRun("theory", str(tiny_recipe), "simplex_hoc", 3, family="tiny", measures=("theory", "toy")),
        StudyRun(
            "theory", str(tiny_recipe), "er", 3, settings=("method.name=er",), family="tiny", measures=("theory",)
        ),
    ]
    execute_runs(runs, folder / "runs", folder / "results", shared=SharedData(), device=torch.device("cpu"), parallel=2)
    results = Results(folder / "results")
    return {run.method: (results.record(run), folder / "runs" / run.path.with_suffix(""), run) for run in runs}


def test_the_runs_of_the_theory_page():
    runs = PAGES["theory"].runs()
    assert len(runs) == len({run.path for run in runs}) == 9
    assert {(run.method, run.recipe["method"].get("lambda")) for run in runs} == {
        ("simplex_hoc", 0.1), ("simplex_hoc", 0.3), ("er", None)
    }  # fmt: skip
    assert all(run.tasks == 7 and run.measures == ("theory",) for run in runs)
    assert {run.seed for run in runs} == {0, 1, 2}


def test_the_record_has_every_pair_of_models_for_both_readouts(executed):
    record, _, _ = executed["simplex_hoc"]
    found = record["theory"]
    assert (found["images"], found["samples"], found["per_class"]) == ("glyphs train", 48, 8)
    assert list(found["readouts"]) == ["simplex", "backbone"]
    for readout in found["readouts"].values():
        assert [(pair["from"], pair["to"]) for pair in readout["pairs"]] == [(1, 2), (1, 3), (2, 3)]
        assert [pair["num_classes"] for pair in readout["pairs"]] == [2, 2, 4]
        assert [pair["same"]["count"] for pair in readout["pairs"]] == [2 * 8 * 7, 2 * 8 * 7, 4 * 8 * 7]
    simplex, backbone = found["readouts"].values()
    assert all(pair["moved"] < 1e-3 for pair in simplex["pairs"])
    assert all(pair["nested"] == pair["shrank"] for pair in simplex["pairs"])
    assert all(pair["moved"] > 0.1 for pair in backbone["pairs"])  # the projection is trained
    assert backbone["prototypes"] == "fixed simplex, through the projection"
    er, _, _ = executed["er"]
    assert list(er["theory"]["readouts"]) == ["simplex"]
    assert er["theory"]["readouts"]["simplex"]["prototypes"] == "classifier rows"
    assert all(pair["moved"] > 0 for pair in er["theory"]["readouts"]["simplex"]["pairs"])


def test_the_record_against_plain_loops(executed):
    """Eq. 1a between the first two models, on the backbone's features, pair by pair."""
    record, folder, run = executed["simplex_hoc"]
    experiment = assemble(run.recipe, SharedData())
    train, tasks = experiment.data.train, experiment.scenario.tasks
    known = np.isin(train.labels, tasks[0].seen_classes)
    old, new = (
        extract(encoder, replace(train, images=train.images[known], labels=train.labels[known]))
        for encoder in (with_backbone(folder / "models" / number) for number in ("01", "02"))
    )
    labels = train.labels[known]
    held = [
        old[i] @ new[j] >= old[i] @ old[j]
        for i in range(len(old))
        for j in range(len(old))
        if i != j and labels[i] == labels[j]
    ]
    pair = record["theory"]["readouts"]["backbone"]["pairs"][0]
    assert pair["same"]["share"] == pytest.approx(np.mean(held), abs=1e-5)


def with_backbone(folder):
    encoder = Encoder.from_pretrained(folder)
    encoder.readout = "backbone"
    return encoder


def pair(k, t, *, classes=2, shrank=0.5, same=0.25, different=0.75):
    def kind(share, count):
        return {"share": share, "count": count, "holds_on_average": share > 0.5, "by_class": share}

    return {
        "from": k, "to": t, "num_classes": classes, "shrank": shrank, "nested": shrank, "moved": 0.0, "old_cap": 50.0,
        "new_cap": 55.0, "old_class_mean": 40.0, "new_class_mean": 45.0,
        "same": kind(same, 10 * classes), "different": kind(different, 100 * classes),
    }  # fmt: skip


def test_numbers_are_pooled():
    found = summary([pair(1, 2), pair(1, 3, same=0.0), pair(2, 3, classes=6, shrank=1.0, same=0.5)])
    assert found["grew"] == pytest.approx(0.5 * 2 / 8)  # two updates, of 2 and 6 classes
    assert found["eq13"] == pytest.approx((20 * 0.75 + 60 * 0.5) / 80)
    assert found["eq12a"] == pytest.approx((20 * 0.75 + 20 * 1.0 + 60 * 0.5) / 100)
    assert found["eq12b"] == pytest.approx(0.25)
    assert found["new_class_mean"] == pytest.approx(45)
    assert (found["mean_1a"], found["mean_1b"], found["models"]) == (0, 3, 3)
    assert found["class_1a"] == pytest.approx((2 * 0.25 + 0 + 6 * 0.5) / 10)


def test_the_runs_of_figure_3():
    runs = PAGES["fig3"].runs()
    assert len(runs) == len({run.path for run in runs}) == 22
    assert all(run.path.parts[:2] == ("theory", "toy") and run.measures == ("toy",) for run in runs)
    settings = {run.change: run.recipe for run in runs}
    assert settings["K-10-size-2"]["backbone"]["width"] == 2
    assert settings["all-K-100"]["data"]["train"]["per_class"] is None
    assert settings["K-20"]["method"]["slots"] == 20
    base = settings["K-10"]
    for change, recipe in settings.items():
        differs = [name for name in base.tables if recipe[name] != base[name]]
        assert change == "K-10" or 0 < len(differs) <= 2, change


def test_the_toys_record(executed):
    record, folder, run = executed["simplex_hoc"]
    found = record["toy"]
    assert (found["slots"], found["images"]) == (6, 16)
    curves = found["curves"]
    assert [len(curves[name]) for name in ("loss", "ce", "nce")] == [2, 2, 2]
    assert curves["loss"][0] == pytest.approx(0.3 * curves["ce"][0] + 0.7 * curves["nce"][0], abs=1e-4)
    assert found["before"]["old_feature"] == pytest.approx(1)
    assert found["after"]["old_feature"] < 1
    experiment = assemble(run.recipe, SharedData())
    train, task = experiment.data.train, experiment.scenario.tasks[1]
    own = np.sort(task.new_indices)
    images = replace(train, images=train.images[own], labels=train.labels[own])
    features = torch.tensor(extract(Encoder.from_pretrained(folder / "models" / "02"), images))
    vertex = dict(zip(task.seen_classes, task.slots, strict=True))
    vertices = torch.tensor([vertex[int(label)] for label in images.labels])
    simplex = DSimplex(6)
    right = (simplex.logits(features).argmax(1) == vertices).double().mean()
    assert found["after"]["accuracy"] == pytest.approx(float(right), abs=1e-5)
    cosine = (features * simplex.prototypes(vertices)).sum(1).mean()
    assert found["after"]["own_vertex"] == pytest.approx(float(cosine), abs=1e-4)
