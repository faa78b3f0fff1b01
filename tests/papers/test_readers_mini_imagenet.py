"""The sets of 20 classes of miniImageNet: which classes they have, and how they are read."""

import numpy as np
import pytest
from PIL import Image

from holdfast.core.errors import HoldfastError
from holdfast.train.data import load_split
from papers.readers.mini_imagenet import CLASS_SETS
from papers.readers.tiny_imagenet_tests import VALIDATION_CLASSES
from papers.stationary.cifar_counterparts import COUNTERPARTS, MINI_WITHOUT_COUNTERPART, WITHOUT_COUNTERPART

TINY = set(COUNTERPARTS) | set(WITHOUT_COUNTERPART)
NOT_IN_TINY = """
    n01532829 n01558993 n01704323 n01749939 n01770081 n01843383 n01930112 n01981276 n02089867 n02091244
    n02091831 n02101006 n02105505 n02108089 n02108551 n02108915 n02110063 n02110341 n02111277 n02113712
    n02114548 n02116738 n02120079 n02138441 n02174001 n02219486 n02443484 n02457408 n02606052 n02687172
    n02747177 n02871525 n02966193 n02971356 n02981792 n03017168 n03047690 n03062245 n03075370 n03127925
    n03146219 n03207743 n03220513 n03272010 n03337140 n03347037 n03417042 n03476684 n03527444 n03535780
    n03676483 n03773504 n03775546 n03888605 n03908618 n03924679 n03998194 n04243546 n04258138 n04296562
    n04389033 n04418357 n04435653 n04443257 n04509417 n04515003 n04522168 n04604644 n04612504 n06794110
    n07584110 n07613480 n07697537 n13054560 n13133613
"""
"""The classes of miniImageNet that are not in TinyImageNet."""


def test_the_classes_of_each_set():
    assert {len(set(wnids)) for wnids in CLASS_SETS.values()} == {20}
    test, validation = (CLASS_SETS[name] for name in ("outside_tinyimagenet", "outside_tinyimagenet_validation"))
    others = NOT_IN_TINY.split()
    assert len(others) == 75
    assert not set(others) & TINY
    drawn = np.random.default_rng(0).permutation(others)
    assert (test, validation) == tuple(tuple(sorted(part.tolist())) for part in (drawn[:20], drawn[20:40]))
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
