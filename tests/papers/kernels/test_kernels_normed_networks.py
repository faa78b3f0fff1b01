"""ResNet and SENet by the kernels against torch's own: on a CPU by Triton's interpreter."""

import copy

import pytest
import torch
import torch.nn.functional as F
from distances import apart
from torch import nn

from holdfast.train.encoders import Encoder
from holdfast.train.encoders.resnet import BasicBlock, Bottleneck, ResNet
from papers.kernels import why_no_kernels
from papers.networks.squeeze_excite import PreActivationBlock, SENet, SqueezeExcitation

pytest.importorskip("triton")

from papers.kernels import batch_norm, sums
from papers.kernels.networks import FusedNetwork
from papers.kernels.squeeze_excite import _SqueezeExciteAdd, squeeze_excite_add

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
WORSE = 1.15 if DEVICE == "cuda" else 2.0
"""How much farther from float32 than torch's bf16 the kernels' may be; the interpreter cuts off where a GPU rounds."""
NETWORKS = ["basic, small", "basic, imagenet", "bottleneck, imagenet", "senet"]


@pytest.fixture(autouse=True)
def exact(monkeypatch):
    """The reference is float32 to the last digit, and the convolutions, which are torch's, the same each time.

    Few programs: the interpreter takes a millisecond for each.
    """
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", True)
    for name, value in {"PROGRAMS": 4, "TILE": 8192, "WIDEST": 256}.items():
        monkeypatch.setattr(batch_norm, name, value)
    torch.manual_seed(0)


def drawn(*shape):
    return torch.randn(shape, device=DEVICE).to(memory_format=torch.channels_last)


def made(kind):
    """Two blocks, without a projected shortcut and with one where the block's kind allows; norms are no identity."""
    wide = 128
    if kind == "senet":
        backbone = SENet(3)
        backbone.blocks = nn.Sequential(PreActivationBlock(64, 64, 1), PreActivationBlock(64, wide, 2))
        backbone.bn, backbone.feature_dim = nn.BatchNorm2d(wide), wide
    else:
        block = BasicBlock if "basic" in kind else Bottleneck
        backbone = ResNet(block, (1, 1, 1, 1), kind.split(", ")[1], 3)
        backbone.layer2 = backbone.layer3 = nn.Sequential()
        backbone.layer4 = nn.Sequential(block(64 * block.expansion, wide, 2))
        backbone.feature_dim = wide * block.expansion
    encoder = Encoder(backbone, 7).to(DEVICE, memory_format=torch.channels_last)
    for module in encoder.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.normal_(module.bias)
    return encoder


@pytest.mark.slow
@pytest.mark.parametrize("kind", NETWORKS)
def test_a_whole_network_twice_gives_the_same_bits_and_torchs_values(kind):
    """In training, then in evaluation, as old models are run."""
    network, images, target = made(kind), drawn(3, 3, 8, 10), torch.randn(3, 7, device=DEVICE)
    assert why_no_kernels(network, 8, 10) == ""

    def outcome(make):
        own = copy.deepcopy(network)
        run = make(own)
        z = run(images)
        (z - target).square().mean().backward()
        own.eval()
        with torch.no_grad():
            features = run(images)
        found = {name: parameter.grad for name, parameter in own.named_parameters()}
        return found | dict(own.named_buffers()) | {"z": z, "features": features}

    ours, again = (outcome(lambda own: FusedNetwork(own, torch.float32)) for _ in range(2))
    assert all(torch.equal(ours[name], again[name]) for name in ours)
    for name, wanted in outcome(lambda own: own).items():
        if wanted.is_floating_point():
            assert apart(ours[name], wanted) < 1e-4, name
        else:
            assert torch.equal(ours[name], wanted), name


def train_otherwise(network, how):
    norms = [module for module in network.modules() if isinstance(module, nn.BatchNorm2d)]
    if how == "in evaluation":
        network.eval()
    elif how == "a norm in evaluation":
        norms[1].eval()
    elif how == "a frozen weight":
        norms[0].bias.requires_grad_(False)
        next(network.backbone.parameters()).requires_grad_(False)
    elif how == "a shortcut that pools":
        convolution, norm = network.backbone.layer4[0].downsample
        convolution.stride = (1, 1)
        network.backbone.layer4[0].downsample = nn.Sequential(nn.AvgPool2d(2, ceil_mode=True), convolution, norm)


@pytest.mark.parametrize(
    ("kind", "how"),
    [
        *((kind, how) for kind in ("basic, small", "senet") for how in ("in evaluation", "a norm in evaluation")),
        *((kind, how) for kind in ("basic, small", "senet") for how in ("a frozen weight", "odd sides")),
        ("basic, small", "a shortcut that pools"),
        ("bottleneck, imagenet", "a shortcut that pools"),
    ],
)
def test_a_whole_network_that_is_trained_otherwise(kind, how):
    network = made(kind)
    # Behind ImageNet's stem 8 x 6 pixels are one, and a norm over three numbers blows any rounding up.
    images = drawn(6, 3, 24, 18) if "imagenet" in kind else drawn(3, 3, *(7, 9) if how == "odd sides" else (8, 6))
    train_otherwise(network, how)
    assert why_no_kernels(network, *images.shape[2:]) == ""
    plain = copy.deepcopy(network)
    results = [run(images) for run in (FusedNetwork(network, torch.float32), plain)]
    assert apart(*results) < 1e-4
    for z in results:
        z.square().mean().backward()
    for (name, a), b in zip(network.named_parameters(), plain.parameters()):
        assert apart(a.grad, b.grad) < 1e-4 if b.requires_grad else a.grad is None, name
    for (name, a), b in zip(network.named_buffers(), plain.buffers()):
        assert torch.allclose(a.double(), b.double(), atol=1e-5), name


@pytest.mark.parametrize("kind", ["basic, imagenet", "senet"])
def test_a_whole_network_in_bf16_has_none_of_torchs_norms(kind, monkeypatch):
    network, images = made(kind), drawn(*((128, 3, 32, 32) if DEVICE == "cuda" else (6, 3, 8, 8)))
    exact, plain = copy.deepcopy(network), copy.deepcopy(network)
    results = [exact(images)]
    with torch.autocast(DEVICE, torch.bfloat16):
        results.append(plain(images))
    for module, name in ((F, "batch_norm"), (F, "relu"), (SqueezeExcitation, "forward")):
        monkeypatch.setattr(module, name, None)
    results.append(FusedNetwork(network)(images))
    assert results[2].dtype == torch.bfloat16
    for z in results:
        z.float().square().sum().backward()
    wanted, theirs, ours = (torch.cat([p.grad.flatten() for p in n.parameters()]) for n in (exact, plain, network))
    assert apart(ours, wanted) < WORSE * apart(theirs, wanted)
    for (name, a), b in zip(network.named_buffers(), exact.buffers()):
        assert torch.allclose(a.float(), b.float(), atol=0.03), name


@pytest.mark.parametrize(
    ("channels", "side", "used"), [(32, 6, slice(1)), (96, 3, slice(2)), (32, 8, slice(2)), (32, 3, slice(1, 2))]
)
def test_weighed_channels_and_a_sum(channels, side, used, monkeypatch):
    """With images that end in the middle of a program's block, or with it; in one slice of channels or in several."""
    monkeypatch.setattr(batch_norm, "TILE", 512)
    weigh = SqueezeExcitation(channels, 7).to(DEVICE)
    y, shortcut = (drawn(3, channels, side, side).requires_grad_() for _ in range(2))
    out = squeeze_excite_add(weigh, y, shortcut)
    assert out[0].is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(*out)
    wanted, inputs = weigh(y) + shortcut, [y, shortcut, *weigh.parameters()]
    assert apart(out[0], wanted) < 1e-5
    gradients = [torch.randn_like(y, memory_format=torch.contiguous_format), drawn(*y.shape)][used]
    ours = torch.autograd.grad(out[used], inputs, gradients)
    for i, (a, b) in enumerate(zip(ours, torch.autograd.grad(wanted, inputs, sum(gradients)))):
        assert apart(a, b) < 1e-5, i


@torch.no_grad()
def test_what_is_no_number_stays_so():
    weigh, y = SqueezeExcitation(32, 7).to(DEVICE), drawn(2, 32, 3, 3)
    y[1, 5, 2, 1] = torch.nan
    out, _ = squeeze_excite_add(weigh, y, torch.zeros_like(y))
    assert out[1].isnan().all()  # it is in the mean of the image
    assert out[0].isfinite().all()


def test_what_is_too_large_for_the_kernels_is_left_to_torch(monkeypatch):
    weigh, y = SqueezeExcitation(32, 7).to(DEVICE), drawn(2, 32, 3, 3)
    monkeypatch.setattr(sums, "MAX_ELEMENTS", y.numel() - 1)
    monkeypatch.setattr(_SqueezeExciteAdd, "apply", None)
    assert torch.equal(squeeze_excite_add(weigh, y, y)[0], weigh(y) + y)


def test_a_shortcut_of_another_dtype_is_left_to_torch(monkeypatch):
    """Torch's sum has the wider of the two dtypes, the kernels' would have y's."""
    weigh, y = SqueezeExcitation(32, 7).to(DEVICE), drawn(2, 32, 3, 3)
    shortcut = y.bfloat16().requires_grad_()
    monkeypatch.setattr(_SqueezeExciteAdd, "apply", None)
    out = squeeze_excite_add(weigh, y, shortcut)
    assert out[0].dtype == torch.float32
    assert torch.equal(out[0], weigh(y) + shortcut)
    torch.autograd.backward(out, (y, y))
    assert torch.equal(shortcut.grad, (2 * y).bfloat16())
