"""Complex numbers and masked arrays are refused at every door: a part of them would be lost without an error."""

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from holdfast import Bridge, Preprocess, VectorInput, compatibility_summary, nearest
from holdfast.checks.query_bridges import bridged_queries
from holdfast.core.errors import HoldfastError
from holdfast.core.real_arrays import real_array
from holdfast.core.storage import read_array, read_tensors
from holdfast.gallery.attached.space import checked_vector
from holdfast.gallery.version_models import stored_form
from holdfast.metrics.intervals import gain_interval, mean_interval, repeated_queries
from holdfast.metrics.ranking import Places, places
from holdfast.metrics.verification import pair_scores, roc_auc, threshold_at_far
from holdfast.train.data.images import canonical
from holdfast.train.data.readers.torch_dataset import read_dataset
from holdfast.train.evaluation import compatibility_matrix
from holdfast.vectors import feature_set

ROWS, ROW, LABELS = np.eye(4, dtype=np.float32), np.ones(4, np.float32), np.arange(4)
PIXELS = np.zeros((4, 8, 8, 1), np.uint8)


def masked(array):
    return np.ma.masked_array(array, mask=np.arange(array.size).reshape(array.shape) == 1)


def as_complex(array):
    return array.astype(np.complex64)


EYE = feature_set("eye", ROWS)
# Numbers that are computed with: a spoilt array in each of these must be refused.
DOORS = {
    "vectors": lambda spoil: feature_set("mine", spoil(ROWS)),
    "labels": lambda spoil: feature_set("mine", ROWS, spoil(LABELS)),
    "new": lambda spoil: Bridge.fit(new=spoil(ROWS), old=ROWS),
    "queries": lambda spoil: bridge()(spoil(ROWS)),
    "a bridge's result": lambda spoil: bridged_queries(lambda queries: spoil(ROWS), torch.eye(4), EYE, EYE),
    "a gallery's vector": lambda spoil: stored_form(None, None, spoil(ROW), "item 'a'"),
    "a store's query": lambda spoil: checked_vector(spoil(ROW)),
    "an encoder's vectors": lambda spoil: VectorInput(4)(spoil(ROWS)),
    "ranked scores": lambda spoil: places(spoil(ROWS), ROWS),
    "grades": lambda spoil: places(ROWS, spoil(ROWS)),
    "places": lambda spoil: Places(4, LABELS, spoil(LABELS), LABELS + 1),
    "repeated": lambda spoil: repeated_queries(ROWS, spoil(ROWS)),
    "pairs": lambda spoil: pair_scores(ROWS, spoil(ROWS), [[0, 1]]),
    "scores": lambda spoil: roc_auc(spoil(ROW), [True, False, True, False]),
    "impostors": lambda spoil: threshold_at_far(spoil(ROW), 0.1),
    "mean": lambda spoil: mean_interval(spoil(ROW)),
    "gain": lambda spoil: gain_interval(ROW, spoil(ROW)),
    "groups": lambda spoil: mean_interval(ROW, groups=spoil(LABELS)),
    "matrix": lambda spoil: compatibility_summary(spoil(ROWS)),
    "models": lambda spoil: compatibility_matrix([(ROWS, spoil(ROWS))], LABELS, LABELS),
    "labels of images": lambda spoil: canonical(PIXELS, spoil(LABELS), "abcd", source="mine"),
}


def bridge():
    rows = np.random.default_rng(0).standard_normal((40, 4)).astype(np.float32)
    return Bridge.fit(new=rows, old=rows[:, ::-1])


@pytest.mark.parametrize("spoil", [masked, as_complex])
@pytest.mark.parametrize("door", DOORS)
def test_every_door_refuses_them(door, spoil):
    with pytest.raises(HoldfastError, match=r"a masked array|complex numbers"):
        DOORS[door](spoil)


@pytest.mark.parametrize("spoil", [masked, as_complex])
def test_lists_of_them_are_refused(spoil):
    for given in (spoil(ROWS), spoil(ROW)):
        with pytest.raises(HoldfastError, match=r"mine: (a masked array|complex numbers)"):
            real_array(list(given), "mine")


def test_masked_images_are_refused():
    with pytest.raises(HoldfastError, match="images: a masked array"):
        Preprocess(size=8, mean=(0.5,), std=(0.5,), colour="grey")(masked(PIXELS))
    with pytest.raises(HoldfastError, match="item 0: a masked array"):
        read_dataset([(masked(PIXELS[0]), 0)])
    with pytest.raises(HoldfastError, match="mine: images: a masked array"):
        canonical(masked(PIXELS), LABELS, "abcd", source="mine")


def test_complex_tensors_and_files_are_refused(tmp_path):
    tensor = torch.eye(4, dtype=torch.complex64)
    np.save(tmp_path / "basis.npy", as_complex(ROWS))
    save_file({"weight": tensor}, tmp_path / "model.safetensors")
    for read, name in ((read_array, "basis.npy"), (read_tensors, "model.safetensors")):
        with pytest.raises(HoldfastError, match=rf"{name}.*complex numbers"):
            read(tmp_path / name)
    for refuse in (lambda: nearest(torch.eye(4), tensor), lambda: bridge()(tensor), lambda: VectorInput(4)(tensor)):
        with pytest.raises(HoldfastError, match="complex numbers"):
            refuse()


def test_other_input_is_not_changed():
    given = np.arange(3)
    assert real_array(given, "mine") is given
    assert real_array([1, 2], "mine", np.float64).dtype == np.float64
    assert real_array(["a", None], "mine").tolist() == ["a", None]
