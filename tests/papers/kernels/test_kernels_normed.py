"""Norms with what follows them by kernels against torch's own: on a CPU by Triton's interpreter."""

import copy

import pytest
import torch
import torch.nn.functional as F
from distances import apart
from torch import nn

from holdfast.train.encoders import Encoder, build_backbone
from papers.networks import squeeze_excite
from papers.networks.squeeze_excite import SqueezeExcitation

pytest.importorskip("triton")

from papers.kernels import batch_norm, networks
from papers.kernels.batch_norm import fused_batch_norm, kernels_support
from papers.kernels.networks import FusedNetwork
from papers.kernels.squeeze_excite import batch_norm_squeeze_excite

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
WORSE = 1.15 if DEVICE == "cuda" else 2.0
"""How much farther from float32 than torch's bf16 the kernels' may be; the interpreter cuts off where a GPU rounds."""
USED = [slice(0, 1), slice(0, 2), slice(1, 2)]
"""Of two outputs, or of the gradients given for them: the first, both, the second."""


@pytest.fixture(autouse=True)
def several_blocks_each(monkeypatch):
    """Few programs, so that each adds up several blocks and the last one ends in the middle of one."""
    monkeypatch.setattr(batch_norm, "PROGRAMS", 4)
    monkeypatch.setattr(batch_norm, "TILE", 1024)
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    torch.manual_seed(0)


def drawn(*shape):
    return torch.randn(shape, device=DEVICE).to(memory_format=torch.channels_last)


def made(channels):
    norm = nn.BatchNorm2d(channels, eps=1e-3, momentum=0.3).to(DEVICE)
    for tensor in (norm.weight, norm.bias, norm.running_mean):
        nn.init.normal_(tensor)
    nn.init.uniform_(norm.running_var, 0.5, 2)
    return norm


def check(found, wanted, inputs, gradients, tolerance=1e-5):
    assert apart(found[0], wanted[0]) < tolerance
    a = torch.autograd.grad(found, inputs, gradients)
    for i, (ours, theirs) in enumerate(zip(a, torch.autograd.grad(wanted, inputs, gradients))):
        assert ours.dtype == theirs.dtype
        assert apart(ours, theirs) < tolerance, i


@pytest.mark.parametrize("used", USED)
@pytest.mark.parametrize("kind", ["relu", "none", "residual and relu", "residual"])
@pytest.mark.parametrize("channels", [32, 96])
def test_a_norm_in_training(channels, kind, used):
    norm = made(channels)
    plain, relu = copy.deepcopy(norm), "relu" in kind
    y, residual = (2 * drawn(3, channels, 5, 7) + 1).requires_grad_(), drawn(3, channels, 5, 7).requires_grad_()
    given = residual if "residual" in kind else None
    out = fused_batch_norm(norm, y, given, relu=relu)
    u = F.batch_norm(y, plain.running_mean, plain.running_var, norm.weight, norm.bias, True, 0.3, 1e-3)
    u = u if given is None else u + residual
    u = F.relu(u) if relu else u
    inputs = [y, norm.weight, norm.bias] + ([residual] if given is not None else [])
    assert out[0].is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(*out)
    gradients = [torch.randn_like(y, memory_format=torch.contiguous_format), drawn(*y.shape)]
    check(out[used], (u, u)[used], inputs, gradients[used])
    assert torch.allclose(norm.running_mean, plain.running_mean, atol=1e-6)
    assert torch.allclose(norm.running_var, plain.running_var, rtol=1e-5)


@pytest.mark.parametrize(("channels", "side"), [(32, 6), (96, 3), (32, 8)])
def test_a_norm_with_weighed_channels(channels, side):
    """With images that end in the middle of a program's second block, in that of the first, or with the second."""
    norm, weigh = made(channels), SqueezeExcitation(channels, 7).to(DEVICE)
    plain, y = copy.deepcopy(norm), (2 * drawn(5, channels, side, side) + 1).requires_grad_()
    out = batch_norm_squeeze_excite(norm, weigh, y)
    u = F.batch_norm(y, plain.running_mean, plain.running_var, norm.weight, norm.bias, True, 0.3, 1e-3)
    inputs = [y, norm.weight, norm.bias, *weigh.parameters()]
    check([out], [weigh(F.relu(u))], inputs, [drawn(*y.shape)])
    assert torch.allclose(norm.running_mean, plain.running_mean, atol=1e-6)
    assert torch.allclose(norm.running_var, plain.running_var, rtol=1e-5)


@torch.no_grad()
def test_evaluation():
    norm, weigh = made(32).eval(), SqueezeExcitation(32, 7).to(DEVICE)
    before, y, residual = copy.deepcopy(norm.state_dict()), drawn(3, 32, 5, 7), drawn(3, 32, 5, 7)
    assert kernels_support(norm, y)
    assert apart(fused_batch_norm(norm, y)[0], F.relu(norm(y))) < 1e-6
    assert apart(fused_batch_norm(norm, y, residual)[0], F.relu(norm(y) + residual)) < 1e-6
    assert apart(fused_batch_norm(norm, y, relu=False)[0], norm(y)) < 1e-6
    assert apart(batch_norm_squeeze_excite(norm, weigh, y), weigh(F.relu(norm(y)))) < 1e-6
    assert all(torch.equal(a, b) for a, b in zip(norm.state_dict().values(), before.values()))


def test_in_bf16_nothing_is_less_exact_than_by_torch():
    norm, weigh = made(32), SqueezeExcitation(32, 8).to(DEVICE)
    y, residual = drawn(4, 32, 6, 6).bfloat16().requires_grad_(), drawn(4, 32, 6, 6).bfloat16().requires_grad_()
    reduced, dout = copy.deepcopy(weigh).bfloat16(), drawn(4, 32, 6, 6).bfloat16()

    def results(inputs, out):
        return [out, *torch.autograd.grad(out, inputs, dout.to(out.dtype))]

    exact = [one.detach().float().requires_grad_() for one in (y, residual)]
    for ours, theirs, wanted in (
        (
            results((y, residual, norm.weight), fused_batch_norm(norm, y, residual)[0]),
            results((y, residual, norm.weight), F.relu(norm(y) + residual)),
            results((*exact, norm.weight), F.relu(norm(exact[0]) + exact[1])),
        ),
        (
            results((y, norm.weight), batch_norm_squeeze_excite(norm, reduced, y)),
            results((y, norm.weight), reduced(F.relu(norm(y)))),
            results((exact[0], norm.weight), weigh(F.relu(norm(exact[0])))),
        ),
    ):
        for a, b, c in zip(ours, theirs, wanted):
            assert a.dtype == b.dtype
            assert apart(a, c) < WORSE * apart(b, c) + 1e-5


def test_what_the_kernels_do_not_take_is_left_to_torch():
    y = drawn(2, 32, 3, 3)
    assert kernels_support(made(32), y)
    assert not kernels_support(made(32).eval(), y)  # its gradient is asked for
    assert kernels_support(made(32).eval().requires_grad_(False), y)
    assert not kernels_support(nn.BatchNorm2d(32, momentum=None), y)
    assert not kernels_support(nn.BatchNorm2d(32, track_running_stats=False), y)
    assert not kernels_support(nn.BatchNorm2d(32, affine=False), y)
    with pytest.raises(ValueError, match="more than 1 value"):
        fused_batch_norm(made(32), y[:1, :, :1, :1])


@pytest.mark.parametrize("training", [True, False])
@torch.no_grad()
def test_what_is_no_number_stays_so(training):
    norm, weigh, y = made(32).train(training), SqueezeExcitation(32, 7).to(DEVICE), drawn(2, 32, 3, 3)
    y[1, 5, 2, 1] = torch.nan
    assert fused_batch_norm(norm, y)[0][1, 5, 2, 1].isnan()
    assert batch_norm_squeeze_excite(norm, weigh, y)[1].isnan().any(dim=(1, 2)).all()  # it is in the mean of the image


@pytest.fixture
def network(monkeypatch):
    """Two blocks, without a shortcut's norm and with one.

    With torch's grouped convolutions: the interpreter is slow at them and cannot multiply bf16.
    """

    def by_torch(x, weight, stride, *, cast):
        return F.conv2d(x, cast, stride=stride, padding=1, groups=x.shape[1] // 16)

    monkeypatch.setattr(networks, "grouped_convolution", by_torch)
    monkeypatch.setattr(batch_norm, "TILE", 4096)
    monkeypatch.setattr(squeeze_excite, "WIDTHS", (64, 32, 32, 96))
    monkeypatch.setattr(squeeze_excite, "DEPTHS", (1, 0, 0, 1))
    return Encoder(build_backbone("regnety_400mf"), 7).to(DEVICE, memory_format=torch.channels_last)


def test_a_whole_network_twice_gives_the_same_bits_and_torchs_values(network):
    images, target = drawn(3, 3, 4, 4), torch.randn(3, 7, device=DEVICE)

    def outcome(make):
        own = copy.deepcopy(network)
        run = make(own)
        z = run(images)
        (z - target).square().mean().backward()
        own.eval()
        with torch.no_grad():
            return [z, run(images), *own.buffers(), *(parameter.grad for parameter in own.parameters())]

    ours, again, theirs = (outcome(make) for make in (by_the_kernels, by_the_kernels, lambda own: own))
    assert all(torch.equal(a, b) for a, b in zip(ours, again))
    for a, b in zip(ours, theirs):
        assert apart(a, b) < 1e-4 if b.is_floating_point() else torch.equal(a, b)


def test_a_whole_network_in_bf16_has_none_of_torchs_norms(network, monkeypatch):
    images, exact, plain = drawn(4, 3, 4, 4), copy.deepcopy(network), copy.deepcopy(network)
    results = [exact(images)]
    with torch.autocast(DEVICE, torch.bfloat16):
        results.append(plain(images))
    monkeypatch.setattr(F, "batch_norm", None)
    results.append(FusedNetwork(network)(images))
    assert results[2].dtype == torch.bfloat16
    for z in results:
        z.float().square().sum().backward()
    wanted, theirs, ours = (torch.cat([p.grad.flatten() for p in n.parameters()]) for n in (exact, plain, network))
    assert apart(ours, wanted) < WORSE * apart(theirs, wanted)
    for (name, a), b in zip(network.named_buffers(), exact.buffers()):
        assert torch.allclose(a.float(), b.float(), atol=0.03), name


def by_the_kernels(network):
    return FusedNetwork(network, torch.float32)
