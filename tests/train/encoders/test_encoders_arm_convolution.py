"""Convolutions with torch's own gradients: the numbers are those of ``nn.Conv2d``, on every processor."""

import copy

import pytest
import torch
from torch import nn

from holdfast.train.encoders import arm_convolution, build_backbone
from holdfast.train.encoders.arm_convolution import Convolution


@pytest.fixture(autouse=True)
def on_arm(monkeypatch):
    monkeypatch.setattr(arm_convolution, "ON_ARM", True)


ORDERS = {"channels_last": torch.channels_last, "contiguous": torch.contiguous_format}


@pytest.mark.parametrize("of_weight", ORDERS)
@pytest.mark.parametrize("of_input", ORDERS)
@pytest.mark.parametrize(("channels", "kernel", "stride"), [(3, 3, 1), (1, 5, 3), (4, 3, 2)])
def test_gradients_are_those_of_a_plain_convolution(of_input, of_weight, channels, kernel, stride):
    torch.manual_seed(0)
    own = Convolution(channels, 6, kernel, stride).to(memory_format=ORDERS[of_weight])
    plain = nn.Conv2d(channels, 6, kernel, stride, padding=kernel // 2, bias=False).double()
    plain.load_state_dict(own.state_dict())
    images = torch.randn(2, channels, 9, 9).to(memory_format=ORDERS[of_input])
    x, y = images.clone().requires_grad_(), images.double().requires_grad_()
    found, expected = own(x), plain(y)
    assert type(found.grad_fn).__name__ == "_OwnGradientsBackward"
    weights = torch.randn(found.shape)
    (found * weights).sum().backward()
    (expected * weights).sum().backward()
    for one, other in ((found, expected), (x.grad, y.grad), (own.weight.grad, plain.weight.grad)):
        torch.testing.assert_close(one.double(), other, rtol=1e-5, atol=1e-5)


def test_only_what_needs_a_gradient_gets_one():
    layer = Convolution(3, 2, 3)
    layer(torch.randn(1, 3, 4, 4)).sum().backward()
    assert layer.weight.grad is not None
    layer.zero_grad()
    layer.requires_grad_(False)
    x = torch.randn(1, 3, 4, 4, requires_grad=True)
    layer(x).sum().backward()
    assert x.grad is not None
    assert layer.weight.grad is None


def test_outside_training_it_is_a_plain_convolution(monkeypatch):
    layer, x = Convolution(3, 2, 3), torch.randn(1, 3, 4, 4)
    assert type(layer.eval()(x).grad_fn).__name__ == "ConvolutionBackward0"
    layer.train()
    assert type(Convolution(3, 2, 1)(x).grad_fn).__name__ == "ConvolutionBackward0"
    with torch.autocast("cpu", torch.bfloat16):
        assert type(layer(x).grad_fn).__name__ != "_OwnGradientsBackward"
    assert type(layer.double()(x.double()).grad_fn).__name__ == "ConvolutionBackward0"
    monkeypatch.setattr(arm_convolution, "ON_ARM", False)
    assert type(layer.float()(x).grad_fn).__name__ == "ConvolutionBackward0"


@pytest.mark.parametrize(("name", "side"), [("small", 28), ("small", 16), ("small_resnet", 32), ("small_resnet", 8)])
def test_gradients_of_whole_networks(name, side, monkeypatch):
    """Also where the last layers have a single position. In eval mode, so that no batch norm amplifies rounding."""
    torch.manual_seed(0)
    network = build_backbone(name, in_channels=3, width=4).eval()
    for layer in network.modules():
        if isinstance(layer, Convolution):
            layer.train()
    x = torch.randn(4, 3, side, side)
    found = []
    for own in (True, False):
        monkeypatch.setattr(arm_convolution, "ON_ARM", own)
        network.zero_grad()
        network(x).square().sum().backward()
        found.append([one.grad.clone() for one in network.parameters() if one.grad is not None])
    assert len(found[0]) > 4
    for own, plain in zip(*found, strict=True):
        torch.testing.assert_close(own, plain, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["small", "small_resnet"])
def test_a_network_of_them_is_saved_and_copied_as_any_other(name):
    network = build_backbone(name, in_channels=3, width=4).train()
    x = torch.randn(4, 3, 16, 16)
    again = copy.deepcopy(network)
    again.load_state_dict(network.state_dict())
    assert torch.equal(network(x), again(x))
    plain = {key for key in network.state_dict() if key.endswith(("conv1.weight", "stem.weight", "0.0.weight"))}
    assert plain
    assert not any(key.endswith("conv1.bias") for key in network.state_dict())
