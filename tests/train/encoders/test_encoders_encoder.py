"""The encoder: features, saving and loading."""

import inspect
import json

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from holdfast.core.errors import HoldfastError
from holdfast.train.encoders import Encoder, Preprocess, build_backbone
from holdfast.train.methods import METHODS
from holdfast.train.tensor_files import read_torch

GREY = Preprocess(size=28, mean=(0.13,), std=(0.31,), colour="grey")
PIXELS = np.random.default_rng(0).integers(0, 256, (5, 28, 28, 1), dtype=np.uint8)
NETWORKS = [
    ("resnet32", {"in_channels": 1}),
    ("resnet18", {"in_channels": 1, "stem": "small"}),
    ("resnet50", {"in_channels": 1}),
    ("small", {}),
]


@pytest.fixture
def encoder():
    torch.manual_seed(0)
    return Encoder(build_backbone("small", width=8), 10, preprocess=GREY, info={"slots": {"cat": 3}, "pair": (1, 2)})


@pytest.mark.parametrize(("name", "options"), NETWORKS)
def test_train_save_load_same_features(name, options, tmp_path):
    torch.manual_seed(0)
    encoder = Encoder(build_backbone(name, **options), 10, preprocess=GREY)
    optimiser = torch.optim.SGD(encoder.parameters(), lr=0.01)
    encoder(GREY(PIXELS)).square().mean().backward()
    optimiser.step()
    features = encoder.encode(PIXELS)
    encoder.save_pretrained(tmp_path / "model")
    state = torch.get_rng_state()
    again = Encoder.from_pretrained(tmp_path / "model")
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(again.encode(PIXELS), features)
    assert not again.training
    assert again.preprocess == GREY
    assert again.backbone.backbone_spec == {"name": name, "options": options}
    written = ["config.json", "model", "model.safetensors"]
    assert sorted(path.name for path in tmp_path.rglob("*")) == written


def test_projection_is_there_only_when_the_size_changes():
    assert Encoder(build_backbone("small")).projection is None
    assert Encoder(build_backbone("small"), 128).projection is None
    projected = Encoder(build_backbone("small"), 127)
    assert projected.projection.weight.shape == (127, 128)
    assert projected.projection.bias is None
    assert (projected.dim, projected.feature_dim) == (127, 128)


@pytest.mark.parametrize("name", METHODS)
def test_an_encoder_for_a_method_has_the_size_that_it_trains(name):
    slots = {"slots": 7} if "slots" in inspect.signature(METHODS[name]).parameters else {}
    encoder = Encoder.for_method(METHODS[name](**slots), backbone=build_backbone("small", width=8), preprocess=GREY)
    assert encoder.dim == (6 if slots else 32)
    assert encoder.preprocess is GREY
    own = Encoder.for_method(METHODS[name](**slots), backbone=nn.Flatten(), feature_dim=784)
    assert (own.feature_dim, own.dim) == (784, 6 if slots else 784)
    with pytest.raises(HoldfastError, match="Flatten has no attribute feature_dim"):
        Encoder.for_method(METHODS[name](**slots), backbone=nn.Flatten())


def test_encode_gives_unit_float32_in_any_form(encoder, tmp_path):
    paths = [tmp_path / f"{i}.png" for i in range(5)]
    for path, image in zip(paths, PIXELS):
        Image.fromarray(image[..., 0]).save(path)
    features = encoder.encode(PIXELS)
    assert features.shape == (5, 10)
    assert features.dtype == torch.float32
    torch.testing.assert_close(features.norm(dim=1), torch.ones(5))
    assert not features.requires_grad
    for form in (paths, [str(p) for p in paths], [Image.open(p) for p in paths], list(PIXELS), GREY(PIXELS)):
        assert torch.equal(encoder.encode(form), features)
    torch.testing.assert_close(encoder.encode(PIXELS, batch_size=2), features)
    assert encoder.encode(paths[0]).shape == (1, 10)
    assert encoder.encode([]).shape == (0, 10)
    reference = encoder.eval()(GREY(PIXELS))
    torch.testing.assert_close(features, reference / reference.norm(dim=1, keepdim=True))


def test_encode_leaves_modes_and_statistics_alone(encoder):
    encoder.train()
    encoder.backbone.stages[0].eval()
    before = {key: value.clone() for key, value in encoder.state_dict().items()}
    modes = [module.training for module in encoder.modules()]
    encoder.encode(PIXELS)
    with pytest.raises(HoldfastError, match="not an image"):
        encoder.encode([None])
    assert [module.training for module in encoder.modules()] == modes
    assert all(torch.equal(value, before[key]) for key, value in encoder.state_dict().items())


def test_zero_stays_zero(encoder):
    nn.init.zeros_(encoder.projection.weight)
    assert torch.equal(encoder.encode(PIXELS), torch.zeros(5, 10))


def test_forward_keeps_the_raw_dtype(encoder):
    with torch.autocast("cpu", torch.bfloat16):
        assert encoder(GREY(PIXELS)).dtype == torch.bfloat16
    assert encoder(GREY(PIXELS)).dtype == torch.float32


class Tied(nn.Module):
    """A user's network with two names for one tensor."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.second = nn.Linear(4, 4)
        self.second.weight = self.first.weight

    def forward(self, x):
        return self.second(self.first(x.mean((2, 3))))


def test_foreign_network_with_tied_weights(tmp_path):
    encoder = Encoder(Tied(), 3, feature_dim=4).eval()
    encoder.save_pretrained(tmp_path / "m")
    with pytest.raises(HoldfastError, match="your own Tied; pass from_pretrained"):
        Encoder.from_pretrained(tmp_path / "m")
    again = Encoder.from_pretrained(tmp_path / "m", backbone=Tied())
    x = torch.randn(2, 4, 5, 5)
    assert torch.equal(again(x), encoder(x))
    assert again.backbone.first.weight is again.backbone.second.weight
    assert torch.equal(again.encode(x), encoder.encode(x))
    with pytest.raises(HoldfastError, match="has no preprocess"):
        again.encode(PIXELS)


def test_half_precision_and_compiled_wrappers_survive(encoder, tmp_path):
    encoder.to(torch.bfloat16)
    encoder.backbone = torch.compile(encoder.backbone)  # wraps, and compiles nothing until it is called
    encoder.save_pretrained(tmp_path / "m")
    again = Encoder.from_pretrained(tmp_path / "m")
    assert again.projection.weight.dtype == torch.bfloat16
    assert not any("_orig_mod" in key for key in read_torch(tmp_path / "m" / "model.safetensors")[0])


def test_info_survives_and_an_older_model_is_replaced(encoder, tmp_path):
    encoder.save_pretrained(tmp_path / "m")
    encoder.save_pretrained(tmp_path / "m")
    assert Encoder.from_pretrained(tmp_path / "m").info == encoder.info == {"slots": {"cat": 3}, "pair": [1, 2]}
    (tmp_path / "m" / "thesis.txt").write_text("mine")
    with pytest.raises(HoldfastError, match=r"m: exists and holds thesis\.txt, which would be lost"):
        encoder.save_pretrained(tmp_path / "m")
    assert (tmp_path / "m" / "thesis.txt").read_text() == "mine"
    encoder.write_into(tmp_path)
    assert Encoder.from_pretrained(tmp_path).dim == 10


def test_what_cannot_be_wrapped():
    with pytest.raises(HoldfastError, match="Flatten has no attribute feature_dim"):
        Encoder(nn.Flatten())
    with pytest.raises(HoldfastError, match="size 128, but feature_dim=64"):
        Encoder(build_backbone("small"), feature_dim=64)
    with pytest.raises(HoldfastError, match="dim must be at least 1"):
        Encoder(build_backbone("small"), 0)
    with pytest.raises(HoldfastError, match="info must be plain JSON"):
        Encoder(build_backbone("small"), info={"x": float("nan")})
    with pytest.raises(HoldfastError, match=r"returned \(2, 3, 4, 4\), expected N x 48"):
        Encoder(nn.Identity(), feature_dim=48)(torch.zeros(2, 3, 4, 4))


def change_config(folder, **changes):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **changes}))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": "other"}, "does not describe a Holdfast encoder"),
        ({"format_version": 99}, "format version 99, this Holdfast reads 2"),
        ({"format_version": 1}, "written by Holdfast 0.2 or earlier, which this one does not read; make it again"),
        ({"weights_sha256": "0"}, "sha256 differs"),
        ({"dim": 11}, r"projection.weight \(10, 32\) instead of \(11, 32\)"),
        ({"dim": 32}, "missing: none; unexpected: projection.weight"),
        ({"dim": "10"}, "dim must be a whole number"),
        ({"feature_dim": 31}, "feature_dim=31"),
        ({"backbone": {"name": "smal", "options": {}}}, "config.json: unknown backbone 'smal'"),
        ({"backbone": {"name": "small", "options": {"depth": 3}}}, "unknown option"),
        ({"backbone": "small"}, "not a backbone description"),
        ({"backbone": {"name": "small", "options": [1]}}, "options must be an object"),
        ({"preprocess": {"size": 28}}, "not a valid description"),
        ({"backbone": {"name": "resnet18", "options": {}}, "feature_dim": 512}, "missing: .*; unexpected: "),
    ],
)
def test_a_config_that_does_not_fit_is_refused(encoder, tmp_path, changes, message):
    encoder.save_pretrained(tmp_path / "m")
    change_config(tmp_path / "m", **changes)
    with pytest.raises(HoldfastError, match=message):
        Encoder.from_pretrained(tmp_path / "m")


def test_files_that_are_not_whole_are_refused(encoder, tmp_path):
    folder = tmp_path / "m"
    with pytest.raises(HoldfastError, match="no model here"):
        Encoder.from_pretrained(folder)
    encoder.save_pretrained(folder)
    weights = folder / "model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:-100])
    with pytest.raises(HoldfastError, match="truncated"):
        Encoder.from_pretrained(folder)
    weights.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(HoldfastError, match="sha256 differs"):
        Encoder.from_pretrained(folder)
    weights.unlink()
    with pytest.raises(HoldfastError, match=r"model\.safetensors: no such file"):
        Encoder.from_pretrained(folder)
    (folder / "config.json").write_text("{")
    with pytest.raises(HoldfastError, match="not readable as JSON"):
        Encoder.from_pretrained(folder)
    (folder / "config.json").unlink()
    with pytest.raises(HoldfastError, match="no model here"):
        Encoder.from_pretrained(folder)


def test_encode_is_the_same_under_autocast_and_works_in_half_precision():
    torch.manual_seed(0)
    preprocess = Preprocess(size=16, mean=(0.4,), std=(0.2,), colour="grey")
    encoder = Encoder(build_backbone("small", width=8), 5, preprocess=preprocess)
    images = np.random.default_rng(0).integers(0, 256, (4, 16, 16, 1), dtype=np.uint8)
    plain = encoder.encode(images)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(encoder.encode(images), plain)
    half = encoder.to(torch.bfloat16).encode(images)
    assert half.dtype == torch.float32
    assert torch.allclose(half, plain, atol=0.05)
