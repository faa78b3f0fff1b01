"""Convolutions row by row against the same tap by tap: on a CPU by Triton's interpreter, in float32."""

import copy

import pytest
import torch
from distances import apart

from holdfast.train.encoders.resnet import CifarResNet

pytest.importorskip("triton")

from papers.kernels.cifar_resnet import FusedCifarResNet
from papers.kernels.convolution_rows import (
    BACKWARD_ROWS,
    FORWARD_ROWS,
    NINE_TAPS,
    NineTiles,
    RowTiles,
    row_grid,
)

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
IMAGES = 3  # a number that leaves a program with images beyond the batch


@pytest.fixture(scope="module")
def pair():
    """One network by rows and its copy by taps after a batch. RowGrid shorter than images: their borders must meet."""
    with pytest.MonkeyPatch.context() as patch:
        for channels, pixels, rows in ((16, 32, 4), (32, 16, 2), (64, 16, 1)):
            for table in (FORWARD_ROWS, BACKWARD_ROWS):
                patch.setitem(table, channels, RowTiles(pixels, rows, warps=1))
            patch.setitem(NINE_TAPS, channels, NineTiles(parts=3, block=16, shifts=1 if channels == 64 else 3))
        torch.manual_seed(0)
        by_rows = CifarResNet(blocks=1, in_channels=3)
        for module in by_rows.modules():
            if isinstance(module, torch.nn.BatchNorm2d):
                torch.nn.init.uniform_(module.weight, 0.5, 1.5)
                torch.nn.init.normal_(module.bias)
        by_rows = by_rows.to(DEVICE, memory_format=torch.channels_last)
        by_taps = copy.deepcopy(by_rows)
        images, target = torch.randn(IMAGES, 3, 8, 8, device=DEVICE), torch.randn(IMAGES, 64, device=DEVICE)
        for network, rows in ((by_rows, True), (by_taps, False)):
            features = FusedCifarResNet(network, torch.float32, by_rows=rows)(images)
            features.sub(target).square().mean().backward()
        yield by_rows, by_taps, images


@pytest.mark.slow
def test_gradients(pair):
    by_rows, by_taps, _ = pair
    for (name, found), wanted in zip(by_rows.named_parameters(), by_taps.parameters()):
        assert apart(found.grad, wanted.grad) < 1e-5, name


@pytest.mark.slow
def test_the_norms_remember_the_same(pair):
    by_rows, by_taps, _ = pair
    for (name, found), wanted in zip(by_rows.named_buffers(), by_taps.buffers()):
        assert apart(found.double(), wanted.double()) < 1e-5, name


@pytest.mark.slow
def test_features_in_evaluation(pair):
    by_rows, _, images = pair
    by_rows.eval()
    with torch.no_grad():
        found, wanted = (FusedCifarResNet(by_rows, torch.float32, by_rows=rows)(images) for rows in (True, False))
    assert apart(found, wanted) < 1e-5


def test_strips_cover_every_row_of_every_image():
    cut = row_grid({16: RowTiles(pixels=64, rows=8, warps=2)}, 1, torch.empty(5, 32, 32, 16))
    assert cut is not None
    assert cut.grid == (3 * 4,)
    assert (cut.options["IMAGES"], cut.options["ROWS"], cut.options["num_warps"]) == (2, 8, 2)


@pytest.mark.parametrize(
    ("stride", "shape"),
    [(2, (4, 32, 32, 16)), (1, (4, 8, 8, 64)), (1, (4, 24, 24, 16)), (1, (4, 12, 16, 16)), (1, (4, 64, 64, 16))],
)
def test_what_does_not_fit_goes_tap_by_tap(stride, shape):
    assert row_grid({16: RowTiles(pixels=32, rows=8, warps=1)}, stride, torch.empty(shape)) is None
