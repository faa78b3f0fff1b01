"""The same data is the same ImageSet in whatever form it came."""

import numpy as np
import pytest

from holdfast.core.errors import HoldfastError
from holdfast.train.data import DATASETS, load_split


def forms(sample, root, write_rows, write_archive, pickled):
    order = np.random.default_rng(1).permutation(len(sample.labels))
    sample.write_npz(root / "cifar10.npz")
    yield load_split("cifar10", "train", root)
    sample.write_npz(root / "shuffled.npz", order)
    yield load_split("npz", "train", root, path="shuffled.npz")
    write_archive(root / "cifar-100-python.tar.gz", pickled(sample.batches("cifar100"), "cifar-100-python"))
    yield load_split("cifar100", "train", root)
    files = sample.write_images(root / "pictures" / "train")
    yield load_split("folder", "train", root, path="pictures")
    rows = [[file.relative_to(root), name] for file, name in files]
    write_rows(root / "list.csv", [["path", "label"], *(rows[i] for i in order)])
    yield load_split("csv", "train", root, path="list.csv")


def test_every_form_gives_the_same_set(sample, tmp_path, write_rows, write_archive, pickled):
    first, *others = forms(sample, tmp_path, write_rows, write_archive, pickled)
    assert len(first) == 12
    assert len(others) == 4
    for other in others:
        np.testing.assert_array_equal(other.images, first.images)
        np.testing.assert_array_equal(other.labels, first.labels)
        assert other.class_names == first.class_names == ("ant", "bee", "cat")
        assert other.fingerprint == first.fingerprint


def test_images_keep_their_label(sample, tmp_path):
    sample.write_npz(tmp_path / "a.npz")
    got = load_split("npz", "train", tmp_path, path="a.npz")
    label_of = {image.tobytes(): label for image, label in zip(sample.images, sample.labels)}
    assert [label_of[image.tobytes()] for image in got.images] == got.labels.tolist()


def test_per_class_keeps_the_first(sample, tmp_path):
    sample.write_npz(tmp_path / "a.npz")
    whole = load_split("npz", "train", tmp_path, path="a.npz")
    part = load_split("npz", "train", tmp_path, per_class=2, path="a.npz")
    assert np.bincount(part.labels).tolist() == [2, 2, 2]
    np.testing.assert_array_equal(part.images[2:4], whole.images[whole.labels == 1][:2])


def test_unknown_dataset_lists_the_known():
    with pytest.raises(HoldfastError, match=r"unknown dataset 'imagenet'.*cifar100.*glyphs"):
        load_split("imagenet", "train")


def test_a_missing_root_is_named_with_the_way_to_set_it(tmp_path, monkeypatch):
    monkeypatch.setenv("HOLDFAST_DATA", str(tmp_path / "nowhere"))
    for name in sorted(set(DATASETS) - {"glyphs"}):
        options = {"path": "x"} if name in {"npz", "folder", "csv", "vectors"} else {}
        if name == "tinyimagenet32_validation":
            options = {"part": "query"}
        if name == "miniimagenet20":
            options = {"classes": "outside_cifar"}
        with pytest.raises(HoldfastError, match=r"nowhere: no such data folder; looked for .+; set HOLDFAST_DATA"):
            load_split(name, "train", **options)


@pytest.mark.parametrize(("name", "options"), [("folder", {"sise": 3, "path": "x"}), ("npz", {})])
def test_wrong_options_list_the_right_ones(name, options, tmp_path):
    with pytest.raises(HoldfastError, match=rf"dataset '{name}': .*; its options: path"):
        load_split(name, "train", tmp_path, **options)


def test_a_root_that_was_given_is_named_with_what_should_be_in_it(tmp_path, monkeypatch):
    monkeypatch.delenv("HOLDFAST_DATA", raising=False)
    with pytest.raises(HoldfastError) as refused:
        load_split("cifar100", "train", tmp_path / "nowhere")
    assert str(refused.value) == (
        f"{tmp_path / 'nowhere'}: no such data folder; looked for cifar100.npz or cifar-100-python or"
        " cifar-100-python.tar.gz in it; name the folder that has it"
    )


@pytest.mark.parametrize("name", ["cifar10", "cifar100", "mnist", "tinyimagenet32"])
def test_a_missing_dataset_says_what_was_looked_for(name, tmp_path):
    with pytest.raises(HoldfastError, match=rf"{name}\.npz"):
        load_split(name, "train", tmp_path)
