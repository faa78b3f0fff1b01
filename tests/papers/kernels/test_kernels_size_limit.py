"""Tensors that 32 bits cannot count: the kernels leave them alone. On the meta device, where they take no memory."""

import pytest
import torch
from torch import nn

from holdfast.core.errors import HoldfastError
from holdfast.train.encoders.resnet import CifarResNet

pytest.importorskip("triton")

from papers.kernels import grouped_convolution as grouped
from papers.kernels.batch_norm import kernels_support
from papers.kernels.cifar_resnet import FusedCifarResNet


def test_a_norm():
    norm = nn.BatchNorm2d(64)
    assert kernels_support(norm, torch.empty(512, 64, 256, 256, device="meta"))
    assert not kernels_support(norm, torch.empty(513, 64, 256, 256, device="meta"))


def test_a_grouped_convolution(monkeypatch):
    monkeypatch.setattr(grouped, "_Convolution", None)
    x, weight = torch.empty(1025, 32, 256, 256, device="meta"), torch.empty(32, 16, 3, 3, device="meta")
    for dtype in (torch.float32, torch.bfloat16):
        y = grouped.grouped_convolution(x.to(dtype), weight, stride=2)
        assert (y.shape, y.dtype) == ((1025, 32, 128, 128), dtype)


def test_a_trunk():
    trunk = FusedCifarResNet(CifarResNet(blocks=1, in_channels=3).to(memory_format=torch.channels_last))
    with pytest.raises(
        HoldfastError, match="131073 images of 32 x 32 at once are too many for the kernels; take at most 131072"
    ):
        trunk(torch.empty(131073, 3, 32, 32, device="meta"))
