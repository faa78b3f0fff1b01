"""CIFAR100R: the first images of each class in the order of the files, whatever form they come in."""

import numpy as np
import pytest

from holdfast.core.errors import HoldfastError
from holdfast.train.data import load_split


def test_first_in_file_order(sample, tmp_path, write_archive, pickled):
    (tmp_path / "pack").mkdir()
    (tmp_path / "tar").mkdir()
    sample.write_npz(tmp_path / "pack" / "cifar100.npz")
    write_archive(tmp_path / "tar" / "cifar-100-python.tar.gz", pickled(sample.batches("cifar100"), "cifar-100-python"))
    pack, tar = (load_split("cifar100", "train", tmp_path / form, images_per_class=2) for form in ("pack", "tar"))
    assert pack.fingerprint == tar.fingerprint
    first_two = [1, 4, 2, 3, 0, 5]  # of classes 0, 0, 1, 1, 2, 2
    assert pack.labels.tolist() == [0, 0, 1, 1, 2, 2]
    assert {image.tobytes() for image in pack.images} == {sample.images[i].tobytes() for i in first_two}
    whole = load_split("cifar100", "train", tmp_path / "pack", images_per_class=500)
    assert whole.fingerprint == load_split("cifar100", "train", tmp_path / "pack").fingerprint
    with pytest.raises(HoldfastError, match="images_per_class must be at least 1"):
        load_split("cifar100", "train", tmp_path / "pack", images_per_class=0)
    assert not np.array_equal(pack.images, load_split("cifar100", "train", tmp_path / "pack", per_class=2).images)
