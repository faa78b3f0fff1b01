"""The sets of 20 classes of miniImageNet: which classes they have, and how they are read."""

import numpy as np
import pytest
from PIL import Image

from holdfast.data import load_split
from holdfast.data.readers.mini_imagenet import CLASS_SETS
from holdfast.data.readers.tiny_imagenet import VALIDATION_CLASSES
from holdfast.errors import HoldfastError
from papers.stationary.cifar_counterparts import COUNTERPARTS, MINI_WITHOUT_COUNTERPART, WITHOUT_COUNTERPART

TINY = set(COUNTERPARTS) | set(WITHOUT_COUNTERPART)


def test_the_classes_of_each_set():
    assert {len(set(wnids)) for wnids in CLASS_SETS.values()} == {20}
    test, validation = (CLASS_SETS[name] for name in ("outside_tinyimagenet", "outside_tinyimagenet_validation"))
    assert not (set(test) | set(validation)) & TINY
    assert not set(test) & set(validation)
    assert not set(MINI_WITHOUT_COUNTERPART) & (set(COUNTERPARTS) | set(VALIDATION_CLASSES))
    drawn = np.random.default_rng(0).permutation(sorted(MINI_WITHOUT_COUNTERPART))[:20]
    assert tuple(sorted(drawn.tolist())) == CLASS_SETS["outside_cifar"]


def write_set(root, name, per_class):
    random = np.random.default_rng(0)
    for split, count in per_class.items():
        for wnid in (*CLASS_SETS[name], "n00000000"):
            folder = root / "mini-imagenet" / split / wnid
            folder.mkdir(parents=True)
            for number in range(count):
                Image.fromarray(random.integers(0, 256, (84, 84, 3), dtype=np.uint8)).save(folder / f"{number}.png")


def test_reading_one_of_the_sets(tmp_path):
    write_set(tmp_path, "outside_cifar", {"train": 2, "val": 1})
    query = load_split("miniimagenet20", "train", tmp_path, classes="outside_cifar", size=32, incomplete=True)
    assert query.images.shape == (40, 32, 32, 3)
    assert query.class_names == CLASS_SETS["outside_cifar"]  # and not the other class in the folder
    gallery = load_split("miniimagenet20", "val", tmp_path, classes="outside_cifar", incomplete=True)
    assert gallery.images.shape == (20, 64, 64, 3)
    with pytest.raises(HoldfastError, match="20 images where 2,000 are expected"):
        load_split("miniimagenet20", "val", tmp_path, classes="outside_cifar")


def test_what_is_refused(tmp_path):
    with pytest.raises(HoldfastError, match=r"unknown set of classes 'cifar'.*outside_cifar"):
        load_split("miniimagenet20", "val", tmp_path, classes="cifar")
    with pytest.raises(HoldfastError, match="unknown split of miniImageNet 'test'"):
        load_split("miniimagenet20", "test", tmp_path, classes="outside_cifar")
    with pytest.raises(HoldfastError, match="miniImageNet is expected there as train/WNID and val/WNID"):
        load_split("miniimagenet20", "val", tmp_path, classes="outside_cifar")
