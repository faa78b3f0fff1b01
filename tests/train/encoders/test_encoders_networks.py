"""Architectures: sizes, parameter counts, names, and one training step each."""

import sys
import types

import pytest
import torch
from torch import nn

import papers.networks  # noqa: F401  SENet-18 and RegNetY-400MF
from holdfast.core.errors import HoldfastError
from holdfast.train.encoders import BACKBONES, build_backbone

CASES = [
    ("resnet32", {}, (2, 3, 32, 32), 64),
    ("resnet32", {"in_channels": 1}, (2, 1, 28, 28), 64),
    ("resnet18", {"stem": "small"}, (2, 3, 32, 32), 512),
    ("resnet18", {}, (2, 3, 64, 64), 512),
    ("resnet50", {"stem": "small", "in_channels": 1}, (2, 1, 16, 16), 2048),
    ("lenet_plus_plus", {}, (2, 1, 28, 28), 1152),
    ("small_resnet", {}, (2, 3, 32, 32), 128),
    ("small_resnet", {"width": 4, "stem_stride": 2}, (2, 3, 64, 64), 16),
    ("small_resnet", {"in_channels": 1, "width": 4}, (2, 1, 9, 9), 16),
    ("lenet_plus_plus", {}, (2, 1, 16, 16), 1152),
    ("lenet_plus_plus", {"width": 2}, (2, 1, 28, 28), 2),
    ("senet18", {}, (2, 3, 32, 32), 512),
    ("senet18", {"in_channels": 1}, (4, 1, 16, 16), 512),
    ("regnety_400mf", {}, (2, 3, 32, 32), 384),
    ("regnety_400mf", {"in_channels": 1}, (2, 1, 28, 28), 384),
    ("small", {}, (2, 1, 28, 28), 128),
    ("small", {"width": 8, "in_channels": 3}, (2, 3, 32, 32), 32),
    ("linear", {"in_channels": 5, "width": 3}, (4, 5), 3),
    ("mlp", {"in_channels": 5, "hidden": 6, "layers": 3}, (4, 5), 128),
    ("residual", {"in_channels": 5}, (4, 5), 5),
]


def parameters(network: nn.Module) -> int:
    return sum(p.numel() for p in network.parameters())


@pytest.mark.parametrize(("name", "options", "shape", "size"), CASES)
def test_a_training_step_moves_every_parameter(name, options, shape, size):
    torch.manual_seed(0)
    network = build_backbone(name, **options)
    before = {key: value.clone() for key, value in network.named_parameters()}
    optimiser = torch.optim.SGD(network.parameters(), lr=0.1)
    features = network(torch.randn(shape))
    assert features.shape == (shape[0], size) == (shape[0], network.feature_dim)
    (features * torch.randn(size)).sum().backward()
    optimiser.step()
    assert all(torch.isfinite(p).all() for p in network.parameters())
    still = [key for key, p in network.named_parameters() if p.grad is None or torch.equal(p, before[key])]
    assert not still


def test_every_name_of_the_table_is_tried():
    assert {case[0] for case in CASES} == set(BACKBONES) - {"identity"}  # which has no parameter to move
    vectors = torch.randn(4, 5)
    assert torch.equal(build_backbone("identity", in_channels=5)(vectors), vectors)


def test_parameter_counts():
    # ResNet-32 with its classifier of 10 classes is known as 464,154; the classifier has 64 * 10 + 10 of them.
    assert parameters(build_backbone("resnet32")) == 464_154 - 650
    # torchvision's 11,689,512 and 25,557,032, less classifiers of 1000 classes on 512 and 2048 features.
    assert parameters(build_backbone("resnet18")) == 11_689_512 - 513_000 == 11_176_512
    assert parameters(build_backbone("resnet50")) == 25_557_032 - 2_049_000 == 23_508_032
    convolutions = sum(25 * i * o + o for i, o in [(1, 32), (32, 32), (32, 64), (64, 64), (64, 128), (128, 128)])
    assert parameters(build_backbone("lenet_plus_plus")) == convolutions + 2 * (32 + 64 + 128)
    pairs = [(3, 32), (32, 32), (32, 32), (32, 64), (64, 64), (64, 128), (128, 128)]
    assert parameters(build_backbone("small_resnet")) == sum(9 * i * o + 2 * o for i, o in pairs) == 296_736
    assert parameters(build_backbone("small")) == 25 * 16 + 9 * (16 * 32 + 32 * 64 + 64 * 128) + 2 * (
        16 + 32 + 64 + 128
    )


def test_parameter_counts_of_the_networks_that_weigh_channels():
    def weighing(channels, hidden):
        return 2 * channels * hidden + channels + hidden

    def pre_activation(inputs, channels):
        own = 2 * (inputs + channels) + 9 * channels * (inputs + channels) + weighing(channels, channels // 16)
        return own + (inputs * channels if inputs != channels else 0)

    stages = [(64, 64), (64, 128), (128, 256), (256, 512)]
    blocks = sum(pre_activation(i, o) + pre_activation(o, o) for i, o in stages)
    assert parameters(build_backbone("senet18")) == 27 * 64 + blocks + 2 * 512 == 11_256_120

    def y_block(inputs, width, stride):
        own = width * inputs + 9 * width * 16 + width * width + 6 * width + weighing(width, inputs // 4)
        return own + (inputs * width + 2 * width if inputs != width or stride == 2 else 0)

    total, inputs = 27 * 64 + 2 * 64, 64
    for width, depth, stride in ((32, 1, 1), (64, 2, 1), (160, 7, 2), (384, 12, 2)):
        for i in range(depth):
            total += y_block(inputs, width, stride if i == 0 else 1)
            inputs = width
    # The variant for small images is known as 5,714,362 with a classifier of 10 classes on 384 features.
    assert parameters(build_backbone("regnety_400mf")) == total == 5_714_362 - 3_850


@pytest.mark.parametrize("name", ["senet18", "regnety_400mf"])
def test_channels_are_weighed_by_the_image(name):
    """With the last layer of every weighing closed (sigmoid of -50), blocks pass their shortcut alone."""
    network = build_backbone(name).eval()
    weighing = [module for key, module in network.named_modules() if key.endswith("weigh")]
    assert len(weighing) == (8 if name == "senet18" else 22)
    block, x = network.blocks[1], torch.rand(2, 64 if name == "senet18" else 32, 8, 8)
    nn.init.zeros_(block.weigh.excite.weight)
    nn.init.constant_(block.weigh.excite.bias, -50.0)
    torch.testing.assert_close(block(x), x if name == "senet18" else torch.relu(block.shortcut(x)))


def test_option_a_shortcut_subsamples_and_adds_zero_channels():
    network = build_backbone("resnet32")
    assert all(key.split(".")[-2] in {"conv1", "bn1", "conv2", "bn2"} for key, _ in network.named_parameters())
    block = network.layer2[0].eval()
    nn.init.zeros_(block.bn2.weight)  # leaves the shortcut alone
    x = torch.rand(1, 16, 8, 8)
    out = block(x)
    assert out.shape == (1, 32, 4, 4)
    assert torch.equal(out[:, 8:24], x[:, :, ::2, ::2])
    assert not out[:, :8].any()
    assert not out[:, 24:].any()


def test_names_are_those_of_torchvision():
    names = set(build_backbone("resnet50").state_dict())
    expected = {"conv1.weight", "bn1.running_mean", "layer1.0.downsample.0.weight", "layer4.2.conv3.weight"}
    assert expected <= names
    assert "layer2.1.downsample.0.weight" not in names
    assert build_backbone("resnet50").layer2[0].conv2.stride == (2, 2)
    assert "layer1.0.downsample.0.weight" not in build_backbone("resnet18").state_dict()


def test_lenet_keeps_its_3_by_3_positions_at_28():
    network = build_backbone("lenet_plus_plus").eval()
    x = torch.randn(1, 1, 28, 28)
    plain = network.stage3(network.stage2(network.stage1(x)))
    assert plain.shape == (1, 128, 3, 3)
    assert torch.equal(network(x), plain.flatten(1))
    with pytest.raises(HoldfastError, match="at least 16"):
        network(torch.randn(1, 1, 15, 28))


def test_spec_builds_the_same_architecture():
    network = build_backbone("small", width=8)
    spec = network.backbone_spec
    assert spec == {"name": "small", "options": {"width": 8}}
    again = build_backbone(spec["name"], **spec["options"])
    assert {k: v.shape for k, v in again.state_dict().items()} == {k: v.shape for k, v in network.state_dict().items()}


class StubNet(nn.Module):
    num_features = 6

    def forward(self, x):
        return x.mean((2, 3)).repeat(1, 2)


def test_timm_is_called_without_weights_and_head(monkeypatch):
    calls = []
    stub = types.ModuleType("timm")
    stub.create_model = lambda name, **options: calls.append((name, options)) or StubNet()
    monkeypatch.setitem(sys.modules, "timm", stub)
    network = build_backbone("timm:vit_x", img_size=64)
    assert calls == [("vit_x", {"pretrained": False, "num_classes": 0, "img_size": 64})]
    assert network.feature_dim == 6
    assert network.backbone_spec == {"name": "timm:vit_x", "options": {"img_size": 64}}
    with pytest.raises(HoldfastError, match="num_classes is set by Holdfast"):
        build_backbone("timm:vit_x", num_classes=3)


def test_residual_begins_as_the_identity():
    network = build_backbone("residual", in_channels=5)
    x = torch.randn(4, 5)
    assert torch.equal(network(x), x)
    assert parameters(network) == 25
    with torch.no_grad():
        network.layers.weight.copy_(torch.diag(torch.arange(5.0)))
    assert torch.equal(network(x), x * torch.arange(1.0, 6.0))


def test_timm_failures_are_told(monkeypatch):
    stub = types.ModuleType("timm")

    def refuse(name, **options):
        raise RuntimeError(f"Unknown model ({name})")

    stub.create_model = refuse
    monkeypatch.setitem(sys.modules, "timm", stub)
    with pytest.raises(HoldfastError, match=r"timm cannot build 'vit_x'.*Unknown model"):
        build_backbone("timm:vit_x")
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(HoldfastError, match=r"does not import .*'\.\[timm\]'"):
        build_backbone("timm:vit_x")
