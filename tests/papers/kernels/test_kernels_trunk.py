"""The fused kernels against the network they stand for: on a CPU by Triton's interpreter, in float32."""

import copy

import pytest
import torch
from distances import apart

from holdfast.core.errors import HoldfastError
from holdfast.train.encoders.resnet import CifarResNet

triton = pytest.importorskip("triton")
import triton.language as tl  # noqa: E402

from papers.kernels.cifar_resnet import FusedCifarResNet  # noqa: E402
from papers.kernels.sums import COPIES, FORWARD_UNIT, add_to_sum, read_sum  # noqa: E402

ON_GPU = torch.cuda.is_available()
DEVICE = "cuda" if ON_GPU else "cpu"
BLOCKS, BATCH, SIZE = (5, 32, 32) if ON_GPU else (1, 3, 8)  # the interpreter takes a second for a thousand pixels


@pytest.fixture(scope="module")
def pair():
    """A network with norms that are no identity, its copy, and what both make of one batch and its gradient."""
    torch.manual_seed(0)
    torch.backends.cudnn.allow_tf32 = False  # the reference is float32 to the last digit
    network = CifarResNet(blocks=BLOCKS, in_channels=3)
    for module in network.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            torch.nn.init.uniform_(module.weight, 0.5, 1.5)
            torch.nn.init.normal_(module.bias)
    network = network.to(DEVICE, memory_format=torch.channels_last)
    plain = copy.deepcopy(network)
    trunk = FusedCifarResNet(network, torch.float32)
    images, target = torch.randn(BATCH, 3, SIZE, SIZE, device=DEVICE), torch.randn(BATCH, 64, device=DEVICE)
    for run in (trunk, plain):
        run(images).sub(target).square().mean().backward()
    yield network, trunk, plain, images
    torch.backends.cudnn.allow_tf32 = True


def test_gradients(pair):
    network, _, plain, _ = pair
    for (name, found), wanted in zip(network.named_parameters(), plain.parameters()):
        assert apart(found.grad, wanted.grad) < 1e-4, name


def test_the_norms_remember_the_same(pair):
    network, _, plain, _ = pair
    for (name, found), wanted in zip(network.named_buffers(), plain.buffers()):
        assert torch.allclose(found.double(), wanted.double(), atol=1e-5), name


def test_features_in_evaluation(pair):
    network, trunk, plain, images = pair
    network.eval(), plain.eval()
    with torch.no_grad():
        assert apart(trunk(images), plain(images)) < 1e-4


@pytest.fixture
def small():
    """A trunk that trains, its network and two images."""
    torch.manual_seed(0)
    network = CifarResNet(blocks=1, in_channels=3).to(DEVICE, memory_format=torch.channels_last)
    return FusedCifarResNet(network, torch.float32), network, torch.randn(2, 3, 4, 4, device=DEVICE)


def test_gradients_that_would_be_lost_are_refused(small):
    trunk, network, images = small
    with pytest.raises(HoldfastError, match="not compute gradients of the images"):
        trunk(images.clone().requires_grad_())
    network.eval()
    with pytest.raises(HoldfastError, match=r"no gradients in evaluation mode; call the network under torch.no_grad"):
        trunk(images)
    with torch.no_grad():
        wanted = network(images)
        assert apart(trunk(images), wanted) < 1e-4
    network.requires_grad_(False)  # as an old model is
    assert apart(trunk(images), wanted) < 1e-4


@triton.jit
def add(values, order, sums, CHANNELS: tl.constexpr):
    channel = tl.arange(0, CHANNELS)
    mine = tl.load(values + tl.load(order + tl.program_id(0)) * CHANNELS + channel)
    add_to_sum(sums, mine, channel, tl.program_id(0), FORWARD_UNIT, CHANNELS)


@triton.jit
def read(sums, found, CHANNELS: tl.constexpr):
    channel = tl.arange(0, CHANNELS)
    tl.store(found + channel, read_sum(sums, channel, FORWARD_UNIT, CHANNELS))


def test_sums_do_not_depend_on_the_order():
    values = torch.randn(50, 16, device=DEVICE) * 1000
    found = []
    for order in (torch.arange(50), torch.arange(50).flip(0)):
        sums = torch.zeros(int(COPIES) * 16, dtype=torch.int64, device=DEVICE)
        total = torch.empty(16, dtype=torch.float64, device=DEVICE)
        add[(50,)](values, order.to(DEVICE), sums, CHANNELS=16)
        read[(1,)](sums, total, CHANNELS=16)
        found.append(total)
    assert torch.equal(*found)
    assert torch.allclose(found[0], values.double().sum(0), rtol=0, atol=1e-5)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # numpy, in the interpreter
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_what_is_no_number_reaches_the_features(training, bad):
    """A ReLU that takes NaN for 0 would hide a ruined weight behind a finite loss."""
    torch.manual_seed(0)
    network = CifarResNet(blocks=1, in_channels=3).to(DEVICE, memory_format=torch.channels_last).train(training)
    with torch.no_grad():
        network.layer1[0].conv1.weight[3, 2, 1, 1] = bad
        features = FusedCifarResNet(network, torch.float32)(torch.randn(2, 3, 8, 8, device=DEVICE))
    assert not features.isfinite().all()
