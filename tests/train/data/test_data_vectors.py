"""Vectors read like images: npz and parquet agree, order does not matter, what is odd is refused in one line."""

import numpy as np
import pytest

from holdfast.core.errors import HoldfastError
from holdfast.train.data import load_split, open_set

RNG = np.random.default_rng(0)
FEATURES = RNG.normal(size=(12, 5))
WORDS = np.array(["cat", "dog", "ant"] * 4)
PARTS = np.array(["train"] * 6 + ["test"] * 6)


def parquet(path, columns):
    pyarrow = pytest.importorskip("pyarrow")
    parquet_module = pytest.importorskip("pyarrow.parquet")
    table = {name: list(value) if getattr(value, "ndim", 1) == 2 else value for name, value in columns.items()}
    parquet_module.write_table(pyarrow.table(table), path)


def test_npz_and_parquet_hold_the_same_set(tmp_path):
    np.savez(tmp_path / "v.npz", features=FEATURES, labels=WORDS, split=PARTS)
    parquet(tmp_path / "v.parquet", {"emb": FEATURES[::-1], "class": WORDS[::-1], "split": PARTS[::-1]})
    one = load_split("vectors", "train", tmp_path, path="v.npz")
    other = load_split("vectors", "train", tmp_path, path="v.parquet", features="emb", labels="class")
    assert one.holds_vectors
    assert one.images.shape == (6, 1, 1, 5)
    assert one.images.dtype == np.float32
    assert one.class_names == ("ant", "cat", "dog")
    assert one.fingerprint == other.fingerprint
    np.testing.assert_array_equal(one.images, other.images)
    for row, label in zip(one.images[:, 0, 0], one.labels):
        source = np.flatnonzero((FEATURES.astype(np.float32) == row).all(axis=1))[0]
        assert WORDS[source] == one.class_names[label]
        assert PARTS[source] == "train"


def test_numbers_as_labels_keep_their_order_and_one_file_is_one_set(tmp_path):
    np.savez(tmp_path / "v.npz", features=FEATURES.astype(np.float16), labels=np.array([2, 10, 1] * 4))
    found = load_split("vectors", "all", tmp_path, path="v.npz", per_class=2)
    assert found.class_names == ("1", "2", "10")
    assert np.bincount(found.labels).tolist() == [2, 2, 2]


@pytest.mark.parametrize(
    ("arrays", "split", "reason"),
    [
        ({"x": FEATURES, "labels": WORDS}, "all", "no 'features' in it; it has x, labels"),
        ({"features": FEATURES, "labels": WORDS}, "train", "has no 'split', so its only split is 'all'"),
        ({"features": FEATURES, "labels": WORDS, "split": PARTS}, "val", "unknown split of"),
        ({"features": FEATURES[:, 0], "labels": WORDS}, "all", "must be numbers, N x D, found float64 of shape (12,)"),
        ({"features": FEATURES, "labels": WORDS[:5]}, "all", "12 rows of features but 5 labels"),
        ({"features": FEATURES, "labels": FEATURES[:, 0]}, "all", "one whole number or string a row, found float64"),
        (
            {"features": FEATURES, "labels": ["", *WORDS[1:]]},
            "all",
            "1 rows have an empty text as labels, the first is row 0",
        ),
        (
            {"features": np.where(FEATURES > 2, np.nan, FEATURES), "labels": WORDS},
            "all",
            "are not finite, the first is",
        ),
    ],
)
def test_refused(arrays, split, reason, tmp_path):
    if "not finite" in reason:
        arrays["features"][3, 1] = np.inf
    np.savez(tmp_path / "v.npz", **arrays)
    with pytest.raises(HoldfastError) as error:
        load_split("vectors", split, tmp_path, path="v.npz")
    assert reason in str(error.value)
    assert "\n" not in str(error.value)


def test_files_that_are_none(tmp_path):
    (tmp_path / "v.npz").write_bytes(b"PK\x03\x04 cut")
    with pytest.raises(HoldfastError, match="not readable as npz"):
        load_split("vectors", "all", tmp_path, path="v.npz")
    with pytest.raises(HoldfastError, match=r"no such file"):
        load_split("vectors", "all", tmp_path, path="w.npz")
    (tmp_path / "v.txt").write_text("1 2 3")
    with pytest.raises(HoldfastError, match=r"unknown kind of vectors .* known: \.npz, \.parquet"):
        load_split("vectors", "all", tmp_path, path="v.txt")


def test_ragged_or_plain_columns_in_parquet(tmp_path):
    parquet(tmp_path / "v.parquet", {"features": [[1.0, 2.0], [1.0]], "labels": ["a", "b"]})
    with pytest.raises(HoldfastError, match="lists of one length"):
        load_split("vectors", "all", tmp_path, path="v.parquet")
    parquet(tmp_path / "w.parquet", {"features": [1.0, 2.0], "labels": ["a", "b"]})
    with pytest.raises(HoldfastError, match="must hold lists of numbers, found double"):
        load_split("vectors", "all", tmp_path, path="w.parquet")


def test_widths_that_differ_and_mixtures_with_images(tmp_path):
    np.savez(tmp_path / "a.npz", features=FEATURES, labels=WORDS)
    np.savez(tmp_path / "b.npz", features=FEATURES[:, :4], labels=WORDS)
    five = load_split("vectors", "all", tmp_path, path="a.npz")
    four = load_split("vectors", "all", tmp_path, path="b.npz")
    with pytest.raises(HoldfastError, match="vectors differ in width: train 5, query 4, gallery 5"):
        open_set(five, four, five)
    glyphs = load_split("glyphs", "query", size=16, train_classes=6, test_classes=3, per_class_query=2)
    with pytest.raises(HoldfastError, match="some of train, query and gallery are vectors and some images"):
        open_set(five, glyphs, glyphs)
