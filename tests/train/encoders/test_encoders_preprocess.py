"""From images to the network's input."""

import json

import numpy as np
import pytest
import torch
from PIL import Image

from holdfast.core.errors import HoldfastError
from holdfast.train.encoders import Preprocess, VectorInput

RGB = Preprocess(size=8, mean=(0.5, 0.4, 0.3), std=(0.2, 0.3, 0.4))
GREY = Preprocess(size=(8, 10), mean=(0.1,), std=(0.3,), colour="grey")


def pixels(*shape):
    return np.random.default_rng(1).integers(0, 256, shape, dtype=np.uint8)


def test_values_are_scaled_then_standardised():
    images = pixels(3, 8, 8, 3)
    out = RGB(images)
    expected = (images / 255.0 - [0.5, 0.4, 0.3]) / [0.2, 0.3, 0.4]
    assert out.shape == (3, 3, 8, 8)
    assert out.dtype == torch.float32
    np.testing.assert_allclose(out.numpy(), expected.transpose(0, 3, 1, 2), atol=1e-5)


def test_all_forms_of_an_image_agree_to_the_bit(tmp_path):
    image = pixels(8, 8, 3)
    Image.fromarray(image).save(tmp_path / "a.png")
    reference = RGB.normalise(torch.from_numpy(image).permute(2, 0, 1)[None])
    forms = [
        image,
        Image.fromarray(image),
        tmp_path / "a.png",
        str(tmp_path / "a.png"),
        (tmp_path / "a.png").read_bytes(),
    ]
    for form in forms:
        assert torch.equal(RGB(form), reference)
    assert torch.equal(RGB(forms), reference.expand(len(forms), -1, -1, -1))
    assert torch.equal(RGB(image[None]), reference)


def test_grey_and_rgb_cross_over():
    grey = pixels(8, 10)
    assert torch.equal(GREY(grey), GREY(grey[..., None]))
    assert torch.equal(GREY(grey), GREY(np.repeat(grey[..., None], 3, axis=2)))
    square = pixels(8, 8, 1)
    assert torch.equal(RGB(square), RGB(np.repeat(square, 3, axis=2)))
    assert torch.equal(RGB(pixels(4, 8, 8, 1)), RGB(np.repeat(pixels(4, 8, 8, 1), 3, axis=3)))


def test_other_sizes_are_scaled_and_none_is_no_image():
    assert RGB([pixels(20, 9, 3), Image.new("L", (5, 5))]).shape == (2, 3, 8, 8)
    assert RGB(np.full((30, 17, 3), 255, np.uint8))[0, 0].eq(RGB(np.full((8, 8, 3), 255, np.uint8))[0, 0]).all()
    assert RGB([]).shape == (0, 3, 8, 8)
    assert GREY(np.empty((0, 28, 28, 1), np.uint8)).shape == (0, 1, 8, 10)


def test_normalise_after_inference_mode_is_free_of_it():
    fresh = Preprocess(size=2, mean=(0.123,), std=(0.456,), colour="grey")
    with torch.inference_mode():
        fresh.normalise(torch.zeros(1, 1, 2, 2, dtype=torch.uint8))
    weight = torch.ones(1, requires_grad=True)
    (fresh.normalise(torch.zeros(1, 1, 2, 2, dtype=torch.uint8)) * weight).sum().backward()
    assert weight.grad.item() == pytest.approx(4 * -0.123 / 0.456)


def test_json_round_trip():
    for preprocess in (RGB, GREY, Preprocess(224, (0.5,) * 3, (0.5,) * 3, resize=256, interpolation="bicubic")):
        again = Preprocess.from_json(json.loads(json.dumps(preprocess.to_json())))
        assert again == preprocess
        assert hash(again) == hash(preprocess)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"size": 0}, "size must be"),
        ({"size": [1, 2, 3]}, "size must be"),
        ({"mean": [0.5]}, "needs mean and std of 3"),
        ({"std": [1, 1, 0]}, "std positive"),
        ({"mean": [0, 0, float("nan")]}, "mean must be finite"),
        ({"colour": "cmyk"}, "unknown colour"),
        ({"interpolation": "area"}, "unknown interpolation"),
        ({"resize": 4}, "resize 4 is smaller"),
        ({"crop": 4}, "unknown preprocess key 'crop'"),
        ({"size": "8"}, "size must be"),
        ({"mean": None}, "not a valid description"),
    ],
)
def test_bad_descriptions(change, message):
    with pytest.raises(HoldfastError, match=message):
        Preprocess.from_json({**RGB.to_json(), **change})


def test_normalise_refuses_floats_and_wrong_channels():
    for images in (torch.zeros(1, 3, 8, 8), torch.zeros(1, 1, 8, 8, dtype=torch.uint8)):
        with pytest.raises(HoldfastError, match="normalise takes uint8"):
            RGB.normalise(images)


def test_vectors_whose_length_float32_cannot_hold_are_directions():
    row = np.array([1.0, -2.0, 0.5], np.float32)
    scaled = VectorInput(3, unit=True)(np.stack([row, row * np.float32(1e38), row * np.float32(1e-38)]))
    np.testing.assert_allclose(scaled.numpy(), np.tile(row / np.linalg.norm(row), (3, 1)), rtol=1e-5)


@pytest.mark.parametrize("own", [{"mean": 0.5, "std": (0.2,)}, {"mean": (0.5,), "std": 0.2}])
def test_a_number_instead_of_a_list_of_one(own):
    with pytest.raises(HoldfastError, match="mean and std must be lists of numbers, one per channel"):
        Preprocess(8, colour="grey", **own)


@pytest.mark.parametrize(
    "images",
    [
        pixels(8, 8, 3).astype(np.float32),
        pixels(5, 8, 8),
        pixels(2, 8, 8, 2),
        [None],
        7,
        torch.zeros(1, 3, 8, 8, dtype=torch.uint8),
        [torch.zeros(3, 8, 8)],
        np.zeros((1, 1, 8, 8, 3), np.uint8),
    ],
)
def test_what_is_not_an_image_is_refused(images):
    with pytest.raises(HoldfastError, match="image"):
        RGB(images)
