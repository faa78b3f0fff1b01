"""CASIA-WebFace by folders, CelebA by its lists."""

import numpy as np
import pytest

from holdfast.core.errors import HoldfastError
from holdfast.train.data import load_split, open_set
from made_up_sets import casia, celeba


def faces_of(root, split, **options):
    return load_split("celeba", split, root, size=16, incomplete=True, **options)


def test_casia_sets_are_nested(tmp_path):
    casia(tmp_path)
    whole = load_split("casia_webface", "train", tmp_path, size=16, incomplete=True)
    some = load_split("casia_webface", "train", tmp_path, size=16, incomplete=True, classes=4)
    assert whole.class_names == tuple(f"{45 + 7 * i:07d}" for i in range(6))
    assert some.class_names == whole.class_names[:4]
    np.testing.assert_array_equal(some.images, whole.images[:8])


def test_celeba_splits_by_identity(tmp_path):
    celeba(tmp_path)
    train = faces_of(tmp_path, "train")
    assert train.class_names == ("celeba-37", "celeba-2880")  # by number
    assert np.bincount(train.labels).tolist() == [4, 4]
    assert faces_of(tmp_path, "val").class_names == ("celeba-5",)
    assert faces_of(tmp_path, "test").class_names == ("celeba-12", "celeba-901")


def test_celeba_halves_make_an_open_set(tmp_path):
    celeba(tmp_path)
    whole = faces_of(tmp_path, "test")
    query, gallery = (faces_of(tmp_path, "test", part=part) for part in ("query", "gallery"))
    assert np.bincount(query.labels).tolist() == [1, 2]
    assert np.bincount(gallery.labels).tolist() == [1, 3]
    images = {image.tobytes() for image in whole.images}
    assert {image.tobytes() for image in (*query.images, *gallery.images)} == images
    data = open_set(faces_of(tmp_path, "train"), query, gallery)
    assert data.overlap == ()


def test_celeba_counts_and_mistakes(tmp_path):
    with pytest.raises(HoldfastError, match="celeba: no such folder"):
        load_split("celeba", "train", tmp_path)
    top = celeba(tmp_path)
    for split, people, images in (("train", "8,192", "162,770"), ("val", "985", "19,867"), ("test", "1,000", "19,962")):
        with pytest.raises(HoldfastError, match=rf"where {people} are expected and \d images where {images} are"):
            load_split("celeba", split, tmp_path)
    with pytest.raises(HoldfastError, match="split of celeba 'query'; known: test, train, val"):
        load_split("celeba", "query", tmp_path)
    (top / "img_align_celeba" / "000012.jpg").unlink()
    with pytest.raises(HoldfastError, match=r"6 images where 19,962 .*\(missing: 000012\.jpg\); complete it"):
        load_split("celeba", "test", tmp_path)
    (top / "img_align_celeba" / "000001.jpg").rename(top / "img_align_celeba" / "000012.jpg")
    (top / "Eval").mkdir()
    (top / "list_eval_partition.txt").rename(top / "Eval" / "list_eval_partition.txt")
    assert len(faces_of(tmp_path, "test")) == 7  # as the original download has it
    (top / "identity_CelebA.txt").write_text("000001.jpg 2880\n")
    with pytest.raises(HoldfastError, match=r"has no identity for 000002\.jpg"):
        faces_of(tmp_path, "train")
    (top / "identity_CelebA.txt").unlink()
    with pytest.raises(HoldfastError, match=r"celeba: identity_CelebA\.txt is missing"):
        faces_of(tmp_path, "train")
