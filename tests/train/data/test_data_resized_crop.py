"""Random resized crops against a plain loop over images."""

import math

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from holdfast.core.errors import HoldfastError
from holdfast.train.data.augment import augment, centre_crop, crop_and_resize, crop_boxes
from holdfast.train.engine import FitOptions

SCALE, RATIO = (0.08, 1.0), (3 / 4, 4 / 3)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def pictures(count: int, height: int, width: int) -> torch.Tensor:
    return torch.randint(0, 256, (count, 3, height, width), dtype=torch.uint8, generator=generator(9))


@pytest.mark.parametrize(("height", "width", "size"), [(32, 32, 28), (40, 24, 16), (9, 17, 30), (5, 1, 4)])
def test_cut_and_scale_is_crop_then_resize(height, width, size):
    images = pictures(50, height, width)
    boxes = crop_boxes(images.shape, scale=SCALE, ratio=RATIO, generator=generator(1))
    got = crop_and_resize(images, boxes, size)
    assert got.dtype == torch.uint8
    for image, result, box in zip(images, got, boxes.T.tolist()):
        top, left, tall, wide = box
        cut = image[None, :, top : top + tall, left : left + wide].double()
        expected = F.interpolate(cut, (size, size), mode="bilinear", align_corners=False)[0]
        assert (result.double() - expected).abs().max() <= 0.51  # rounded to whole numbers


def test_the_whole_image_is_itself():
    images = pictures(4, 12, 12)
    whole = torch.tensor([[0], [0], [12], [12]]).expand(4, 4)
    assert torch.equal(crop_and_resize(images, whole, 12), images)


def test_boxes_are_inside_and_spread_as_asked():
    height = width = 256
    top, left, tall, wide = crop_boxes(
        torch.Size((20_000, 3, height, width)), scale=SCALE, ratio=RATIO, generator=generator()
    ).double()
    assert (top >= 0).all()
    assert (left >= 0).all()
    assert (top + tall <= height).all()
    assert (left + wide <= width).all()
    ratio = (wide / tall).log()
    assert ratio.min() > math.log(0.74)
    assert ratio.max() < math.log(1.35)
    # Against the usual loop, one image and one try at a time.
    area, reference = tall * wide / (height * width), reference_areas(height, width, 20_000)
    quantiles = np.linspace(0.05, 0.95, 10)
    np.testing.assert_allclose(np.quantile(area, quantiles), np.quantile(reference, quantiles), atol=0.015)
    room = (height - tall) > 0
    assert (top[room] / (height - tall[room])).mean() == pytest.approx(0.5, abs=0.01)


def reference_areas(height, width, count):
    random = np.random.default_rng(0)
    areas = []
    for _ in range(count):
        for _ in range(10):
            area = height * width * random.uniform(*SCALE)
            ratio = math.exp(random.uniform(*np.log(RATIO)))
            wide, tall = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
            if 0 < wide <= width and 0 < tall <= height:
                areas.append(wide * tall / (height * width))
                break
        else:
            areas.append(1.0)
    return areas


def test_where_no_box_fits_the_largest_fair_one_is_taken_from_the_centre():
    boxes = crop_boxes(torch.Size((3, 3, 10, 100)), scale=(1.0, 1.0), ratio=RATIO, generator=generator())
    assert boxes.T.tolist() == [[0, 43, 10, 13]] * 3
    boxes = crop_boxes(torch.Size((3, 3, 100, 10)), scale=(1.0, 1.0), ratio=RATIO, generator=generator())
    assert boxes.T.tolist() == [[43, 0, 13, 10]] * 3


def test_augment_uses_it_and_repeats_with_its_generator():
    images = pictures(6, 20, 20)
    once, again, other = (
        augment(images, crop_padding=0, flip=True, resized_crop=16, generator=generator(s)) for s in (1, 1, 2)
    )
    assert once.shape == (6, 3, 16, 16)
    assert torch.equal(once, again)
    assert not torch.equal(once, other)
    cut = crop_and_resize(images, crop_boxes(images.shape, scale=SCALE, ratio=RATIO, generator=generator(1)), 16)
    assert torch.equal(augment(images, crop_padding=0, flip=False, resized_crop=16, generator=generator(1)), cut)


def test_centre():
    images = torch.arange(7 * 9).view(1, 1, 7, 9)
    assert centre_crop(images, 3, 5)[0, 0].tolist() == [
        [20, 21, 22, 23, 24],
        [29, 30, 31, 32, 33],
        [38, 39, 40, 41, 42],
    ]
    assert torch.equal(centre_crop(images, 7, 9), images)


@pytest.mark.parametrize(
    "options",
    [
        {"resized_crop": 8},  # crop_padding is 4 by default
        {"resized_crop": -1, "crop_padding": 0},
        {"crop_scale": (0.0, 1.0)},
        {"crop_scale": (0.5, 1.5)},
        {"crop_ratio": (2.0, 1.0)},
    ],
)
def test_impossible_crops_are_refused(options):
    with pytest.raises(HoldfastError, match=r"^(crop|resized)_"):
        FitOptions(**options)
