"""Which networks have kernels, and the reason that is named where they have none."""

import importlib.util

import pytest
import torch
from torch import nn

from holdfast.train.encoders import Encoder, build_backbone
from holdfast.train.encoders.resnet import BasicBlock, PlainShortcutBlock, ResNet
from papers.kernels import why_no_kernels
from papers.networks.squeeze_excite import SqueezeExcitation

pytest.importorskip("triton")

from papers.kernels.networks import is_grouped


def made(name):
    with torch.device("meta"):
        return Encoder(build_backbone(name), 9).to(memory_format=torch.channels_last)


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("resnet32", "conv1"),
        ("regnety_400mf", "stem"),
        ("resnet18", "layer1"),
        ("senet18", "stem"),
        ("resnet50", "bn1"),
    ],
)
def test_networks_that_have_kernels_as_long_as_they_are_plain(name, part):
    whole = made(name)
    kind = type(whole.backbone).__name__
    assert why_no_kernels(whole, 32, 28) == ""
    whole.freeze([part])
    assert why_no_kernels(whole, 32, 28) == f"the kernels do not support frozen parts, and {kind} has some: {part}"
    whole.freeze([])
    assert why_no_kernels(whole, 32, 28) == ""
    whole.to(memory_format=torch.contiguous_format)
    assert why_no_kernels(whole, 32, 28) == f"the kernels need weights in channels-last, and those of {kind} are not"


def test_sides_that_the_kernels_cannot_halve_twice():
    for name, kind in (("resnet32", "CifarResNet"), ("regnety_400mf", "RegNetY")):
        for size in ((30, 32), (32, 30)):
            wanted = f"{kind}'s kernels need sides that are multiples of 4 and the images are {size[0]} x {size[1]}"
            assert why_no_kernels(made(name), *size) == wanted
    assert why_no_kernels(made("resnet18"), 33, 30) == why_no_kernels(made("senet18"), 33, 30) == ""


def test_other_networks_have_no_kernels():
    assert why_no_kernels(made("small"), 32, 32) == "there are no kernels for SmallNet"
    assert why_no_kernels(made("resnet18").backbone, 32, 32) == "there are no kernels for ResNet"


def test_without_triton_there_are_none(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert why_no_kernels(made("resnet32"), 32, 32) == "triton is not installed"


def derived_part(encoder, part):
    """Of the network, the first part of that class, as a class derived from it."""
    found = next(module for module in encoder.modules() if type(module) is part)
    found.__class__ = type(f"Other{part.__name__}", (part,), {})
    return encoder


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("resnet32", Encoder),
        ("resnet32", PlainShortcutBlock),
        ("resnet18", BasicBlock),
        ("senet18", SqueezeExcitation),
        ("regnety_400mf", SqueezeExcitation),
        ("regnety_400mf", nn.BatchNorm2d),
        ("regnety_400mf", nn.Conv2d),
        ("resnet18", nn.Linear),
    ],
)
def test_a_derived_class_has_no_kernels(name, part):
    encoder = derived_part(made(name), part)
    kind = type(encoder.backbone).__name__
    assert why_no_kernels(encoder, 32, 32) == f"{kind} has a part that the kernels do not support, Other{part.__name__}"


def test_a_derived_network_has_no_kernels():
    encoder = derived_part(made("resnet18"), ResNet)
    assert why_no_kernels(encoder, 32, 32) == "there are no kernels for OtherResNet"


def test_which_convolutions_the_kernels_take():
    assert sum(is_grouped(m) for m in made("regnety_400mf").modules() if isinstance(m, nn.Conv2d)) == 22
    assert is_grouped(nn.Conv2d(48, 48, 3, 2, padding=1, groups=3, bias=False))
    for other in ({"groups": 6}, {"stride": 3}, {"dilation": 2}, {"padding": 0}, {"bias": True}, {"kernel_size": 1}):
        options = {"kernel_size": 3, "padding": 1, "groups": 3, "bias": False} | other
        assert not is_grouped(nn.Conv2d(48, 48, **options)), other
