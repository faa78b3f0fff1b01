"""Recipes that bring their own network, weights, frozen parts and rates: from the file to models on disk."""

import sys

import pytest
import torch

from holdfast.core.errors import HoldfastError
from holdfast.core.run_folder import RunFolder
from holdfast.train.encoders import Encoder, build_backbone
from holdfast.train.experiments.assemble import assemble
from holdfast.train.experiments.execute import execute
from holdfast.train.experiments.load import read_recipe
from holdfast.train.experiments.schema import check_recipe

MODULE = """
from holdfast.train.encoders import build_backbone

def mine(in_channels: int, width: int = 4, weights: str = "never asked for"):
    assert weights == "never asked for"
    network = build_backbone("small", in_channels=in_channels, width=width)
    del network.backbone_spec
    return network

def odd(thing: "NoSuchType" = None):
    return mine(1)
"""


@pytest.fixture
def at_home(tmp_path, monkeypatch):
    (tmp_path / "recipe_nets.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield tmp_path
    sys.modules.pop("recipe_nets", None)


def refusal(tables):
    with pytest.raises(HoldfastError) as error:
        assemble(check_recipe(tables))
    assert "\n" not in str(error.value)
    return str(error.value)


def test_a_run_with_an_own_network_own_weights_and_a_frozen_part(at_home, tiny_tables):
    torch.manual_seed(7)
    given = build_backbone("small", width=4)
    torch.save({f"module.{name}": value for name, value in given.state_dict().items()}, at_home / "w.pt")
    tiny_tables["backbone"] = {
        "name": "recipe_nets:mine",
        "weights": "w.pt",
        "weights_prefix": "module.",
        "freeze": ["stages.0"],
    }
    tiny_tables["train"]["lr_groups"] = {"backbone": 0.5, "backbone.stages.1": 0.1}
    recipe = check_recipe(tiny_tables)
    folder = RunFolder(at_home / "run")
    execute(recipe, folder, device="cpu")
    assert check_recipe(read_recipe(str(folder.recipe))).tables == recipe.tables
    last = Encoder.from_pretrained(folder.model(3))
    first = Encoder.from_pretrained(folder.model(1))
    for name, value in given.stages[0].state_dict().items():
        assert torch.equal(last.backbone.stages[0].state_dict()[name], value)
    assert not torch.equal(first.backbone.stages[2][0].weight, given.stages[2][0].weight)
    assert last.info["backbone_weights"]["file"] == "w.pt"
    assert last.frozen == ("stages.0",)


@pytest.mark.parametrize(
    ("section", "reason"),
    [
        ({"name": "nowhere.at.all:net"}, "nowhere.at.all does not import"),
        ({"name": "recipe_nets:mine", "widht": 3}, "backbone.widht: unknown key; known here: in_channels, width"),
        ({"name": "recipe_nets:mine", "width": "3"}, "backbone.width: input should be a valid integer"),
        ({"name": "recipe_nets:odd"}, "the signature of recipe_nets:odd cannot be read"),
        ({"name": "small", "freeze": ["layer9"]}, "no part 'layer9'; its first level: stages"),
        ({"name": "small", "freeze": "stages"}, "backbone.freeze: input should be a valid array"),
        ({"name": "small", "weights_prefix": "module."}, "needs backbone.weights, which is missing"),
        ({"name": "small", "weights": "absent.pt"}, "absent.pt: no such file"),
    ],
)
def test_refusals(section, reason, at_home, tiny_tables):
    tiny_tables["backbone"] = section
    assert reason in refusal(tiny_tables)


def test_rates_of_unknown_groups_are_refused(tiny_tables):
    tiny_tables["train"]["lr_groups"] = {"stages": 0.1}
    assert "train.lr_groups: the encoder has no parameters 'stages'; known: backbone.stages" in refusal(tiny_tables)
    tiny_tables["train"]["lr_groups"] = {"backbone": "slow"}
    assert refusal(tiny_tables).startswith("train.lr_groups.backbone: ")
