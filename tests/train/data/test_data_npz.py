import numpy as np
import pytest

from holdfast.core.errors import HoldfastError
from holdfast.train.data import load_split

IMAGES = np.arange(4 * 5 * 5, dtype=np.uint8).reshape(4, 5, 5)


def load(root, split="train"):
    return load_split("mnist", split, root)


def test_without_class_names_numbers_run_over_all_splits(tmp_path):
    np.savez(tmp_path / "mnist.npz", train_x=IMAGES, train_y=[0, 1, 1, 0], test_x=IMAGES[:2], test_y=[0, 5])
    assert load(tmp_path).class_names == ("0", "1", "2", "3", "4", "5")
    assert load(tmp_path).images.shape == (4, 5, 5, 1)
    assert load(tmp_path, "test").labels.tolist() == [0, 5]


def test_class_names_may_be_bytes(tmp_path):
    np.savez(tmp_path / "mnist.npz", train_x=IMAGES, train_y=[0, 1, 1, 0], class_names=np.array([b"x", b"y"]))
    assert load(tmp_path).class_names == ("x", "y")


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"train_y": np.array([0, 1, 2, None], object)}, "Object arrays cannot be loaded"),
        ({"class_names": np.array(["a", None], object)}, "Object arrays cannot be loaded"),
        ({"class_names": np.array(["a", "b"])}, r"0\.\.1 \(2 classes\), found 0\.\.3"),
        ({"class_names": np.array([1, 2, 3, 4])}, "class_names must be one row of strings"),
        ({"train_x": IMAGES / 255}, "must be uint8"),
        ({"train_y": np.array([0.5, 1, 2, 3])}, "labels must be integers"),
        ({"train_y": np.array([-3, 1, 2, 3])}, r"found -3\.\.3"),
        ({"train_y": np.array([0, 1])}, "4 images but labels"),
        ({"train_y": np.array([0, 1, 2, 10**12])}, "the largest label is 10{12}, .*; number the classes 0, 1, 2"),
    ],
)
def test_bad_packs_are_refused_by_name(tmp_path, arrays, message):
    np.savez(tmp_path / "mnist.npz", **{"train_x": IMAGES, "train_y": np.arange(4), **arrays})
    with pytest.raises(HoldfastError, match=rf"mnist\.npz.*{message}"):
        load(tmp_path)


def test_what_is_no_pack_is_refused(tmp_path):
    file = tmp_path / "mnist.npz"
    np.savez(file, train_x=IMAGES, train_y=np.arange(4))
    whole = file.read_bytes()
    for content in (b"", b"hello", whole[: len(whole) // 2]):
        file.write_bytes(content)
        with pytest.raises(HoldfastError, match=r"mnist\.npz: not readable"):
            load(tmp_path)
    with file.open("wb") as stream:
        np.save(stream, IMAGES)
    with pytest.raises(HoldfastError, match="single array"):
        load(tmp_path)


def test_unknown_split_lists_the_known(tmp_path):
    np.savez(tmp_path / "mnist.npz", train_x=IMAGES, train_y=[0, 1, 1, 0])
    with pytest.raises(HoldfastError, match="'test'; known: train"):
        load(tmp_path, "test")


def test_labels_missing_beside_images(tmp_path):
    np.savez(tmp_path / "mnist.npz", train_x=IMAGES)
    with pytest.raises(HoldfastError, match="train_x has no train_y"):
        load(tmp_path)
