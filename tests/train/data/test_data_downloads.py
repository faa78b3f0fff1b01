"""Sets in the forms in which people have them: packed, a level off, under another name, unsorted."""

import re
import shutil

import pytest

from holdfast.core.errors import HoldfastError
from holdfast.train.data import load_split
from made_up_sets import cub, picture, tiny_imagenet, tiny_imagenet_20


def refusal(root, name, split="train"):
    with pytest.raises(HoldfastError) as refused:
        load_split(name, split, root, incomplete=True)
    return str(refused.value).replace(str(root), "DIR")


@pytest.mark.parametrize(
    ("name", "make", "archive", "what"),
    [
        ("tinyimagenet200", lambda root: tiny_imagenet(root, ("n01000000",)), "tiny-imagenet-200.zip", "TinyImageNet"),
        ("cub20", lambda root: cub(root, (181,)), "CUB_200_2011.tgz", "CUB-200-2011"),
    ],
)
def test_what_lies_near_is_named(name, make, archive, what, tmp_path):
    folder = archive.partition(".")[0]
    mark = "wnids.txt" if folder == "tiny-imagenet-200" else "classes.txt"
    expected = f"{what} is expected there, as downloaded"
    assert refusal(tmp_path, name) == f"DIR/{folder}: no such folder; {expected}"
    (tmp_path / archive).touch()
    assert refusal(tmp_path, name) == f"DIR/{folder}: no such folder; {expected}. Unpack {archive} there"
    (tmp_path / archive).unlink()
    (tmp_path / folder).mkdir()
    assert refusal(tmp_path, name) == f"DIR/{folder}/{mark}: no such file; {expected}"
    make(tmp_path / folder)
    deeper = f"It is one level deeper, in DIR/{folder}/{folder}: move it up"
    assert refusal(tmp_path, name) == f"DIR/{folder}/{mark}: no such file; {expected}. {deeper}"
    (tmp_path / folder).rename(tmp_path / "sets")
    assert refusal(tmp_path, name).endswith(f"{expected}. It is in DIR/sets: name that folder as the data root")
    itself = f"{expected}. DIR is the set itself: name the folder above it as the data root"
    assert refusal(tmp_path / "sets" / folder, name).endswith(itself)
    (tmp_path / "sets" / folder).rename(tmp_path / "other")
    assert refusal(tmp_path, name).endswith(
        f"{expected}. DIR/other looks like it: rename it to {folder}, or link to it"
    )
    (tmp_path / folder).symlink_to(tmp_path / "other")
    assert len(load_split(name, "train", tmp_path, incomplete=True)) > 0


def test_the_20_classes_say_what_they_are(tmp_path):
    said = "the paper's 20 ImageNet classes, or all, are expected there as train/WNID and val/WNID (docs/data.md)"
    assert refusal(tmp_path, "tinyimagenet20") == f"DIR/tiny-imagenet-20: no such folder; {said}"
    top = tiny_imagenet_20(tmp_path / "all")
    assert refusal(tmp_path, "tinyimagenet20").endswith("It is in DIR/all: name that folder as the data root")
    top.rename(tmp_path / "ILSVRC2012")
    assert "DIR/ILSVRC2012 looks like it: rename it to tiny-imagenet-20" in refusal(tmp_path, "tinyimagenet20")
    (tmp_path / "ILSVRC2012").rename(tmp_path / "tiny-imagenet-20")
    shutil.rmtree(tmp_path / "tiny-imagenet-20" / "val")
    assert re.match(
        r"DIR/tiny-imagenet-20/val: no such folder; the paper's 20", refusal(tmp_path, "tinyimagenet20", "val")
    )


def test_unsorted_pictures_and_packed_classes_are_said(tmp_path):
    val = tmp_path / "tiny-imagenet-20" / "val"
    for number in range(2):
        picture(val / f"ILSVRC2012_val_{number}.JPEG", number)
    (val / "._ILSVRC2012_val_0.JPEG").touch()
    sort = "; 2 images in it are in no class folder: sort them into one folder per class"
    assert refusal(tmp_path, "tinyimagenet20", "val").endswith(sort)
    train = tmp_path / "tiny-imagenet-20" / "train"
    train.mkdir()
    (train / "n04116512.tar").touch()
    assert refusal(tmp_path, "tinyimagenet20").endswith("; unpack the 1 archive in it, one folder per class")
