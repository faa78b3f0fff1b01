"""Activations that are large, too large for the kernels' sums, or infinite: right, or seen in the result."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from holdfast.train.encoders.resnet import CifarResNet
from papers.networks.squeeze_excite import SqueezeExcitation

pytest.importorskip("triton")

from papers.kernels import batch_norm
from papers.kernels.batch_norm import fused_batch_norm
from papers.kernels.cifar_resnet import FusedCifarResNet
from papers.kernels.squeeze_excite import batch_norm_squeeze_excite
from papers.kernels.sums import FORWARD_UNIT, LARGEST

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # numpy, in the interpreter


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


def drawn(*shape):
    return torch.randn(shape, device=DEVICE).to(memory_format=torch.channels_last)


def test_the_sums_have_room_for_large_values_of_many_pixels(monkeypatch):
    """Squares of 16,384 pixels that amount to 6e10 per channel: their mean has to fit, not their sum."""
    monkeypatch.setattr(batch_norm, "TILE", 2**15)
    norm, y = nn.BatchNorm2d(16).to(DEVICE), 2000 * drawn(4, 16, 64, 64) + 500
    wanted = F.relu(copy.deepcopy(norm)(y))
    assert torch.allclose(fused_batch_norm(norm, y)[0], wanted, atol=1e-4)
    assert torch.allclose(norm.running_var, 0.9 + 0.1 * y.var(dim=(0, 2, 3)), rtol=1e-4)


def test_the_largest_values_have_room():
    assert FORWARD_UNIT.value * LARGEST.value**2 <= 2**62
    norm, y = nn.BatchNorm2d(16).to(DEVICE), LARGEST.value * drawn(3, 16, 5, 7).sign()
    wanted = F.batch_norm(y.double(), None, None, training=True)
    assert torch.allclose(fused_batch_norm(norm, y, relu=False)[0].double(), wanted, atol=1e-5)
    assert torch.allclose(norm.running_var, 0.9 + 0.1 * y.var(dim=(0, 2, 3)), rtol=1e-5)


@pytest.mark.parametrize("bad", [torch.inf, -torch.inf, 1e9, -1e9])
@torch.no_grad()
def test_what_the_sums_have_no_room_for_is_no_number(bad):
    """Behind a ReLU half of the infinities would be zeros, and the sums they spoilt would look like any others."""
    norm, weigh, y = nn.BatchNorm2d(32).to(DEVICE), SqueezeExcitation(32, 7).to(DEVICE), drawn(2, 32, 3, 3)
    y[1, 5, 2, 1] = bad
    assert fused_batch_norm(norm, y)[0][1, 5, 2, 1].isnan()
    assert fused_batch_norm(norm, y, drawn(2, 32, 3, 3), relu=False)[0][1, 5, 2, 1].isnan()
    weighed = batch_norm_squeeze_excite(norm, weigh, y)
    assert weighed[1, 5, 2, 1].isnan()
    assert weighed[1].isnan().any(dim=(1, 2)).all()  # it is in the mean of the image


@pytest.mark.parametrize("bad", [torch.inf, -torch.inf, 1e9])
@torch.no_grad()
def test_in_evaluation_nothing_is_summed_and_all_is_as_torch_has_it(bad):
    norm, weigh, y = nn.BatchNorm2d(32).to(DEVICE).eval(), SqueezeExcitation(32, 7).to(DEVICE), drawn(2, 32, 3, 3)
    y[1, 5, 2, 1] = bad
    for found, wanted in (
        (fused_batch_norm(norm, y)[0], F.relu(norm(y))),
        (fused_batch_norm(norm, y, relu=False)[0], norm(y)),
        (batch_norm_squeeze_excite(norm, weigh, y), weigh(F.relu(norm(y)))),
    ):
        assert torch.equal(found.isnan(), wanted.isnan())
        assert torch.allclose(found, wanted, rtol=1e-4, equal_nan=True)


@pytest.mark.parametrize("by_rows", [True, False])
@torch.no_grad()
def test_a_whole_trunk_shows_images_that_are_too_large(by_rows):
    network = CifarResNet(blocks=1, in_channels=3).to(DEVICE, memory_format=torch.channels_last)
    features = FusedCifarResNet(network, torch.float32, by_rows=by_rows)(1e7 * torch.randn(2, 3, 8, 8, device=DEVICE))
    assert not features.isfinite().all()
