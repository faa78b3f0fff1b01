"""MNIST in every form people have it gives the same set."""

import gzip
import struct

import numpy as np
import pytest

from holdfast.core.errors import HoldfastError
from holdfast.train.data import load_split

RANDOM = np.random.default_rng(0)
IMAGES = RANDOM.integers(0, 256, (6, 28, 28), dtype=np.uint8)
LABELS = np.array([3, 1, 4, 1, 5, 9], dtype=np.uint8)


def idx(array: np.ndarray) -> bytes:
    return b"\0\0\x08" + bytes([array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def write_idx(folder, pack=lambda content: content, ending="", dot="-"):
    folder.mkdir(parents=True, exist_ok=True)
    for start in ("train", "t10k"):
        (folder / f"{start}-images{dot}idx3-ubyte{ending}").write_bytes(pack(idx(IMAGES)))
        (folder / f"{start}-labels{dot}idx1-ubyte{ending}").write_bytes(pack(idx(LABELS)))


def test_every_form_is_the_same_set(tmp_path):
    write_idx(tmp_path / "plain")
    write_idx(tmp_path / "packed", gzip.compress, ".gz")
    write_idx(tmp_path / "torchvision" / "MNIST" / "raw")
    write_idx(tmp_path / "dotted", dot=".")
    for name in ("keras", "pack"):
        (tmp_path / name).mkdir()
    np.savez(tmp_path / "keras" / "mnist.npz", x_train=IMAGES, y_train=LABELS, x_test=IMAGES, y_test=LABELS)
    arrays = {"train_x": IMAGES, "train_y": LABELS, "test_x": IMAGES, "test_y": LABELS}
    np.savez_compressed(tmp_path / "pack" / "mnist.npz", class_names=np.array(list("0123456789")), **arrays)
    sets = [load_split("mnist", split, folder) for folder in tmp_path.iterdir() for split in ("train", "test")]
    assert len(sets) == 12
    assert {images.fingerprint for images in sets} == {sets[0].fingerprint}
    assert sets[0].class_names == tuple("0123456789")
    assert sets[0].labels.tolist() == [1, 1, 3, 4, 5, 9]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not an idx file"),
        (b"\0\0\x0d\x01\0\0\0\0", "not an idx file"),
        (idx(IMAGES)[:-1], "its header says 6x28x28"),
    ],
)
def test_damaged_files_are_named(tmp_path, content, message):
    write_idx(tmp_path)
    (tmp_path / "train-images-idx3-ubyte").write_bytes(content)
    with pytest.raises(HoldfastError, match=f"train-images-idx3-ubyte: {message}"):
        load_split("mnist", "train", tmp_path)


def test_a_cut_gzip_and_missing_files(tmp_path):
    write_idx(tmp_path, gzip.compress, ".gz")
    whole = (tmp_path / "train-images-idx3-ubyte.gz").read_bytes()
    (tmp_path / "train-images-idx3-ubyte.gz").write_bytes(whole[:-20])
    with pytest.raises(HoldfastError, match=r"ubyte\.gz: not readable"):
        load_split("mnist", "train", tmp_path)
    with pytest.raises(HoldfastError, match="unknown split of mnist 'query'"):
        load_split("mnist", "query", tmp_path)
    (tmp_path / "t10k-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(HoldfastError, match="no t10k-images-idx3-ubyte"):
        load_split("mnist", "test", tmp_path)
