"""ImageNet32 in its pickled and npz batches."""

import pickle

import numpy as np
import pytest

from holdfast.core.errors import HoldfastError
from holdfast.train.data import load_split
from papers.readers.imagenet32 import IMAGES


def batches(count=10):
    random = np.random.default_rng(0)
    for number in range(1, count + 1):
        pixels = random.integers(0, 256, (4, 3072), dtype=np.uint8)
        yield f"train_data_batch_{number}", {"data": pixels, "labels": [1, 2, 100, 1000], "mean": pixels.mean(0)}


def write(folder, form, count=10, protocol=4):
    folder.mkdir(parents=True, exist_ok=True)
    for name, batch in batches(count):
        if form == "npz":
            np.savez(folder / f"{name}.npz", **batch)
        else:
            (folder / name).write_bytes(pickle.dumps(batch, protocol=protocol))


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setitem(IMAGES, "train", 40)


@pytest.mark.parametrize(
    ("place", "form", "protocol"),
    [("", "pickle", 2), ("Imagenet32_train", "pickle", 4), ("", "npz", 0), ("Imagenet32_train_npz", "npz", 0)],
)
def test_every_form_gives_the_same_set(place, form, protocol, tmp_path):
    write(tmp_path / "imagenet32" / place, form, protocol=protocol)
    images = load_split("imagenet32", "train", tmp_path)
    assert images.num_classes == 1000
    assert np.unique(images.labels).tolist() == [0, 1, 99, 999]
    for _, batch in batches(1):
        expected = batch["data"][3].reshape(3, 32, 32).transpose(1, 2, 0)  # planes, as in CIFAR's files
    assert any(np.array_equal(image, expected) for image in images.images[images.labels == 999])


def test_sets_are_nested_and_hold_only_their_classes(tmp_path):
    write(tmp_path / "imagenet32", "npz")
    whole, some = (load_split("imagenet32", "train", tmp_path, classes=classes) for classes in (None, 100))
    assert len(some) == 30
    assert some.class_names == whole.class_names[:100]
    assert some.class_names[:2] == ("imagenet32-1", "imagenet32-2")
    np.testing.assert_array_equal(some.images, whole.images[:30])
    for classes in (0, 1001):
        with pytest.raises(HoldfastError, match=rf"classes must be in 1\.\.1000, got {classes}"):
            load_split("imagenet32", "train", tmp_path, classes=classes)


def test_counts(tmp_path):
    with pytest.raises(HoldfastError, match=r"imagenet32: no such folder"):
        load_split("imagenet32", "train", tmp_path)
    write(tmp_path / "imagenet32", "npz", count=9)
    with pytest.raises(
        HoldfastError, match=r"imagenet32: 36 images where 40 are expected \(no train_data_batch_10\); complete it, or"
    ):
        load_split("imagenet32", "train", tmp_path)
    assert len(load_split("imagenet32", "train", tmp_path, incomplete=True)) == 36
    with pytest.raises(HoldfastError, match=r"0 images where 50,000 are expected \(no val_data\)$"):
        load_split("imagenet32", "val", tmp_path, incomplete=True)


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        ({"labels": [1]}, "'data'; known: labels"),
        ({"data": np.zeros((2, 3072), np.uint8), "labels": [0, 1]}, r"labels must be in 1\.\.1000, found 0\.\.1"),
        ({"data": np.zeros((2, 3072), np.uint8), "labels": [1]}, "labels must be 2 whole numbers"),
        ({"data": np.zeros((2, 100), np.uint8), "labels": [1, 2]}, "rows of 3072 bytes"),
        ([1, 2], "expected a dictionary, found list"),
        (np.random.default_rng, "refused"),
    ],
)
def test_bad_batches_are_refused_by_name(batch, message, tmp_path):
    (tmp_path / "imagenet32").mkdir()
    (tmp_path / "imagenet32" / "train_data_batch_1").write_bytes(pickle.dumps(batch, protocol=2))
    with pytest.raises(HoldfastError, match=rf"train_data_batch_1: .*{message}"):
        load_split("imagenet32", "train", tmp_path)
    (tmp_path / "imagenet32" / "train_data_batch_1").unlink()
    (tmp_path / "imagenet32" / "train_data_batch_1.npz").write_bytes(b"no zip")
    with pytest.raises(HoldfastError, match=r"train_data_batch_1\.npz: not readable as npz"):
        load_split("imagenet32", "train", tmp_path)
