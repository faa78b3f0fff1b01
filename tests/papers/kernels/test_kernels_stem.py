"""The stem of a ResNet by kernels against torch's own layers: on a CPU by Triton's interpreter."""

import pytest
import torch
import torch.nn.functional as F
from distances import apart
from torch import nn

from holdfast.train.encoders import build_backbone

pytest.importorskip("triton")

from papers.kernels import batch_norm
from papers.kernels.networks import FusedNetwork
from papers.kernels.stem import is_stem, is_stem_pool, max_pool, stem_convolution

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
POOL = nn.MaxPool2d(3, stride=2, padding=1)


@pytest.fixture(autouse=True)
def exact(monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    monkeypatch.setattr(batch_norm, "TILE", 2048)
    torch.manual_seed(0)


def drawn(*shape):
    return torch.randn(shape, device=DEVICE)


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize(("channels", "height", "width"), [(3, 8, 12), (1, 10, 6), (4, 2, 4), (3, 32, 32)])
def test_the_convolution_and_its_gradient(channels, height, width, channels_last):
    x, weight = drawn(3, channels, height, width), drawn(5, channels, 7, 7)
    if channels_last:
        x = x.to(memory_format=torch.channels_last)
    weight.requires_grad_()
    wanted = F.conv2d(x, weight, stride=2, padding=3)
    (wanted_gradient,) = torch.autograd.grad(wanted.sin().sum(), weight)
    found = stem_convolution(x, weight)
    assert found.shape == wanted.shape
    assert apart(found, wanted) < 1e-6
    (gradient,) = torch.autograd.grad(found.sin().sum(), weight)
    assert apart(gradient, wanted_gradient) < 1e-5


def test_images_in_float32_and_weights_in_bf16():
    x, weight = drawn(2, 3, 8, 8), drawn(5, 3, 7, 7)
    found = stem_convolution(x, weight.bfloat16())
    assert found.dtype == torch.bfloat16
    assert apart(found, F.conv2d(x, weight, stride=2, padding=3)) < 0.02


def test_which_convolutions_and_pools_are_stems():
    assert is_stem(nn.Conv2d(3, 64, 7, 2, 3, bias=False))
    for other in (
        nn.Conv2d(3, 64, 7, 2, 3),
        nn.Conv2d(5, 64, 7, 2, 3, bias=False),
        nn.Conv2d(3, 64, 7, 1, 3, bias=False),
        nn.Conv2d(3, 64, 7, 2, 2, bias=False),
        nn.Conv2d(3, 64, 5, 2, 3, bias=False),
        nn.Conv2d(3, 63, 7, 2, 3, groups=3, bias=False),
        nn.Conv2d(3, 64, 7, 2, 3, dilation=2, bias=False),
        nn.Conv2d(3, 64, 7, 2, 3, bias=False, padding_mode="reflect"),
    ):
        assert not is_stem(other)
    assert is_stem_pool(POOL)
    assert is_stem_pool(nn.MaxPool2d((3, 3), (2, 2), (1, 1)))
    for other in (
        nn.MaxPool2d(2, 2),
        nn.MaxPool2d(3, 2),
        nn.MaxPool2d(3, 2, 1, ceil_mode=True),
        nn.MaxPool2d(3, 2, 1, return_indices=True),
        nn.AvgPool2d(3, 2, 1),
        nn.Identity(),
    ):
        assert not is_stem_pool(other)


@pytest.mark.parametrize("used", [slice(0, 1), slice(0, 2), slice(1, 2)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("height", "width"), [(8, 6), (7, 9), (1, 1), (2, 3)])
def test_a_pool_and_its_gradient(height, width, dtype, used):
    """bf16 has few values, so that windows have equal ones, and the first of them gets the gradient, as in torch."""
    x = drawn(3, 64, height, width).to(dtype).to(memory_format=torch.channels_last).requires_grad_()
    out, wanted = max_pool(POOL, x), POOL(x)
    assert torch.equal(out[0], wanted)
    assert torch.equal(*out)
    gradients = [drawn(*wanted.shape).to(dtype), drawn(*wanted.shape).to(dtype)][used]
    (found,) = torch.autograd.grad(out[used], x, gradients)
    (expected,) = torch.autograd.grad(wanted, x, sum(gradients))
    assert found.dtype == dtype
    assert apart(found, expected) < (1e-6 if dtype == torch.float32 else 0.01)


def test_equal_values_and_nan_in_a_pool():
    x = torch.zeros(1, 32, 6, 6, device=DEVICE).to(memory_format=torch.channels_last)
    x[0, 1, 3, 3] = torch.nan
    x[0, 2] = -1.0
    x.requires_grad_()
    out, wanted = max_pool(POOL, x)[0], POOL(x)
    assert torch.equal(out.isnan(), wanted.isnan())
    assert torch.equal(out.nan_to_num(), wanted.nan_to_num())
    weights = drawn(*wanted.shape)
    (found,), (expected,) = (torch.autograd.grad(one, x, weights) for one in (out, wanted))
    assert torch.allclose(found, expected)


@torch.no_grad()
def test_a_network_uses_them(monkeypatch):
    network, images = build_backbone("resnet18").to(DEVICE).eval(), drawn(2, 3, 32, 32)
    wanted, convolution = network(images), F.conv2d

    def not_of_images(x, *given, **named):
        assert x.shape[1] != 3
        return convolution(x, *given, **named)

    monkeypatch.setattr(F, "conv2d", not_of_images)
    monkeypatch.setattr(F, "max_pool2d", None)
    assert apart(FusedNetwork(network.to(memory_format=torch.channels_last), torch.float32)(images), wanted) < 1e-4
