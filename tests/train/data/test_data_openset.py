import numpy as np
import pytest

from holdfast.core.errors import HoldfastError
from holdfast.train.data import canonical, open_set


def make(names, labels, seed=0, size=4):
    images = np.random.default_rng(seed).integers(0, 256, (len(labels), size, size, 1), dtype=np.uint8)
    return canonical(images, np.array(labels), names, source="test")


def names_by_image(images):
    return {image.tobytes(): images.class_names[label] for image, label in zip(images.images, images.labels)}


def test_queries_and_gallery_get_one_list_of_names():
    query = make(["x", "unused", "z", "y"], [0, 2, 3, 3], seed=1)
    gallery = make(["z", "y", "none", "x", "w"], [0, 1, 3, 4, 0], seed=2)
    whole = open_set(make(["a"], [0]), query, gallery)
    assert whole.query.class_names == whole.gallery.class_names == ("z", "y", "x", "w")
    assert names_by_image(whole.query) == names_by_image(query)
    assert names_by_image(whole.gallery) == names_by_image(gallery)
    assert np.all(np.diff(whole.query.labels) >= 0), "still in canonical order"
    assert whole.overlap == ()


def test_overlap_names_trained_classes_that_are_queried():
    query = make(["b", "c"], [0, 0], seed=1)
    gallery = make(["b", "c"], [0, 1], seed=2)
    assert open_set(make(["a", "b", "c"], [0, 1, 2]), query, gallery).overlap == ("b",)


def test_the_fingerprint_covers_all_three():
    train, query, gallery = make(["a"], [0]), make(["b"], [0, 0], seed=1), make(["b"], [0, 0], seed=2)
    prints = {
        open_set(*parts).fingerprint
        for parts in ((train, query, gallery), (train, gallery, query), (make(["a"], [0], 9), query, gallery))
    }
    assert len(prints) == 3
    assert open_set(train, query, gallery).fingerprint in prints


def test_refused():
    train, query, gallery = make(["a"], [0]), make(["b", "q"], [0, 1]), make(["b", "q"], [0, 0])
    with pytest.raises(HoldfastError, match="1 queried classes have no gallery image: q"):
        open_set(train, query, gallery)
    with pytest.raises(HoldfastError, match=r"train 4 x 4 x 1.*gallery 5 x 5 x 1"):
        open_set(train, query, make(["b", "q"], [0, 1], size=5))
    with pytest.raises(HoldfastError, match="query set occur twice: b"):
        open_set(train, make(["b", "b"], [0, 1]), gallery)


def test_engine_classes_without_an_image_are_dropped():
    """One file may name the classes of all its splits: the tested ones must not become training classes."""
    pixels = np.random.default_rng(0).integers(0, 256, (12, 4, 4, 1), dtype=np.uint8)
    names = ["a", "b", "c", "d"]
    train = canonical(pixels[:4], np.array([0, 2, 0, 2]), names, source="train")
    query = canonical(pixels[4:8], np.array([1, 3, 1, 3]), names, source="query")
    gallery = canonical(pixels[8:], np.array([1, 3, 1, 3]), names, source="gallery")
    data = open_set(train, query, gallery)
    assert data.train.class_names == ("a", "c")
    assert data.train.images is train.images  # not copied: a large set is on disk and may not fit into memory
    assert data.train.fingerprint == canonical(train.images, train.labels // 2, ["a", "c"], source="").fingerprint
    assert sorted(set(data.train.labels.tolist())) == [0, 1]
    assert data.query.class_names == data.gallery.class_names == ("b", "d")
    assert data.overlap == ()


def test_the_same_images_as_queries_and_gallery_are_refused():
    pixels = np.random.default_rng(0).integers(0, 256, (4, 4, 4, 1), dtype=np.uint8)
    one = canonical(pixels, np.array([0, 1, 0, 1]), ["a", "b"], source="test")
    with pytest.raises(HoldfastError, match="find itself"):
        open_set(one, one, one)
