"""Images in class folders and two small models."""

import numpy as np
import pytest
import torch
from PIL import Image

from holdfast import Encoder, Preprocess, build_backbone


@pytest.fixture(scope="package")
def photos(tmp_path_factory):
    """Eleven images of two classes."""
    folder = tmp_path_factory.mktemp("photos")
    rng = np.random.default_rng(0)
    for row in range(11):
        file = folder / f"{'cat' if row % 2 else 'dog'}/{row}.png"
        file.parent.mkdir(exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (20, 24, 3), dtype=np.uint8)).save(file)
    return folder


def saved_model(folder, seed):
    torch.manual_seed(seed)
    preprocess = Preprocess(size=16, mean=(0.5,), std=(0.25,), colour="grey")
    Encoder(build_backbone("small", width=4), preprocess=preprocess).save_pretrained(folder)
    return folder


@pytest.fixture(scope="package")
def model(tmp_path_factory):
    return saved_model(tmp_path_factory.mktemp("models") / "first", 0)


@pytest.fixture(scope="package")
def other_model(tmp_path_factory):
    return saved_model(tmp_path_factory.mktemp("models") / "second", 1)
