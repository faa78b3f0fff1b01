"""The bench of training with pairs hides labels, and runs through a whole scenario."""

import json
from argparse import Namespace
from pathlib import Path
from statistics import mean

import pytest
import torch

from holdfast.core.run_folder import RunFolder
from holdfast.train.experiments.execute import execute
from holdfast.train.experiments.schema import check_recipe
from holdfast.train.losses import compatibility_contrast
from holdfast.train.methods import Batch

BENCH = Path(__file__).parents[2] / "bench"


@pytest.fixture
def label_free(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCH))
    import label_free

    return label_free


def test_pairs_are_of_one_class_and_each_item_is_in_one(label_free):
    labels = torch.tensor([0, 0, 0, 1, 1, 2, 3, 3, 3])
    torch.manual_seed(0)
    first, second, belong, groups = label_free.random_pairs(labels)
    assert len({*first.tolist(), *second.tolist()}) == 8
    assert torch.equal(belong, labels[first] == labels[second])
    assert int(belong.sum()) >= 2
    assert torch.equal(groups[first] == groups[second], belong)
    assert len(groups.unique()) == 9 - int(belong.sum())


def test_the_term_needs_an_old_model_and_a_weight(label_free):
    labels, z, z_old = torch.arange(4).repeat_interleave(2), torch.randn(8, 5), torch.randn(8, 5)
    batch = Batch(labels, 0)
    assert set(label_free.PairLoss().loss(z, batch, progress=None)) == {"pairs"}
    assert set(label_free.PairLoss(weight=0.0).loss(z, batch, z_old=z_old, progress=None)) == {"pairs"}
    found = label_free.PairLoss(weight=2.0, rho=3.0).loss(z, batch, z_old=z_old, progress=None)
    assert torch.equal(found["compatibility"], 2.0 * compatibility_contrast(z, z_old, labels, rho=3.0))


def test_a_whole_run(label_free, tiny_tables, tmp_path):
    method = {"name": "label_free:PairLoss", "weight": 1.0}
    metrics = execute(check_recipe({**tiny_tables, "method": method}), RunFolder(tmp_path / "run"), device="cpu")
    assert len(metrics["tasks"]) == 3
    assert 0 <= metrics["protocols"]["instance"]["AC"] <= 1


def test_the_recipe_is_that_of_the_table(label_free):
    options = Namespace(per_class=None, queries=None, network="resnet32", epochs=70, rho=5.0, precision="bf16")
    tables = check_recipe(label_free.tables(options, 1.0, 2)).tables
    train = tables["train"]
    assert (tables["scenario"]["tasks"], tables["seed"]) == (7, 2)
    assert (train["executor"], train["precision"]) == ("auto", "bf16")


def test_the_guide_shows_what_was_measured():
    rows = json.loads((BENCH.parent / "results/bench/label_free-h200.json").read_text())["rows"]
    guide = (BENCH.parent / "docs/pairs-or-clicks.md").read_text(encoding="utf-8")
    means = {
        weight: [mean(row[name] for row in rows if row["weight"] == weight) for name in ("AA", "AC")]
        for weight in (0, 1, 4)
    }
    for weight, name in ((0, "0 (your loss alone)"), (1, "1"), (4, "4")):
        assert sum(row["weight"] == weight for row in rows) == 3
        aa, ac = means[weight]
        assert f"| {name} | {100 * aa:.1f} % | {ac:.2f} |" in guide
    assert all(row["AC"] > 0 for row in rows if row["weight"] == 4)
