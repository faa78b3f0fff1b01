"""The loop that computes features, against a plain call of the network."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from holdfast.core.errors import HoldfastError
from holdfast.train.encoders import Encoder, Preprocess, VectorInput, build_backbone
from holdfast.train.encoders.encode_loop import PIXELS_AT_ONCE, batch_size_for, compute_features

CPU = torch.device("cpu")


class Watched(nn.Module):
    """Gives two numbers for each image and keeps what it was given."""

    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm2d(3)
        self.seen = []

    def forward(self, x):
        self.seen.append(
            (x, self.training, self.norm.training, torch.is_grad_enabled(), torch.is_autocast_enabled("cpu"))
        )
        return self.norm(x).mean((2, 3))[:, :2]


@pytest.mark.parametrize("count", [0, 1, 4, 10])
def test_each_image_once_in_order(count):
    images, told = torch.randn(count, 3, 5, 5), []
    network = Watched().train()
    network.norm.eval()
    with torch.autocast("cpu", torch.bfloat16):
        found = compute_features(
            network, count, images.__getitem__, device=CPU, batch_size=4, finish=lambda z: 2 * z, progress=told.append
        )
    assert network.training
    assert not network.norm.training
    assert found.dtype == torch.float32
    assert not found.requires_grad
    assert told == [min(done, count) for done in range(4, max(count, 1) + 4, 4)]
    assert torch.equal(torch.cat([seen[0] for seen in network.seen]), images)
    assert {seen[1:] for seen in network.seen} == {(False, False, False, False)}
    network.eval()
    assert torch.allclose(found, 2 * network(images).detach(), atol=1e-6)


def test_every_memory_format_is_made_one():
    network, images = Watched(), torch.randn(4, 3, 5, 5)
    for given in (images, images.to(memory_format=torch.channels_last)):
        compute_features(network, 4, given.__getitem__, device=CPU, batch_size=4)
    assert all(seen[0].is_contiguous() for seen in network.seen)


def test_a_network_in_half_precision_gives_float32():
    network = Watched().to(torch.bfloat16)
    found = compute_features(network, 4, torch.randn(4, 3, 5, 5).__getitem__, device=CPU, batch_size=4)
    assert network.seen[0][0].dtype == torch.bfloat16
    assert found.dtype == torch.float32


@pytest.mark.parametrize(
    ("device", "shape", "wanted"),
    [
        ("cpu", (3, 32, 32), 512),
        ("cuda", (3, 32, 32), 4096),
        ("cuda", (3, 224, 224), 83),
        ("cpu", (768,), 682),
        ("mps", (1, 28, 28), 668),
        ("cpu", (3, 1000, 1000), 1),
    ],
)
def test_batches_that_suit_the_device(device, shape, wanted):
    assert batch_size_for(torch.device(device), shape) == wanted


@pytest.mark.parametrize("form", ["pixels", "prepared", "vectors", "bare vectors"])
def test_encode_takes_batches_that_suit_the_device(form, monkeypatch):
    monkeypatch.setitem(PIXELS_AT_ONCE, "cpu", 3 * 64)
    torch.manual_seed(0)
    if "vectors" in form:
        preprocess = None if "bare" in form else VectorInput(64)
        encoder, images = Encoder(build_backbone("linear", in_channels=64), preprocess=preprocess), torch.randn(7, 64)
    else:
        preprocess = Preprocess(size=8, mean=(0.5,) * 3, std=(0.2,) * 3)
        encoder = Encoder(build_backbone("resnet32"), preprocess=preprocess)
        images = np.random.default_rng(0).integers(0, 256, (7, 8, 8, 3), dtype=np.uint8)
        images = preprocess(images) if form == "prepared" else images
    sizes = []
    encoder.backbone.register_forward_hook(lambda module, x, z: sizes.append(len(x[0])))
    by_default = encoder.encode(images)
    assert sizes == [3, 3, 1]
    torch.testing.assert_close(encoder.encode(images, batch_size=7), by_default)
    assert sizes == [3, 3, 1, 7]
    with pytest.raises(HoldfastError, match="batch_size must be at least 1, got 0"):
        encoder.encode(images, batch_size=0)


def test_read_only_and_reversed_arrays_are_encoded():
    encoder = Encoder(build_backbone("small", width=8), preprocess=Preprocess(8, (0.5,), (0.2,), colour="grey"))
    images = np.random.default_rng(0).integers(0, 256, (5, 8, 8, 1), dtype=np.uint8)
    wanted = encoder.encode(images)
    assert torch.equal(encoder.encode(images[::-1]), wanted.flip(0))
    images.flags.writeable = False
    assert torch.equal(encoder.encode(images), wanted)
    assert math.isclose(wanted[0].norm(), 1, abs_tol=1e-6)
