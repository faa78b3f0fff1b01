"""Pages ``theory`` and ``fig3``: their runs, the numbers in a record, and the words worked out from them."""

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from holdfast.train.encoders import Encoder, extract
from holdfast.train.experiments.assemble import SharedData, assemble
from holdfast.train.geometry import DSimplex
from papers.stationary import PAGES, Results, StudyRun
from papers.stationary.execute import execute_runs
from papers.stationary.plots import fingerprint
from papers.stationary.result_page import EVERYTHING, Selection
from papers.stationary.studies import theory_on_cifar, toy
from papers.stationary.studies.theory_on_cifar import summary

ROOT = Path(__file__).parents[2]


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
        extract(encoder, replace(train, images=train.images[known], labels=train.labels[known], names=None))
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


def test_the_theory_page_says_what_the_numbers_say(fake, tmp_path):
    page = PAGES["theory"]
    (table,) = page.tables(Results(tmp_path), EVERYTHING)
    assert [line[4] for line in table.rows] == ["missing"] * 5
    assert "9 of 9 runs are still missing." in table.notes
    assert not any("nested:" in note and "caps of Theorem 1" in note for note in table.notes)
    for run in page.runs():
        record = fake(run, tmp_path)
        same = 0.2 if run.method == "er" else 0.4 + 0.01 * run.seed
        pairs = [pair(1, 2, same=same), pair(2, 3, same=same)]
        readouts = ("simplex",) if run.method == "er" else ("simplex", "backbone")
        record["theory"] = {
            "images": "cifar100 train", "samples": 10_000, "per_class": 100, "cap_share": 0.95,
            "readouts": {name: {"prototypes": f"of {name}", "pairs": pairs} for name in readouts},
        }  # fmt: skip
        write(tmp_path, run, record)
    (table,) = page.tables(Results(tmp_path), EVERYTHING)
    assert [line[:4] for line in table.rows] == [
        ["d-Simplex-HOC", "0.1", "simplex", "3"],
        ["d-Simplex-HOC", "0.1", "backbone", "3"],
        ["d-Simplex-HOC", "0.3", "simplex", "3"],
        ["d-Simplex-HOC", "0.3", "backbone", "3"],
        ["ER", "–", "one feature", "3"],
    ]
    named = dict(zip(table.header, table.rows[0], strict=True))
    assert named["grew %"] == "50.0±0.0"
    assert named["Eq. 13 violated %"] == "59.0±1.0"  # 60, 59 and 58 % by seed
    assert named["class mean, degrees"] == "40.0 → 45.0"
    words = table.notes[0]
    assert "The caps of Theorem 1 are not nested: in an update the cap grows for 50 % of the old classes" in words
    assert "On average Eq. 1a holds for no pair of models. On average Eq. 1b holds for every pair of models." in words
    assert "d-Simplex-HOC does not meet the constraint of Eq. 13: 59 % of its pairs violate it." in words
    assert "ER, which has no such term, violates it for 80 %." in words
    assert any("trains on the 20 images of such a class that are in its buffer" in note for note in table.notes)
    assert any("10,000 images of cifar100 train, 100 of each class" in note for note in table.notes)
    (narrow,) = page.tables(Results(tmp_path), Selection(methods=["er"]))
    assert len(narrow.rows) == 1
    assert "d-Simplex-HOC" not in narrow.notes[0]


def test_words_for_caps_that_never_grow():
    line = {"method": "er", "readout": "simplex", "seeds": [0], "theory": summary([pair(1, 2, shrank=1.0, same=1.0)])}
    (words,) = theory_on_cifar._verdict([line])
    assert words.startswith("In no update does a cap grow, so the assumption of Theorem 1 holds.")
    assert "On average Eq. 1a holds for every pair of models." in words


def write(root, run, record):
    (root / run.path).write_text(json.dumps(record))


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
    images = replace(train, images=train.images[own], labels=train.labels[own], names=None)
    features = torch.tensor(extract(Encoder.from_pretrained(folder / "models" / "02"), images))
    vertex = dict(zip(task.seen_classes, task.slots, strict=True))
    vertices = torch.tensor([vertex[int(label)] for label in images.labels])
    simplex = DSimplex(6)
    right = (simplex.logits(features).argmax(1) == vertices).double().mean()
    assert found["after"]["accuracy"] == pytest.approx(float(right), abs=1e-5)
    cosine = (features * simplex.prototypes(vertices)).sum(1).mean()
    assert found["after"]["own_vertex"] == pytest.approx(float(cosine), abs=1e-4)


def measured(slots, share, *, own=-0.1):
    end = share * math.log(slots)
    state = {"length": 16.8, "accuracy": 0.0, "own_vertex": -0.31, "old_feature": 1.0, "old_classes": 1.0, "ce": 9.0}
    return {
        "slots": slots,
        "images": 2000,
        "curves": {"loss": [3.0, 1.5], "ce": [6.0, end], "nce": [2.0, 1.4]},
        "before": state,
        "after": {**state, "length": 0.5, "own_vertex": own, "old_feature": 0.8, "ce": end},
    }


def test_figure_3_says_what_the_numbers_say(fake, tmp_path):
    page = PAGES["fig3"]
    assert page.figures(Results(tmp_path)) == []
    runs = {variant.change: variant.run for variant in toy.EVERY}
    shares = {"K-10-buffer-20": 0.1, "K-10-lambda-0.9": 0.7, "K-100": 0.2}
    for variant in toy.EVERY:
        record = fake(variant.run, tmp_path)
        write(tmp_path, variant.run, {**record, "toy": measured(variant.slots, shares.get(variant.change, 1.02))})
    (table,) = page.tables(Results(tmp_path), EVERYTHING)
    words = table.notes[0]
    assert words.startswith("A run stalls if the cross-entropy of the new digits ends above 0.9 log K, and")
    assert "The baseline stalls: its cross-entropy part ends at 2.35 (log 10 is 2.30), and 0 % of" in words
    assert "from 16.8 to 0.50, and their mean cosine with their own vertex from -0.31 to -0.10." in words
    stalled, converged, between = (
        words.index(text) for text in ("These changes leave", "These make it converge", "These are in between")
    )
    assert stalled < words.index("learning rate 0.003 (1.02)") < converged
    assert converged < words.index("a buffer of 20 images of each old class (0.10)") < between
    assert converged < words.index("K = 100 (0.20)") < between < words.index("λ = 0.9 (0.70)")
    assert [
        "baseline: K = 10, 1,000 images of each class",
        "1.500",
        "2.349",
        "1.02",
        "1.400",
        "16.8 → 0.5",
        "-0.31 → -0.10",
        "0.80",
        "0.0",
        "100.0",
    ] in table.rows
    assert not any("Likely cause" in note for note in table.notes)  # λ = 0.5 has stalled
    for name in toy.CHANGES:
        write(tmp_path, runs[name], {**fake(runs[name], tmp_path), "toy": measured(10, 0.3)})
    (table,) = page.tables(Results(tmp_path), EVERYTHING)
    _, needs, directions, cause = table.notes[:4]
    assert "three things come together" in needs
    assert "ends at 0.80, which is about 37 degrees. It is 0.80 to 0.80 in all runs with HOC that stall" in directions
    assert "that cosine is -0.31 with K = 10 and -0.31 with K = 20." in cause
    (figure,) = page.figures(Results(tmp_path))
    figure.draw(figure.data, tmp_path / "figures" / "fig3.png")
    with Image.open(tmp_path / "figures" / "fig3.png") as picture:
        assert picture.text["Description"] == fingerprint(figure.data)
    (tmp_path / toy.BASE.run.path).unlink()
    (table,) = page.tables(Results(tmp_path), EVERYTHING)
    assert not any("stalls" in note for note in table.notes)
    assert "1 of 22 runs is still missing." in table.notes


@pytest.fixture(scope="module")
def said():
    return " ".join((ROOT / "docs/paper.md").read_text(encoding="utf-8").split())


def test_what_is_said_of_the_runs_on_cifar(said):
    page = (ROOT / "docs" / "results" / "theory.md").read_text(encoding="utf-8")
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in page.splitlines() if line.startswith("| ")
    ]
    named = dict(zip(rows[0], zip(*rows[2:], strict=True), strict=True))
    grew = [float(cell.split("±")[0]) for cell in named["grew %"]]
    assert f"the cap grows for {min(grew):.0f} to {max(grew):.0f} % of the old classes" in said
    assert set(named["1a on average"]) == {"0 of 21"}  # Eq. 1a holds for no pair of models
    compatible = tuple(named[name][0].split("±")[0] for name in ("AC", "AC by instance"))
    assert "λ = 0.1 are compatible all the same: AC is {} by template and {} by instance".format(*compatible) in said
    means = [float(named["class mean, degrees"][row].split()[0]) for row in (0, 2)]
    assert "is {:.0f} degrees from its vertex with λ = 0.1, and {:.0f} degrees with λ = 0.3".format(*means) in said
    weak, strong, er = (named["Eq. 13 violated %"][row].split("±")[0] for row in (0, 2, 4))
    assert f"violates Eq. 13 for {weak} % of the pairs of images of one class with λ = 0.1" in said
    assert f"and for {strong} % with λ = 0.3. ER, which has no such term, violates it for {er} %" in said
    assert float(weak) < float(er) < float(strong)  # less often than ER with λ = 0.1, more often with λ = 0.3


def test_what_is_said_of_the_runs_on_drawn_characters(said):
    counted = json.loads((ROOT / "results/theory/proposition1-demo.json").read_text(encoding="utf-8"))["proposition1"]
    hoc, alone = ([100 * update["eq1a"]["violated"] for update in counted[name]] for name in ("hoc", "ce"))
    assert f"{min(hoc):.0f} to {max(hoc):.0f} % with HOC" in said
    assert f"{min(alone):.0f} to {max(alone):.0f} % with cross-entropy alone" in said


def test_what_is_said_of_the_toy(said):
    lines = {line["about"]: line for line in PAGES["fig3"].rows(Results(ROOT / "results"), EVERYTHING)}
    assert all(line["toy"] for line in lines.values())
    stalled = {about for about, line in lines.items() if line["of_log_k"] > 0.9}
    alone = "cross-entropy alone"
    converged = {about for about in lines if about not in stalled and alone not in about}
    assert converged == {
        "K = 100, all images",
        "K = 100",
        "K = 1000",
        "λ = 0.5",
        "λ = 0.9",
        "ρ = 1",
        "features of length 20 in the cross-entropy",
    }
    cells = {row[0]: row[1:] for row in PAGES["fig3"].tables(Results(ROOT / "results"), EVERYTHING)[0].rows}
    assert f"cross-entropy part ends at {float(cells['K = 10, all images'][1]):.2f}" in said
    last = cells["features of length 20 in the cross-entropy"][7]
    assert f"and {last} % of the new digits are nearest to their own vertex" in said
    assert {about for about in stalled if about.startswith("K = ")} == {"K = 10, all images", "K = 20"}
    assert any("Likely cause" in note for note in PAGES["fig3"].tables(Results(ROOT / "results"), EVERYTHING)[0].notes)
