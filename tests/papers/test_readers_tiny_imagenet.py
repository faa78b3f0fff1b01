"""TinyImageNet in its folders and as a pack; the open set drawn from it to choose settings on."""

import numpy as np
import pytest
from PIL import Image

from holdfast.core.errors import HoldfastError
from holdfast.train.data import load_split, open_set
from made_up_sets import picture, tiny_imagenet, tiny_imagenet_20
from papers.readers.tiny_imagenet_tests import VALIDATION_CLASSES, WNIDS_20
from papers.stationary.cifar_counterparts import COUNTERPARTS, WITHOUT_COUNTERPART

WNIDS = ("n03000000", "n01000000", "n02000000")
CIFAR_NAMES = """
    airplane automobile bird cat deer dog frog horse ship truck
    apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel can castle
    caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur dolphin elephant
    flatfish forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion lizard lobster man maple_tree
    motorcycle mountain mouse mushroom oak_tree orange orchid otter palm_tree pear pickup_truck pine_tree plain plate
    poppy porcupine possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk skyscraper snail snake spider
    squirrel streetcar sunflower sweet_pepper table tank telephone television tiger tractor train trout tulip turtle
    wardrobe whale willow_tree wolf woman worm
"""


def by_name(images):
    return {image.tobytes(): images.class_names[label] for image, label in zip(images.images, images.labels)}


def test_train_and_val_share_classes_in_the_order_of_wnids(tmp_path):
    top = tiny_imagenet(tmp_path, WNIDS)
    train = load_split("tinyimagenet200", "train", tmp_path, incomplete=True)
    val = load_split("tinyimagenet200", "val", tmp_path, incomplete=True)
    assert train.class_names == val.class_names == WNIDS
    assert train.images.shape == (9, 64, 64, 3)
    assert val.labels.tolist() == [0, 1, 2]
    for i, wnid in enumerate(WNIDS):  # at their own size the pixels are those of the files
        assert by_name(val)[np.asarray(Image.open(top / "val" / "images" / f"val_{i}.JPEG")).tobytes()] == wnid


def test_counts_are_checked_and_what_is_missing_is_said(tmp_path):
    top = tiny_imagenet(tmp_path, WNIDS)
    with pytest.raises(
        HoldfastError,
        match=r"tiny-imagenet-200/train: 3 classes with images where 200 are expected and 9 images where 100,000 are "
        r"expected; complete it, or set incomplete = true",
    ):
        load_split("tinyimagenet200", "train", tmp_path)
    with pytest.raises(HoldfastError, match=r"tiny-imagenet-200/val: .*3 images where 10,000"):
        load_split("tinyimagenet200", "val", tmp_path)
    for file in (top / "train" / WNIDS[1] / "images").iterdir():
        file.unlink()
    with pytest.raises(HoldfastError, match=r"\(none of n01000000; missing: n01000000_0\.JPEG\)"):
        load_split("tinyimagenet200", "train", tmp_path)
    part = load_split("tinyimagenet200", "train", tmp_path, incomplete=True)
    assert np.unique(part.labels).tolist() == [0, 2]  # the others keep their numbers


def test_the_twenty_further_classes_make_an_open_set(tmp_path):
    tiny_imagenet(tmp_path, WNIDS)
    top = tiny_imagenet_20(tmp_path)
    picture(top / "train" / "n01440764" / "x.JPEG", 5)  # another class of ImageNet
    sets = [
        load_split(name, split, tmp_path, incomplete=True)
        for name, split in (("tinyimagenet200", "train"), ("tinyimagenet20", "train"), ("tinyimagenet20", "val"))
    ]
    data = open_set(*sets)
    assert data.query.class_names == data.gallery.class_names == WNIDS_20[:4]
    assert (len(data.query), len(data.gallery)) == (12, 4)
    assert data.overlap == ()
    missing = f"{WNIDS_20[4]}, {WNIDS_20[5]}, {WNIDS_20[6]} and 13 more"
    with pytest.raises(HoldfastError, match=rf"4 classes .* 20 .* 12 images where 25,478 .*\(none of {missing}\)"):
        load_split("tinyimagenet20", "train", tmp_path)
    with pytest.raises(HoldfastError, match="4 images where 1,000"):
        load_split("tinyimagenet20", "val", tmp_path)


def test_the_papers_twenty_classes():
    assert len(set(WNIDS_20)) == 20
    assert not set(WNIDS_20) & (set(COUNTERPARTS) | set(WITHOUT_COUNTERPART))


def test_32_pixels_from_a_pack_or_the_folders(tmp_path):
    tiny_imagenet(tmp_path, WNIDS)
    from_folders = load_split("tinyimagenet32", "train", tmp_path, incomplete=True)
    assert from_folders.images.shape == (9, 32, 32, 3)
    two = load_split("tinyimagenet32", "train", tmp_path, incomplete=True, classes=2)
    np.savez(
        tmp_path / "tinyimagenet32.npz",
        train_x=from_folders.images[::-1],
        train_y=from_folders.labels[::-1],
        class_names=np.array(WNIDS),
    )
    assert load_split("tinyimagenet32", "train", tmp_path).fingerprint == from_folders.fingerprint
    nested = load_split("tinyimagenet32", "train", tmp_path, classes=2)
    assert nested.fingerprint == two.fingerprint
    assert nested.class_names == two.class_names == WNIDS[:2]
    np.testing.assert_array_equal(nested.images, from_folders.images[:6])
    for count in (0, 4):
        with pytest.raises(HoldfastError, match=rf"classes must be in 1\.\.3, got {count}"):
            load_split("tinyimagenet32", "train", tmp_path, classes=count)


def test_every_class_is_judged_and_the_validation_classes_are_drawn_from_the_rest():
    assert len(COUNTERPARTS) + len(WITHOUT_COUNTERPART) == 200
    assert not set(COUNTERPARTS) & set(WITHOUT_COUNTERPART)
    assert set(COUNTERPARTS.values()) <= set(CIFAR_NAMES.split())
    drawn = np.random.default_rng(0).permutation(sorted(WITHOUT_COUNTERPART))[:20]
    assert tuple(sorted(drawn.tolist())) == VALIDATION_CLASSES


def test_validation_halves(tmp_path):
    names = [*sorted(COUNTERPARTS)[:3], *reversed(VALIDATION_CLASSES)]
    random = np.random.default_rng(0)
    pixels = random.integers(0, 256, (len(names) * 6, 32, 32, 3), dtype=np.uint8)
    labels = np.repeat(np.arange(len(names)), 6)
    np.savez(tmp_path / "tinyimagenet32.npz", train_x=pixels, train_y=labels, class_names=np.array(names))
    query, gallery = (
        load_split("tinyimagenet32_validation", "train", tmp_path, part=part) for part in ("query", "gallery")
    )
    assert query.class_names == gallery.class_names == VALIDATION_CLASSES
    assert np.bincount(query.labels).tolist() == np.bincount(gallery.labels).tolist() == [3] * 20
    together = by_name(query) | by_name(gallery)
    assert len(together) == 120
    assert together == {
        image.tobytes(): names[label] for image, label in zip(pixels, labels) if names[label] in VALIDATION_CLASSES
    }
    with pytest.raises(HoldfastError, match=r"unknown part 'test'; known: gallery, query"):
        load_split("tinyimagenet32_validation", "train", tmp_path, part="test")
    np.savez(tmp_path / "tinyimagenet32.npz", train_x=pixels[:6], train_y=labels[:6], class_names=np.array(["a"]))
    with pytest.raises(HoldfastError, match="lacks 20 of the 20 validation classes: n01917289"):
        load_split("tinyimagenet32_validation", "train", tmp_path, part="query")
