"""A torch dataset trains like the set it holds; what is no set of images with labels is refused in one line."""

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import Dataset, IterableDataset

from holdfast.core.errors import HoldfastError
from holdfast.embedders.pixels import open_image
from holdfast.train.data.readers.torch_dataset import read_dataset
from holdfast.train.encoders import Encoder, VectorInput, build_backbone
from holdfast.train.engine import FitOptions, fit
from holdfast.train.methods import METHODS
from holdfast.train.scenarios import cl2r


class Items(Dataset):
    def __init__(self, items):
        self.items = items

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


FORMS = {
    "array": lambda image, label: (image, int(label)),
    "picture": lambda image, label: (Image.fromarray(image[..., 0]), label),
    "tensor": lambda image, label: (torch.from_numpy(image).permute(2, 0, 1), torch.tensor(label)),
    "plane": lambda image, label: [torch.from_numpy(image[..., 0]), np.array([label])],
}


@pytest.mark.parametrize("form", FORMS)
def test_fit_gives_the_same_weights_as_the_set_itself(form, glyph_images, make_small):
    dataset = Items([FORMS[form](image, label) for image, label in zip(glyph_images.images, glyph_images.labels)])
    task = cl2r(glyph_images.labels, glyph_images.class_names, initial=6, tasks=1, buffer_per_class=2).tasks[0]
    options = FitOptions(epochs=1, batch_size=8, crop_padding=1, flip=False)
    weights = []
    for images in (glyph_images, dataset):
        method = METHODS["er"]()
        encoder = make_small()
        fit(encoder, method, task, images, options=options)
        weights.append(encoder.state_dict())
    for name, value in weights[0].items():
        assert torch.equal(value, weights[1][name]), name


def test_vectors_train_too():
    rng = np.random.default_rng(0)
    labels = np.arange(40) % 4
    dataset = Items([(torch.from_numpy(rng.normal(size=5) + 3 * np.eye(5)[label]), label) for label in labels])
    encoder = Encoder(build_backbone("linear", in_channels=5, width=4), preprocess=VectorInput(5))
    task = cl2r(labels, list("abcd"), initial=4, tasks=1, buffer_per_class=2).tasks[0]
    losses = []
    options = FitOptions(epochs=5, batch_size=8, crop_padding=0, flip=False)
    with pytest.raises(HoldfastError, match=r"^crop_padding is for images"):
        fit(encoder, METHODS["er"](), task, dataset)
    log = lambda event: losses.append(event.loss) if event.kind == "epoch" else None  # noqa: E731
    fit(encoder, METHODS["er"](), task, dataset, options=options, on_event=log)
    assert losses[-1] < losses[0]


GREY = np.zeros((4, 4), dtype=np.uint8)


@pytest.mark.parametrize(
    ("items", "reason"),
    [
        ([], "Items: no items"),
        ([GREY], "item 0 is ndarray; it must be a pair (image, label)"),
        ([(GREY, "cat")], "the label of item 0 is 'cat'; it must be a whole number"),
        ([(GREY, True)], "must be a whole number"),
        (
            [(GREY, 0), (np.zeros((5, 4), dtype=np.uint8), 1)],
            "item 1 is uint8 of (5, 4, 1), the first is uint8 of (4, 4",
        ),
        ([(torch.zeros(3, 4, 4), 0)], "item 0 must be uint8 with 1 or 3 channels"),
        ([(torch.tensor([1.0, float("nan")]), 0)], "a finite float vector; found float32"),
        ([(GREY, -1)], "labels must be in"),
        ([(GREY, 10**12)], "Items: the largest label is 1000000000000, and every number up to it would be a class"),
    ],
)
def test_refused(items, reason):
    with pytest.raises(HoldfastError) as error:
        read_dataset(Items(items))
    assert reason in str(error.value)
    assert "\n" not in str(error.value)


def test_pictures_are_decoded_as_the_encoder_decodes_them():
    clear = Image.new("RGBA", (4, 4), (10, 20, 30, 0))
    bright = Image.fromarray(np.full((4, 4), 30_000, np.uint16))
    images = read_dataset([(clear, 0), (bright, 1)])
    for row, image in enumerate((clear, bright)):
        assert np.array_equal(images.images[row], np.asarray(open_image(image)))
    assert images.images[0].min() == 255
    assert images.images[1].max() == 30_000 // 256


class Stream(IterableDataset):
    def __iter__(self):
        return iter([])


def test_it_reads_in_the_datasets_own_order_with_the_sets_fingerprint(glyph_images):
    order = np.random.default_rng(0).permutation(len(glyph_images))
    items = [(glyph_images.images[i], glyph_images.labels[i]) for i in order]
    found = read_dataset(Items(items), class_names=glyph_images.class_names)
    np.testing.assert_array_equal(found.images, glyph_images.images[order])
    assert found.fingerprint == glyph_images.fingerprint


def test_too_large_or_a_stream():
    with pytest.raises(HoldfastError, match=r"at most 0\.0 are read into memory; write them as a folder"):
        read_dataset(Items([(GREY, 0)] * 3), most_bytes=47)
    assert len(read_dataset(Items([(GREY, 0)] * 3), most_bytes=48)) == 3
    with pytest.raises(HoldfastError, match="Stream: only map-style datasets"):
        read_dataset(Stream())
