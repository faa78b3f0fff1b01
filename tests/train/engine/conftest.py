"""Drawn characters and small encoders for the loop."""

import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from holdfast.train.data import ImageSet, load_split
from holdfast.train.data.device_images import DeviceImages
from holdfast.train.encoders import Encoder, Preprocess, build_backbone
from holdfast.train.scenarios import Scenario, cl2r


@pytest.fixture(scope="session")
def glyph_images() -> ImageSet:
    """Six characters, eight images of 16 x 16 each."""
    return load_split("glyphs", "train", size=16, train_classes=6, test_classes=3, per_class_train=8)


@pytest.fixture(scope="session")
def test_images() -> ImageSet:
    """Three other characters."""
    return load_split("glyphs", "query", size=16, train_classes=6, test_classes=3, per_class_query=4)


@pytest.fixture
def device_images(glyph_images: ImageSet) -> DeviceImages:
    return DeviceImages(glyph_images)


@pytest.fixture
def two_tasks(glyph_images: ImageSet) -> Scenario:
    return cl2r(glyph_images.labels, glyph_images.class_names, initial=3, tasks=2, buffer_per_class=2)


@pytest.fixture
def make_small() -> Callable[..., Encoder]:
    def make(dim: int | None = None, seed: int = 0) -> Encoder:
        torch.manual_seed(seed)
        preprocess = Preprocess(size=16, mean=(0.2,), std=(0.3,), colour="grey")
        return Encoder(build_backbone("small", width=8), dim, preprocess=preprocess)

    return make


@pytest.fixture
def snapshot() -> Callable[[Path], dict[str, tuple[int, str]]]:
    """Every file below a folder with the time it was last written and a hash of its bytes."""

    def take(folder: Path) -> dict[str, tuple[int, str]]:
        return {
            str(file.relative_to(folder)): (
                file.stat().st_mtime_ns,
                hashlib.blake2b(file.read_bytes()).hexdigest(),
            )
            for file in sorted(folder.rglob("*"))
            if file.is_file()
        }

    return take
