import numpy as np
import pytest

from holdfast.core.errors import HoldfastError
from holdfast.train.encoders import FeatureStore, ModelFeatures

LABELS = np.array([0, 1, 1]), np.array([1, 0])


def features(seed: int) -> ModelFeatures:
    rng = np.random.default_rng(seed)
    return ModelFeatures(rng.random((3, 4), np.float32), rng.random((2, 4), np.float32))


def test_round_trip(tmp_path):
    store = FeatureStore(tmp_path / "features")
    store.open_for(*LABELS, "abc")
    for number in (1, 2):
        store.write(number, features(number))
    for number, found in enumerate(store.read_all(), 1):
        assert np.array_equal(found.query, features(number).query)
        assert np.array_equal(found.gallery, features(number).gallery)
    assert [labels.tolist() for labels in store.labels()] == [[0, 1, 1], [1, 0]]
    store.open_for(*LABELS, "abc")


def test_a_model_counts_when_both_parts_are_there(tmp_path):
    store = FeatureStore(tmp_path)
    store.write(1, features(1))
    store.write(3, features(3))
    assert store.has(1)
    assert not store.has(2)
    assert len(store.read_all()) == 1
    (tmp_path / "01" / "gallery.npy").unlink()
    assert not store.has(1)
    with pytest.raises(HoldfastError, match="no features"):
        store.read_all()


def test_features_of_other_images_are_refused(tmp_path):
    FeatureStore(tmp_path).open_for(*LABELS, "abc")
    with pytest.raises(HoldfastError, match="other images"):
        FeatureStore(tmp_path).open_for(*LABELS, "def")


def test_a_cut_file_is_named(tmp_path):
    store = FeatureStore(tmp_path)
    store.write(1, features(1))
    path = tmp_path / "01" / "query.npy"
    path.write_bytes(path.read_bytes()[:-7])
    with pytest.raises(HoldfastError, match=r"query\.npy"):
        store.read(1)


@pytest.mark.parametrize("basis", [np.ones((6, 4), np.float16), np.ones((6, 3), np.float32), np.ones(4, np.float32)])
def test_a_basis_that_does_not_fit_is_refused(basis, tmp_path):
    store = FeatureStore(tmp_path)
    store.write(1, ModelFeatures(*features(1)[:2], basis))
    with pytest.raises(HoldfastError, match=r"basis\.npy: not the basis of these features, but float"):
        store.read(1)


@pytest.mark.parametrize(
    "labels",
    [np.zeros(3, "V4"), np.zeros(3), np.array([[0, 1, 1]]), np.array([0, -1, 1]), np.array([0, 2**60, 1])],
    ids=["void", "float", "two dimensions", "negative", "huge"],
)
def test_labels_that_are_no_class_numbers_are_refused(labels, tmp_path):
    store = FeatureStore(tmp_path)
    store.open_for(*LABELS, "abc")
    np.save(tmp_path / "query_labels.npy", labels)
    with pytest.raises(HoldfastError, match=r"query_labels.npy: not one class number for each image"):
        store.labels()
