"""``start`` and ``update`` with the real timm, on every machine where it imports; elsewhere a stub is tested."""

import json
import subprocess
import sys

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

from holdfast import Encoder
from holdfast.train.experiments.update_recipes import start_from_recipe as start
from holdfast.train.experiments.update_recipes import update_from_recipe as update

NAME = "resnet10t.c3_in1k"
QUICK = ["train.epochs=1", "train.batch_size=8", "held_out.share=0.4"]


def timm_imports() -> bool:
    """Asked in a process of its own: a failed import of timm leaves parts of torchvision in the process."""
    found = subprocess.run([sys.executable, "-c", "import timm"], capture_output=True, check=False)
    return found.returncode == 0


@pytest.fixture(scope="module")
def timm():
    if not timm_imports():
        pytest.skip("timm is not installed here, or does not import beside this torch")
    import timm

    return timm


@pytest.fixture
def photos(tmp_path):
    draw = np.random.default_rng(0)
    for place, name in enumerate(("1/a", "1/b", "2/c", "2/d")):
        (tmp_path / name).mkdir(parents=True)
        for number in range(12):
            pixels = (50 * place + draw.integers(0, 50, (80, 100, 3))).astype(np.uint8)
            Image.fromarray(pixels).save(tmp_path / name / f"{number}.png")
    return tmp_path


def weights_of(timm, seed):
    torch.manual_seed(seed)
    return timm.create_model(NAME, pretrained=False).state_dict()


def same_backbone(folder, state):
    """A frozen network keeps its weights. Running statistics of batch norm change all the same."""
    found = Encoder.from_pretrained(folder).backbone.state_dict()
    names = [name for name in found if name.endswith("weight")]
    assert len(names) > 10
    return all(torch.equal(found[name], state[name]) for name in names)


def test_weights_in_the_cache(timm, photos, tmp_path, monkeypatch):
    """The weights are random ones in a cache of the hub, so timm's own way of loading is used, without a download."""
    state = weights_of(timm, seed=3)
    snapshot = tmp_path / "hub" / f"models--timm--{NAME}" / "snapshots" / "1"
    snapshot.mkdir(parents=True)
    save_file(state, snapshot / "model.safetensors")
    (snapshot / "config.json").write_text(json.dumps({"architecture": "resnet10t"}))
    (tmp_path / "hub" / f"models--timm--{NAME}" / "refs").mkdir()
    (tmp_path / "hub" / f"models--timm--{NAME}" / "refs" / "main").write_text("1")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    frozen = [*QUICK, "backbone.freeze=['*']"]
    for number, chosen in (("1", {"backbone": f"timm:{NAME}"}), ("2", {"pretrained": True})):
        start(photos / "1", tmp_path / "m" / number, overrides=frozen, **chosen)
        model = Encoder.from_pretrained(tmp_path / "m" / number)
        assert model.backbone.backbone_spec["source"] == {"name": f"timm:{NAME}", "pretrained": True}
        side = timm.get_pretrained_cfg(NAME).input_size[1:]
        assert model.preprocess.height_width == tuple(side)
        assert same_backbone(tmp_path / "m" / number, state)
    info = update(tmp_path / "m" / "1", photos / "2", tmp_path / "m" / "3", overrides=["train.epochs=1"])
    assert (info["task"], info["reference"], info["start"]) == (2, "previous", "previous")


def test_weights_in_a_file(timm, photos, tmp_path):
    state = weights_of(timm, seed=4)
    torch.save(state, tmp_path / "own.pth")
    frozen = [*QUICK, "backbone.freeze=['*']", "backbone.weights_skip=['fc.']", f"backbone.weights={tmp_path}/own.pth"]
    start(photos / "1", tmp_path / "m" / "1", backbone=f"timm:{NAME}", overrides=frozen)
    assert same_backbone(tmp_path / "m" / "1", state)
    info = update(tmp_path / "m" / "1", photos / "2", tmp_path / "m" / "2", overrides=["train.epochs=1"])
    assert (info["task"], info["start"]) == (2, "previous")
