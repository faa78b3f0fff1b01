"""Versions on a turned simplex: started, updated, grown, replaced, and refused where they do not belong together."""

import numpy as np
import pytest
import torch

from holdfast import VersionSettings, start, update
from holdfast.core.errors import HoldfastError
from holdfast.train.encoders import Encoder
from holdfast.train.engine.model_slots import grow_models
from holdfast.train.scenarios import SlotRegistry

DIM = 10
METHOD = {
    "name": "simplex_hoc", "slots": 20, "placing": "means", "layer": "identity", "length": 16.0, "first_length": 16.0,
    "lambda": 0.5,
}  # fmt: skip
FIT = {"epochs": 2, "batch_size": 32, "lr": 0.01}
SETTINGS = VersionSettings(method=METHOD, backbone={"name": "identity"}, train=FIT)


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Files of vectors of three classes each, and two versions trained on the first two files."""
    top = tmp_path_factory.mktemp("turned")
    random = np.random.default_rng(0)
    centres = np.abs(random.standard_normal((9, DIM)))
    for number, classes in enumerate((range(3), range(3, 6), range(6, 9)), start=1):
        labels = np.repeat(classes, 30)
        items = centres[labels] + 0.2 * random.standard_normal((90, DIM))
        np.savez(top / f"{number}.npz", features=items.astype(np.float32), labels=labels)
    start(top / "1.npz", top / "m1", settings=SETTINGS, device="cpu")
    update(top / "m1", top / "2.npz", top / "m2", device="cpu")
    return top


def slots_of(folder):
    return SlotRegistry.from_json(Encoder.from_pretrained(folder).info["slots"])


def test_each_version_turns_the_simplex_once_more(models):
    first, second = slots_of(models / "m1"), slots_of(models / "m2")
    assert len(first.turns) == 1
    assert second.turns[:1] == first.turns
    assert second.turns[1].kept == (0, 1, 2)
    assert first.merge(second) == second
    assert Encoder.from_pretrained(models / "m2").dim == 19


def test_a_grown_model_is_updated(models, tmp_path):
    """The copies have more slots; their vectors have the same cosines, and the next version keeps the vertices."""
    grow_models([models / "m1", models / "m2"], 40, tmp_path)
    items = np.load(models / "1.npz")["features"]
    small, large = (Encoder.from_pretrained(top / "m2").encode(items) for top in (models, tmp_path))
    torch.testing.assert_close(large @ large.T, small @ small.T, atol=1e-5, rtol=0)
    info = update(tmp_path / "m2", models / "3.npz", tmp_path / "m3", device="cpu")
    assert len(info["slots"]["turns"]) == 3
    assert slots_of(tmp_path / "m3").merge(slots_of(tmp_path / "m1")).num_slots == 40
    found = Encoder.from_pretrained(tmp_path / "m3").encode(items)
    assert (found * large).sum(1).mean() > 0.8  # still compatible with version 2


def test_a_replaced_head_begins_in_the_old_space(models, tmp_path):
    info = update(models / "m2", models / "3.npz", tmp_path / "m3", backbone="identity", device="cpu")
    assert len(info["slots"]["turns"]) == 3
    items = np.load(models / "1.npz")["features"]
    new, old = (Encoder.from_pretrained(folder).encode(items) for folder in (tmp_path / "m3", models / "m2"))
    assert (new * old).sum(1).mean() > 0.8


def test_a_replacement_that_was_turned_apart_is_refused(models, tmp_path):
    """It has the same classes on the same slots, but its own first version placed them elsewhere."""
    pack = np.load(models / "1.npz")
    stretched = pack["features"] * np.linspace(0.2, 3, DIM, dtype=np.float32)
    np.savez(tmp_path / "1.npz", features=stretched, labels=pack["labels"])
    start(tmp_path / "1.npz", tmp_path / "other", settings=SETTINGS, device="cpu")
    with pytest.raises(HoldfastError, match=r"other: .*turned in different ways"):
        update(models / "m2", models / "3.npz", tmp_path / "m3", backbone=tmp_path / "other", device="cpu")
