"""Grouped convolutions by kernels against torch's own: on a CPU by Triton's interpreter, in float32."""

import copy

import pytest
import torch
import torch.nn.functional as F
from distances import apart
from torch import nn

from holdfast.train.encoders import Encoder, build_backbone

pytest.importorskip("triton")

from papers.kernels import batch_norm, networks, squeeze_excite
from papers.kernels.grouped_convolution import grouped_convolution
from papers.kernels.networks import FusedNetwork
from papers.networks import squeeze_excite as se_networks

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.fixture(autouse=True)
def exact(monkeypatch):
    """The reference is float32 to the last digit."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    torch.manual_seed(0)


def drawn(*shape):
    return torch.randn(shape, device=DEVICE).to(memory_format=torch.channels_last)


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("groups", [2, 5])
def test_a_convolution_and_its_gradients(groups, stride):
    """180 or 45 pixels in steps of 128 and of 64, so that some end in the middle of a program."""
    x, weight = drawn(3, 16 * groups, 6, 10).requires_grad_(), drawn(16 * groups, 16, 3, 3).requires_grad_()
    y, wanted = grouped_convolution(x, weight, stride), F.conv2d(x, weight, stride=stride, padding=1, groups=groups)
    assert y.shape == wanted.shape
    assert y.is_contiguous(memory_format=torch.channels_last)
    assert apart(y, wanted) < 1e-5
    # Nobody promises channels-last on the way back.
    dy = torch.randn_like(wanted, memory_format=torch.contiguous_format)
    found = torch.autograd.grad(y, (x, weight), dy)
    for name, a, b in zip("xw", found, torch.autograd.grad(wanted, (x, weight), dy)):
        assert apart(a, b) < 1e-5, name
    assert found[1].stride() == weight.stride()  # else autograd copies it


def test_in_half_precision_the_weights_gradient_is_float32_all_the_same():
    """In float16: the interpreter multiplies bf16 as if it were whole numbers."""
    x, weight = drawn(1, 32, 4, 4).half().requires_grad_(), drawn(32, 16, 3, 3).requires_grad_()
    exact = x.detach().float().requires_grad_(), weight.detach().half().float().requires_grad_()
    y, wanted = grouped_convolution(x, weight), F.conv2d(*exact, padding=1, groups=2)
    dy = torch.randn_like(y)
    found = torch.autograd.grad(y, (x, weight), dy)
    assert (y.dtype, found[0].dtype, found[1].dtype) == (torch.half, torch.half, torch.float32)
    assert apart(y.float(), wanted) < 1e-3
    for a, b, tolerance in zip(found, torch.autograd.grad(wanted, exact, dy.float()), (1e-3, 1e-6)):
        assert apart(a.float(), b) < tolerance


@pytest.fixture
def encoder(monkeypatch):
    """A RegNetY of three blocks with 2, 4 and 2 groups, two of which halve the image; its norms are no identity."""
    monkeypatch.setattr(se_networks, "WIDTHS", (32, 32, 64, 32))
    monkeypatch.setattr(se_networks, "DEPTHS", (1, 0, 1, 1))
    made = Encoder(build_backbone("regnety_400mf"), 7).to(DEVICE, memory_format=torch.channels_last)
    for module in made.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.normal_(module.bias)
    return made


@pytest.mark.slow
def test_a_whole_network(encoder):
    """In training, twice before the way back as methods with two views do it; then in evaluation."""
    plain, fused = copy.deepcopy(encoder), FusedNetwork(encoder, torch.float32)
    views = drawn(3, 3, 8, 8), drawn(3, 3, 8, 8)
    results = [[run(view) for view in views] for run in (fused, plain)]
    for a, b in zip(*results):
        assert apart(a, b) < 1e-5
    target = torch.randn(3, 7, device=DEVICE)
    for result in results:
        sum((z - target).square().mean() for z in result).backward()
    for (name, a), b in zip(encoder.named_parameters(), plain.parameters()):
        assert apart(a.grad, b.grad) < 1e-4, name
    for (name, a), b in zip(encoder.named_buffers(), plain.buffers()):
        assert torch.allclose(a.double(), b.double(), atol=1e-5), name
    assert encoder.backbone.blocks[0].bn2.num_batches_tracked == 2
    encoder.eval(), plain.eval()
    with torch.no_grad():
        encoder.backbone.blocks[1].conv2.weight *= 2  # as an optimiser does, and loading a model
        assert apart(fused(views[0]), plain(views[0])) > 1e-3
        plain.backbone.blocks[1].conv2.weight *= 2
        assert apart(fused(views[0]), plain(views[0])) < 1e-5
    assert encoder.backbone.blocks[0].bn2.num_batches_tracked == 2


def test_all_but_the_kernels_is_autocast_to_the_last_bit(encoder, monkeypatch):
    """With torch's convolutions and norms in the kernels' place: casting and counting all at once changes nothing."""

    def by_torch(x, weight, stride, *, cast):
        return F.conv2d(x, cast, stride=stride, padding=1, groups=x.shape[1] // 16)

    monkeypatch.setattr(networks, "grouped_convolution", by_torch)
    for module in (batch_norm, squeeze_excite):
        monkeypatch.setattr(module, "kernels_support", lambda *tensors: False)
    plain, fused, images = copy.deepcopy(encoder), FusedNetwork(encoder), drawn(3, 3, 8, 8)
    with torch.autocast(DEVICE, torch.bfloat16, cache_enabled=False):
        wanted = plain(images)
    found = fused(images)
    assert found.dtype == torch.bfloat16
    assert torch.equal(found, wanted)
    for z in (found, wanted):
        z.float().square().sum().backward()
    for (name, a), b in zip(encoder.named_parameters(), plain.parameters()):
        assert torch.equal(a.grad, b.grad), name
    for (name, a), b in zip(encoder.named_buffers(), plain.buffers()):
        assert torch.equal(a, b), name
