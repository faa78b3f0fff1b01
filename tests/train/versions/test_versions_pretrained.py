"""``start`` and ``update`` with networks that have trained weights: timm, a checkpoint, own code, the local cache."""

import json
import sys
import tomllib

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

from holdfast import Encoder, Preprocess, VectorInput, build_backbone
from holdfast.core.errors import HoldfastError
from holdfast.train.encoders.accuracy_record import accuracy_sentence
from holdfast.train.encoders.backbones import _built
from holdfast.train.encoders.hf_cache import cached_snapshot
from holdfast.train.encoders.named_backbone import NetworkInput, named_backbone
from holdfast.train.events import Note, RunWarning
from holdfast.train.versions import start, update
from holdfast.train.versions.version_defaults import ImageSurvey, default_settings, mixed_precision, photograph_advice
from stub_timm import TinyNet, make_stub

QUICK = ["train.epochs=1", "train.batch_size=8", "held_out.share=0.4"]


@pytest.fixture
def timm(monkeypatch):
    stub = make_stub()
    monkeypatch.setitem(sys.modules, "timm", stub)
    return stub


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Two deliveries of photographs of 100 x 80 pixels: dark and bright, then red and green."""
    top = tmp_path_factory.mktemp("photos")
    draw = np.random.default_rng(0)
    colours = {"1/dark": (40, 40, 40), "1/bright": (180, 180, 180), "2/red": (180, 30, 30), "2/green": (30, 180, 30)}
    for name, base in colours.items():
        (top / name).mkdir(parents=True)
        for number in range(12):
            pixels = (np.array(base) + draw.integers(0, 60, (80, 100, 3))).astype(np.uint8)
            Image.fromarray(pixels).save(top / name / f"{number}.png")
    return top


def train_of(folder):
    return tomllib.loads((folder / "recipe.toml").read_text(encoding="utf-8"))["train"]


def trained_weights():
    torch.manual_seed(7)
    return TinyNet(6).state_dict()


def test_timm_end_to_end(timm, photos, tmp_path):
    events = []
    info = start(photos / "1", tmp_path / "1", backbone="timm:tiny.in1k", changes=[*QUICK, "backbone.freeze=['*']"],
                 device="cpu", on_event=events.append)  # fmt: skip
    assert info["task"] == 1
    (warning,) = (one.text for one in events if isinstance(one, RunWarning))
    assert "frozen" in warning
    accuracy = info["accuracy"]["known classes"]  # frozen: the model is the network before training
    assert accuracy["raw_is"] == "network"
    assert accuracy["model"] == accuracy["raw"]
    assert accuracy["model"]["value"] > 0.5
    assert "by the network before training" in accuracy_sentence(accuracy)
    assert ("tiny.in1k", True, {}) in timm.calls
    train = train_of(tmp_path / "1")
    assert (train["resized_crop"], train["crop_padding"], train["crop_scale"]) == (24, 0, [0.16, 1.0])
    assert (train["lr_groups"], train["warmup"], train["precision"]) == ({"backbone": 0.1}, 0.1, "fp32")
    model = Encoder.from_pretrained(tmp_path / "1")
    assert model.preprocess == Preprocess(24, (0.5,) * 3, (0.25,) * 3, resize=27)
    assert model.backbone.backbone_spec["source"] == {"name": "timm:tiny.in1k", "pretrained": True}
    assert not timm.calls[-1][1]  # a saved model is built without looking for weights
    for name, value in trained_weights().items():  # frozen
        assert torch.equal(model.backbone.state_dict()[name], value), name
    info = update(tmp_path / "1", photos / "2", tmp_path / "2", changes=["train.epochs=1"], device="cpu")
    assert (info["task"], info["reference"]) == (2, "previous")
    assert train_of(tmp_path / "2")["lr_groups"] == {"backbone": 0.1}


def test_the_trained_part_moves_less(timm, photos, tmp_path):
    start(photos / "1", tmp_path / "1", backbone="timm:tiny.in1k", changes=QUICK, device="cpu")
    moved = (
        Encoder.from_pretrained(tmp_path / "1").backbone.state_dict()["stem.weight"] - trained_weights()["stem.weight"]
    )
    overrides = [*QUICK, "train.lr_groups.backbone=1.0"]
    start(photos / "1", tmp_path / "2", backbone="timm:tiny.in1k", changes=overrides, device="cpu")
    more = (
        Encoder.from_pretrained(tmp_path / "2").backbone.state_dict()["stem.weight"] - trained_weights()["stem.weight"]
    )
    assert 0 < moved.abs().mean() < 0.3 * more.abs().mean()


def test_trained_weights_are_distilled_without_a_projection(timm, photos, tmp_path):
    """By the network's own features: a simplex would turn them into another space."""
    for number in (1, 2):
        if number == 1:
            start(photos / "1", tmp_path / "1", backbone="timm:tiny.in1k", changes=QUICK, device="cpu")
        else:
            update(tmp_path / "1", photos / "2", tmp_path / "2", changes=["train.epochs=1"], device="cpu")
        method = tomllib.loads((tmp_path / str(number) / "recipe.toml").read_text(encoding="utf-8"))["method"]
        assert (method["name"], method["softmax"]) == ("distillation", "cosine")
        model = Encoder.from_pretrained(tmp_path / str(number))
        assert model.projection is None
        assert model.dim == 6
    start(photos / "1", tmp_path / "small", changes=QUICK, device="cpu")
    assert Encoder.from_pretrained(tmp_path / "small").projection is not None  # random weights: a simplex


def test_another_network_replaces_it_with_rates_that_suit_it(timm, photos, tmp_path):
    own = ["backbone.width=4", *QUICK, "data.size=32"]
    start(photos / "1", tmp_path / "1", backbone="small_resnet", changes=own, device="cpu")
    info = update(tmp_path / "1", photos / "2", tmp_path / "2", backbone="timm:convnext.in1k",
                  changes=["train.epochs=1"], device="cpu")  # fmt: skip
    assert (info["task"], info["start"]) == (2, "loaded")
    before, after = train_of(tmp_path / "1"), train_of(tmp_path / "2")
    assert (after["optimizer"], after["lr_groups"], after["warmup"]) == ("adamw", {"backbone": 0.1}, 0.1)
    assert (after["crop_padding"], after["resized_crop"]) == (before["crop_padding"], before["resized_crop"])
    assert Encoder.from_pretrained(tmp_path / "2").feature_dim == 10
    assert Encoder.from_pretrained(tmp_path / "2").preprocess == Encoder.from_pretrained(tmp_path / "1").preprocess
    info = update(tmp_path / "1", photos / "2", tmp_path / "3", backbone="timm:convnext.in1k",
                            device="cpu")  # fmt: skip
    assert info["start"] == "loaded"
    assert train_of(tmp_path / "3")["epochs"] == 10


def test_a_replacement_of_another_size_is_trained_without_the_old_model_and_says_so(timm, photos, tmp_path):
    start(photos / "1", tmp_path / "1", backbone="timm:tiny.in1k", changes=QUICK, device="cpu")
    events = []
    info = update(tmp_path / "1", photos / "2", tmp_path / "2", backbone="timm:convnext.in1k", device="cpu",
                  changes=["train.epochs=1"], on_event=events.append)  # fmt: skip
    assert (info["start"], info["reference"]) == ("loaded", "none")
    said = [one.text for one in events if isinstance(one, Note)]
    assert any("have 10 numbers and the old one's 6" in one and "bridge" in one for one in said)


def test_the_name_of_the_models_own_network_changes_nothing(timm, photos, tmp_path):
    start(photos / "1", tmp_path / "1", backbone="timm:tiny.in1k", changes=QUICK, device="cpu")
    for number, named in (("2", {}), ("3", {"backbone": "timm:tiny.in1k"})):
        info = update(
            tmp_path / "1", photos / "2", tmp_path / number, device="cpu", changes=["train.epochs=1"], **named
        )
        assert info["start"] == "previous"
    assert (tmp_path / "2" / "model.safetensors").read_bytes() == (tmp_path / "3" / "model.safetensors").read_bytes()


def test_a_checkpoint_end_to_end(photos, tmp_path, monkeypatch):
    torch.manual_seed(3)
    state = build_backbone("small_resnet").state_dict()
    held = {f"module.{name}": value for name, value in state.items()} | {"module.fc.weight": torch.ones(5, 128)}
    torch.save(held, tmp_path / "own.pth")
    info = start(photos / "1", tmp_path / "1", backbone=str(tmp_path / "own.pth"), device="cpu",
                 changes=[*QUICK, "backbone.freeze=['*']"])  # fmt: skip
    assert info["backbone_weights"]["file"] == "own.pth"
    model = Encoder.from_pretrained(tmp_path / "1")
    for name, value in state.items():
        assert torch.equal(model.backbone.state_dict()[name], value), name
    assert train_of(tmp_path / "1")["warmup"] == 0.1
    assert model.preprocess.height_width == (32, 32)
    info = update(tmp_path / "1", photos / "2", tmp_path / "2", device="cpu", changes=["train.epochs=1"])
    assert info["task"] == 2
    info = update(tmp_path / "1", photos / "2", tmp_path / "3", backbone=str(tmp_path / "own.pth"), device="cpu",
                  changes=["train.epochs=1"])  # fmt: skip
    assert (info["start"], info["backbone_weights"]["file"]) == ("loaded", "own.pth")
    jobs = []
    monkeypatch.setattr("holdfast.train.versions.versions.train_version", lambda job, *others: jobs.append(job))
    update(tmp_path / "1", photos / "2", tmp_path / "4", backbone=tmp_path / "own.pth", device="cpu")
    assert jobs[0].settings.backbone["weights"] == str(tmp_path / "own.pth")
    assert jobs[0].make_encoder().info["backbone_weights"]["file"] == "own.pth"


def test_recognised_files(timm, tmp_path):
    resnet = build_backbone("resnet18").state_dict()
    save_file(dict(resnet) | {"fc.weight": torch.ones(2, 512), "fc.bias": torch.ones(2)}, tmp_path / "r.safetensors")
    found = named_backbone(str(tmp_path / "r.safetensors"))
    assert found.table == {"name": "resnet18", "weights": str(tmp_path / "r.safetensors"), "weights_skip": ["fc."]}
    assert (found.input.side, found.input.resize, found.input.mean) == (224, 256, (0.485, 0.456, 0.406))

    model = Encoder(
        build_backbone("small", width=4, in_channels=3), 5, preprocess=Preprocess(20, (0.1,) * 3, (0.2,) * 3)
    )
    model.save_pretrained(tmp_path / "model")
    found = named_backbone(str(tmp_path / "model" / "model.safetensors"))
    assert (found.name, found.options["width"], found.options["weights_prefix"]) == ("small", 4, "backbone.")
    assert (found.input.side, found.input.mean) == (20, (0.1,) * 3)
    Encoder(build_backbone("mlp", in_channels=3), preprocess=VectorInput(3)).save_pretrained(tmp_path / "vectors")
    with pytest.raises(HoldfastError, match=r"a model of vectors, .*; update --from it"):
        named_backbone(str(tmp_path / "vectors" / "model.safetensors"))

    (tmp_path / "timm").mkdir()
    save_file({**TinyNet(6).state_dict(), "head.fc.weight": torch.ones(1)}, tmp_path / "timm" / "model.safetensors")
    about = {"input_size": [3, 40, 40], "mean": [0.3] * 3, "std": [0.4] * 3, "classifier": "head.fc"}
    (tmp_path / "timm" / "config.json").write_text(json.dumps({"architecture": "tiny", "pretrained_cfg": about}))
    found = named_backbone(str(tmp_path / "timm" / "model.safetensors"))
    assert (found.name, found.options["weights_skip"]) == ("timm:tiny", ["head.fc."])
    assert (found.input.side, found.input.std) == (40, (0.4,) * 3)

    found = named_backbone("timm:tiny", tmp_path / "timm" / "model.safetensors")
    assert found.table == {"name": "timm:tiny", "weights": str(tmp_path / "timm" / "model.safetensors")}
    assert found.input.side == 24


def test_the_image_processor_says_the_size(tmp_path, monkeypatch):
    """The crop counts before the configuration's size; the files may be in a folder, in the cache or on the hub."""
    processor = {"crop_size": {"height": 22, "width": 22}, "image_mean": [0.1] * 3, "image_std": [0.2] * 3}
    found = {"config.json": {"image_size": 518}, "preprocessor_config.json": processor}
    for name, value in found.items():
        (tmp_path / name).write_text(json.dumps(value))
    expected = NetworkInput(22, (0.1,) * 3, (0.2,) * 3)
    assert named_backbone(f"hf:{tmp_path}").input == expected
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    cache_network(tmp_path / "hub", "a/vit", {"image_size": [30, 40]}, 10)
    assert named_backbone("hf:a/vit").input == NetworkInput(30, None, None)
    huggingface_hub = pytest.importorskip("huggingface_hub")
    asked = []
    monkeypatch.setattr("holdfast.train.encoders.hf._unreachable", lambda address: asked.append(address) or "no route")
    assert named_backbone("hf:b/dino").input == NetworkInput(224, None, None)
    monkeypatch.setattr("holdfast.train.encoders.hf._unreachable", lambda address: None)
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", lambda name, file: str(tmp_path / file))
    assert named_backbone("hf:b/dino").input == expected
    assert len(asked) == 1
    assert named_backbone("hf:dinov3_vit").input == NetworkInput(224, None, None)  # a model type is not looked for


def test_own_code_with_a_preprocess_counts_as_trained(photos, tmp_path, monkeypatch):
    code = "import torch\nfrom torch import nn\nfrom holdfast import Preprocess\n\n\nclass Net(nn.Module):\n"
    code += "    def __init__(self):\n        super().__init__()\n        self.feature_dim = 5\n"
    code += "        self.stem = nn.Conv2d(3, 5, 8, stride=8)\n\n    def forward(self, x):\n"
    code += "        return self.stem(x).mean((2, 3))\n\n\ndef net():\n    return Net()\n\n\n"
    code += "net.preprocess = Preprocess(size=16, mean=(0.3,) * 3, std=(0.2,) * 3)\n"
    code += "def plain():\n    return Net()\n"
    (tmp_path / "own_trained_nets.py").write_text(code)
    monkeypatch.chdir(tmp_path)
    assert named_backbone("own_trained_nets:plain").input is None
    start(photos / "1", tmp_path / "1", backbone="own_trained_nets:net", changes=QUICK, device="cpu")
    assert train_of(tmp_path / "1")["resized_crop"] == 16
    with pytest.raises(HoldfastError, match="give --backbone own_trained_nets:net, or --recipe"):
        update(tmp_path / "1", photos / "2", tmp_path / "2", device="cpu")
    info = update(tmp_path / "1", photos / "2", tmp_path / "2", backbone="own_trained_nets:net", device="cpu",
                  changes=["train.epochs=1"])  # fmt: skip
    assert info["start"] == "previous"
    _built.clear()  # as in another process
    with pytest.raises(HoldfastError, match=r"run holdfast --code own_trained_nets:net"):
        Encoder.from_pretrained(tmp_path / "2")
    monkeypatch.setenv("HOLDFAST_CODE", "own_trained_nets:net")
    assert Encoder.from_pretrained(tmp_path / "2").info["task"] == 2


def test_the_whole_preprocess_of_own_code_is_used(tmp_path, monkeypatch):
    code = "from torch import nn\nfrom holdfast import Preprocess\n\n\n"
    kinds = {
        "grey": "Preprocess(16, (0.3,), (0.2,), colour='grey', resize=20)",
        "wide": "Preprocess((16, 32), (0.3,) * 3, (0.2,) * 3)",
        "cubic": "Preprocess(16, (0.3,) * 3, (0.2,) * 3, interpolation='bicubic')",
    }
    for name, preprocess in kinds.items():
        code += f"def {name}():\n    return nn.Flatten()\n\n\n{name}.preprocess = {preprocess}\n\n\n"
    (tmp_path / "own_inputs.py").write_text(code)
    monkeypatch.chdir(tmp_path)
    settings = default_settings(vectors=False, network="own_inputs:grey")
    assert (settings.data.size, settings.data.colour, settings.fit.resized_crop) == (20, "grey", 16)
    assert settings.preprocess.model_dump(exclude={"unit"}) == {"resize": 20, "mean": [0.3], "std": [0.2]}
    with pytest.raises(HoldfastError, match="own_inputs:wide: takes images of 16 x 32; only square images"):
        named_backbone("own_inputs:wide")
    with pytest.raises(HoldfastError, match="own_inputs:cubic: scales images by bicubic"):
        named_backbone("own_inputs:cubic")


def cache_network(cache, name, config, size):
    folder = cache / f"models--{name.replace('/', '--')}" / "snapshots" / "1"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "model.safetensors").write_bytes(bytes(size))
    return folder


def test_photographs_without_a_named_network_are_commented(photos, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    said = []
    quick = [*QUICK, "backbone.width=4"]
    start(photos / "1", tmp_path / "1", changes=quick, device="cpu", on_event=said.append)
    (note,) = [event.text for event in said if event.kind == "note"]
    assert note.startswith("the images have about 80 pixels a side; they are scaled to 64, and a small network is ")
    assert "--backbone timm:NAME or hf:NAME" in note
    assert photograph_advice(ImageSurvey(10, 64)) is None


def test_mixed_precision_is_for_gpus(monkeypatch):
    assert mixed_precision(torch.device("cpu")) == "fp32"
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: True)
    assert mixed_precision(torch.device("cuda")) == "bf16"


def test_a_snapshot_in_the_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    whole = cache_network(tmp_path / "hub", "a/vit", {"image_size": 224}, 10)
    assert cached_snapshot("a/vit") == whole
    broken = cache_network(tmp_path / "hub", "c/broken", {"image_size": 224}, 1)
    (broken / "config.json").unlink()
    (broken / "config.json").symlink_to(tmp_path / "gone")
    assert cached_snapshot("c/broken") is None
