"""A user's own network, weights and frozen parts; and that a model folder cannot make Holdfast run code."""

import json
import sys

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from holdfast.core.errors import HoldfastError
from holdfast.train.encoders import Encoder, build_backbone, load_weights
from holdfast.train.encoders.backbones import _built
from holdfast.train.encoders.named_backbone import named_backbone

MODULE = """
import torch
from torch import nn

class Tiny(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.feature_dim = width
        self.conv = nn.Conv2d(1, width, 3)
        self.bn = nn.BatchNorm2d(width)

    def forward(self, x):
        return self.bn(self.conv(x)).mean(dim=(2, 3))

def tiny(width=4):
    return Tiny(width)

WEIGHTS = Tiny(4).state_dict()

def with_weights():
    network = Tiny(4)
    network.load_state_dict(WEIGHTS)
    return network

def not_a_network():
    return 3

def without_size():
    return nn.Identity()

NUMBER = 3
"""


@pytest.fixture
def own_module(tmp_path, monkeypatch):
    (tmp_path / "my_nets.py").write_text(MODULE)
    (tmp_path / "broken_nets.py").write_text("raise RuntimeError('no licence found')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])  # as an entry point starts
    yield "my_nets"
    for name in ("my_nets", "broken_nets"):
        sys.modules.pop(name, None)


def test_own_code_is_built_saved_and_loaded_where_it_was_named(own_module, tmp_path):
    encoder = Encoder(build_backbone("my_nets:tiny", width=5))
    encoder.save_pretrained(tmp_path / "model")
    x = torch.randn(2, 1, 8, 8)
    torch.testing.assert_close(Encoder.from_pretrained(tmp_path / "model").encode(x), encoder.encode(x))


def test_a_model_folder_cannot_name_code_to_run(own_module, tmp_path, monkeypatch):
    encoder = Encoder(build_backbone("my_nets:tiny", width=5))
    encoder.save_pretrained(tmp_path / "model")
    _built.clear()  # as in another process
    sys.modules.pop("my_nets")
    with pytest.raises(HoldfastError) as error:
        Encoder.from_pretrained(tmp_path / "model")
    message = str(error.value)
    assert "my_nets" not in sys.modules
    assert "backbone=build_backbone('my_nets:tiny', width=5)" in message
    assert "\n" not in message
    again = Encoder.from_pretrained(tmp_path / "model", backbone=build_backbone("my_nets:tiny", width=5))
    assert again.feature_dim == 5


def test_a_model_folder_may_name_code_that_the_user_trusts(own_module, tmp_path, monkeypatch):
    encoder = Encoder(build_backbone("my_nets:tiny", width=5))
    encoder.save_pretrained(tmp_path / "model")
    _built.clear()  # as in another process
    sys.modules.pop("my_nets")
    monkeypatch.setenv("HOLDFAST_CODE", "other_nets:tiny my_nets:other")
    with pytest.raises(HoldfastError, match=r"run holdfast --code my_nets:tiny .*set HOLDFAST_CODE=my_nets:tiny"):
        Encoder.from_pretrained(tmp_path / "model")
    assert "my_nets" not in sys.modules
    monkeypatch.setenv("HOLDFAST_CODE", "other_nets:tiny my_nets:tiny")
    assert Encoder.from_pretrained(tmp_path / "model").feature_dim == 5


def test_a_folder_may_not_choose_other_options_for_known_code(own_module, tmp_path):
    Encoder(build_backbone("my_nets:tiny", width=5)).save_pretrained(tmp_path / "model")
    config = tmp_path / "model" / "config.json"
    described = json.loads(config.read_text())
    described["backbone"]["options"]["width"] = 6
    config.write_text(json.dumps(described))
    with pytest.raises(HoldfastError, match="only imported if you trust it"):
        Encoder.from_pretrained(tmp_path / "model")


@pytest.mark.parametrize(
    ("name", "options", "reason"),
    [
        ("no_such_module:tiny", {}, "no_such_module does not import (ModuleNotFoundError"),
        ("broken_nets:tiny", {}, "broken_nets does not import (RuntimeError: no licence found)"),
        ("my_nets:nothing", {}, "nothing is not there in my_nets"),
        ("my_nets:NUMBER", {}, "NUMBER is int, not a function"),
        ("my_nets:tiny", {"depth": 3}, "unexpected keyword argument 'depth'"),
        ("my_nets:not_a_network", {}, "returned int; it must return a torch.nn.Module"),
        ("my_nets:without_size", {}, "needs an attribute feature_dim"),
        ("my_nets.tiny", {}, "unknown backbone"),
    ],
)
def test_what_does_not_import_or_fit_is_refused_in_one_line(own_module, name, options, reason):
    with pytest.raises(HoldfastError) as error:
        build_backbone(name, **options)
    assert reason in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("suffix", [".safetensors", ".pt", ".pth"])
def test_weights_are_copied(suffix, tmp_path):
    source, target = build_backbone("small", width=4), build_backbone("small", width=4)
    state = {f"module.{name}": value for name, value in source.state_dict().items()} | {"fc.weight": torch.ones(2, 2)}
    path = tmp_path / f"weights{suffix}"
    save_file({k: v.contiguous() for k, v in state.items()}, path) if suffix == ".safetensors" else torch.save(
        state, path
    )
    with pytest.raises(HoldfastError) as error:
        load_weights(target, path)
    assert "missing: stages.0.0.weight" in str(error.value)
    assert "unexpected: fc.weight, module.stages.0.0.weight" in str(error.value)
    about = load_weights(target, path, prefix="module.")
    assert about["file"] == path.name
    for name, value in source.state_dict().items():
        assert torch.equal(target.state_dict()[name], value)


def test_weights_may_be_skipped_by_name(tmp_path):
    network = build_backbone("small", width=4)
    path = tmp_path / "w.pt"
    torch.save(dict(network.state_dict()) | {"fc.weight": torch.ones(2, 2)}, path)
    load_weights(network, path, skip=["fc."])
    with pytest.raises(HoldfastError, match=r"no name begins with 'head\.'"):
        load_weights(network, path, skip=["fc.", "head."])
    with pytest.raises(HoldfastError, match=r"no name begins with 'module\.'; the first is 'stages"):
        load_weights(network, path, prefix="module.")


def test_weights_of_before_batch_norm_counted_its_batches(tmp_path):
    """As torchvision's first files and those converted from other frameworks."""
    source, target = build_backbone("resnet32"), build_backbone("resnet32")
    state = {name: value for name, value in source.state_dict().items() if not name.endswith("num_batches_tracked")}
    torch.save({f"module.{name}": value for name, value in state.items()}, tmp_path / "old.pth")
    load_weights(target, tmp_path / "old.pth", prefix="module.")
    for name, value in state.items():
        assert torch.equal(target.state_dict()[name], value)
    assert named_backbone(str(tmp_path / "old.pth")).name == "resnet32"


class Malicious:
    def __reduce__(self):
        return (print, ("run",))


@pytest.mark.parametrize(
    ("saved", "reason"),
    [
        ({"state_dict": {}, "epoch": 3}, "not a state dict, it contains state_dict, epoch"),
        ({"layer": Malicious()}, "which are not unpickled"),
        ([torch.ones(1)], "not a state dict, it contains list"),
        ({"stages.0.0.weight": torch.ones(1)}, "missing: stages.0.1.bias"),
    ],
)
def test_files_that_are_no_weights(saved, reason, tmp_path, capsys):
    torch.save(saved, tmp_path / "w.pt")
    with pytest.raises(HoldfastError) as error:
        load_weights(build_backbone("small"), tmp_path / "w.pt")
    assert reason in str(error.value)
    assert "\n" not in str(error.value)
    assert capsys.readouterr().out == ""


def test_other_shapes_files_and_kinds(tmp_path):
    torch.save(build_backbone("small", width=8).state_dict(), tmp_path / "w.pt")
    with pytest.raises(HoldfastError, match=r"stages\.0\.0\.weight \(4, 1, 5, 5\) instead of \(2, 1, 5, 5\)"):
        load_weights(build_backbone("small", width=4), tmp_path / "w.pt")
    with pytest.raises(HoldfastError, match="no such file"):
        load_weights(build_backbone("small"), tmp_path / "x.pt")
    with pytest.raises(HoldfastError, match=r"unknown kind of weights .* known: \.pt, \.pth, \.safetensors"):
        load_weights(build_backbone("small"), tmp_path / "w.ckpt")
    (tmp_path / "cut.pt").write_bytes(b"PK\x03\x04 cut short")
    with pytest.raises(HoldfastError, match=r"cannot be read as a file of torch\.save \(.*not a ZIP archive"):
        load_weights(build_backbone("small"), tmp_path / "cut.pt")


def test_frozen_parts_stand_still(tmp_path):
    encoder = Encoder(build_backbone("small", width=4), dim=3)
    encoder.freeze(["stages.0", "stages.1.0.weight"])
    encoder.train()
    before = {name: value.clone() for name, value in encoder.state_dict().items()}
    optimizer = torch.optim.SGD([p for p in encoder.parameters() if p.requires_grad], lr=0.1)
    encoder(torch.randn(8, 1, 16, 16)).square().sum().backward()
    optimizer.step()
    for name, value in encoder.state_dict().items():
        still = name.startswith("backbone.stages.0.") or name == "backbone.stages.1.0.weight"
        assert torch.equal(value, before[name]) == still, name
    encoder.save_pretrained(tmp_path / "model")
    again = Encoder.from_pretrained(tmp_path / "model").train()
    assert again.frozen == ("stages.0", "stages.1.0.weight")
    assert not again.backbone.stages[0][1].training
    assert again.backbone.stages[1][1].training
    again.freeze([])
    assert all(parameter.requires_grad for parameter in again.parameters())


def test_all_of_the_backbone_may_be_frozen_and_unknown_parts_may_not():
    encoder = Encoder(build_backbone("small", width=4), dim=3)
    encoder.freeze(["*"])
    assert [name for name, p in encoder.named_parameters() if p.requires_grad] == ["projection.weight"]
    with pytest.raises(HoldfastError, match="no part 'stage'; its first level: stages, or"):
        encoder.freeze(["stage"])
    assert encoder.frozen == ("*",)
    with pytest.raises(HoldfastError, match=r"freeze takes a list of names: \['stages'\], not 'stages'"):
        encoder.freeze("stages")
    assert not any(m.training for m in encoder.train().modules() if isinstance(m, nn.BatchNorm2d))


def test_code_that_loads_weights_itself_is_loaded_without_warnings(own_module, tmp_path, recwarn):
    encoder = Encoder(build_backbone("my_nets:with_weights"))
    encoder.save_pretrained(tmp_path / "model")
    Encoder.from_pretrained(tmp_path / "model")
    assert [str(one.message) for one in recwarn] == []


def test_weights_of_a_network_that_needs_options(tmp_path):
    """One for vectors cannot be built by its name alone."""
    torch.save(build_backbone("linear", in_channels=4, width=5).state_dict(), tmp_path / "head.pt")
    found = named_backbone("linear", tmp_path / "head.pt")
    assert (found.name, found.options) == ("linear", {"weights": str(tmp_path / "head.pt")})


def test_a_text_file_is_no_file_of_weights(tmp_path):
    (tmp_path / "w.pt").write_text("not weights")
    with pytest.raises(HoldfastError, match=r"not a file of torch\.save, or it contains other objects") as refused:
        load_weights(build_backbone("small"), tmp_path / "w.pt")
    assert "weights_only" not in str(refused.value)
