"""An old model that is only a table of vectors trains like the model itself, as long as images are not augmented."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from holdfast.core.errors import HoldfastError
from holdfast.train.data import ImageSet, canonical
from holdfast.train.encoders import Encoder, Preprocess, build_backbone
from holdfast.train.engine import FitOptions, StoredReference, fit
from holdfast.train.engine.survey import image_features
from holdfast.train.methods import MeansHOC, SimplexFD, SimplexHOC
from holdfast.train.scenarios import cl2r

PREPROCESS = Preprocess(size=16, mean=(0.4,), std=(0.3,), colour="grey")


@pytest.fixture(scope="module")
def images() -> ImageSet:
    pixels = np.random.default_rng(0).integers(0, 256, (24, 16, 16, 1), dtype=np.uint8)
    return canonical(pixels, np.repeat(np.arange(4), 6), list("abcd"), source="random")


def encoder(seed: int, dim: int = 9) -> Encoder:
    torch.manual_seed(seed)
    return Encoder(build_backbone("small", width=4, in_channels=1), dim, preprocess=PREPROCESS)


def trained(method, images, old, options=None):
    (task,) = cl2r(images.labels, images.class_names, num_slots=method.num_slots, initial=4, tasks=1).tasks
    model = encoder(1)
    options = options or FitOptions(epochs=2, batch_size=8, lr=0.05, crop_padding=0, flip=False)
    fit(model, method, replace(task, reference="loaded"), images, old=old, options=options)
    return model


@pytest.fixture(scope="module")
def table(images) -> torch.Tensor:
    from holdfast.train.data.device_images import DeviceImages

    return image_features(encoder(0).eval(), PREPROCESS, DeviceImages(images), torch.arange(len(images)))


@pytest.mark.parametrize("make", [lambda: SimplexHOC(slots=10), lambda: MeansHOC(), lambda: SimplexFD(slots=10)])
def test_the_table_trains_as_the_network_does(make, images, table):
    by_network, by_table = trained(make(), images, encoder(0)), trained(make(), images, StoredReference(table))
    for one, other in zip(by_network.parameters(), by_table.parameters(), strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)


def test_images_without_a_vector_are_held_to_nothing(images, table):
    """Zeros for every image of two classes: their anchors move no weight, the others' still do."""
    half = table.clone()
    half[12:] = 0
    options = FitOptions(epochs=1, batch_size=24, lr=0.05, crop_padding=0, flip=False)
    methods = [SimplexHOC(slots=10, lambda_=0.0) for _ in range(3)]
    tables = (table, half, torch.zeros_like(table).index_fill_(0, torch.tensor([0]), 1e-9))
    ends = [trained(m, images, StoredReference(t), options) for m, t in zip(methods, tables, strict=True)]
    flat = [torch.cat([p.detach().flatten() for p in end.parameters()]) for end in ends]
    assert not torch.equal(flat[0], flat[1])
    assert torch.isfinite(flat[1]).all()


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (lambda table: table[:-1], "23 stored vectors for 24 training images"),
        (lambda table: table[:, :5], "stored vectors of 5 numbers, but the model in training gives 9"),
        (lambda table: table * 0, "all zero"),
        (lambda table: table.index_fill(0, torch.tensor([2]), torch.nan), "NaN or infinity"),
        (lambda table: table[0], "must be floating-point, N x d"),
    ],
)
def test_what_does_not_fit_is_refused(rows, message, images, table):
    with pytest.raises(HoldfastError, match=message):
        trained(SimplexHOC(slots=10), images, StoredReference(rows(table)))
