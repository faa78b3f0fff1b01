"""Adopting stored vectors: the report, the folder, and what is refused."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from holdfast.encoders import Encoder, VectorInput, build_backbone
from holdfast.errors import HoldfastError
from holdfast.experiments.update_recipes import update_from_recipe as update
from holdfast.geometry import DSimplex, nearest, unit
from holdfast.lifecycle import adopt, read_adopted, read_stored
from holdfast.training.slots import grow_models

CLASSES, EACH, DIM = 60, 8, 12


def vectors_of(noise: float, seed: int) -> np.ndarray:
    """Features of one set of items by a model that blurs them by ``noise``; the centres are the same for all."""
    centres = np.random.default_rng(0).normal(size=(CLASSES, DIM))
    draw = np.random.default_rng(seed)
    return np.repeat(centres, EACH, axis=0) + noise * draw.normal(size=(CLASSES * EACH, DIM))


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Vectors of a blurred old model, and of a sharper new one in a space turned by a rotation."""
    root = tmp_path_factory.mktemp("vectors")
    turn, _ = np.linalg.qr(np.random.default_rng(9).normal(size=(DIM, DIM)))
    labels = np.array([f"class {i:02d}" for i in range(CLASSES)]).repeat(EACH)
    ids = np.array([f"{label}/{i}.png" for i, label in enumerate(labels)])
    np.savez(root / "old.npz", features=vectors_of(1.2, 1), labels=labels, ids=ids)
    order = np.random.default_rng(2).permutation(len(ids))  # found again by id
    np.savez(root / "new.npz", features=(vectors_of(0.3, 2) @ turn.T)[order], ids=ids[order])
    np.savez(root / "noise.npz", features=np.random.default_rng(5).normal(size=(len(ids), DIM)), ids=ids)
    return {path.stem: path for path in root.iterdir()}


def test_a_better_model_in_a_turned_space_is_mapped_and_the_report_says_so(files, tmp_path):
    found = adopt(files["old"], out=tmp_path / "adopted", new=files["new"], resamples=500, steps=20)
    assert (found.chosen, found.good_enough) == ("map", True)
    later = found.way("map").later
    assert later is not None
    assert later.verdict == "compatible"
    assert later.gain.low > 0
    assert later.cross.value - found.as_stored.value == pytest.approx(later.gain.value)
    assert found.way("means").stored_gain is None  # it touches nothing
    record = json.loads((tmp_path / "adopted" / "adopted.json").read_text())
    assert record["report"] == found.as_json()
    adopted = read_adopted(tmp_path / "adopted")
    assert (adopted.way, adopted.dim, adopted.registry) == ("map", DIM, None)
    stored = read_stored(files["old"])
    expected = unit(torch.stack([stored.vectors[stored.labels == i].mean(0) for i in range(CLASSES)]))
    torch.testing.assert_close(adopted.prototypes, expected, atol=1e-5, rtol=0)


def test_noise_is_not_good_enough_and_the_report_says_so(files):
    found = adopt(files["old"], out=None, new=files["noise"], resamples=500, steps=20)
    assert found.good_enough is False
    assert "none of the ways is good enough" in found.reason
    assert all(way.later is not None and way.later.gain.high < 0 for way in found.ways)


def test_an_adopted_projection_is_a_model_of_stored_vectors(files, tmp_path):
    adopt(files["old"], out=tmp_path / "adopted", way="projection", resamples=500, steps=20)
    adopted = read_adopted(tmp_path / "adopted")
    assert adopted.registry is not None
    assert (adopted.dim, adopted.registry.num_slots) == (119, 120)  # twice the classes
    stored = read_stored(files["old"])
    carried = adopted.carried(stored.vectors)
    assert torch.equal(Encoder.from_pretrained(tmp_path / "adopted").encode(stored.vectors), carried)
    slots = torch.tensor([adopted.registry.slot(name) for name in adopted.class_names])
    closest = DSimplex(120).logits(adopted.prototypes).argmax(1)
    assert (closest == slots).float().mean() > 0.9  # class means lie nearest to their own vertices
    if (
        adopted.record["report"]["ways"][0]["settings"]["pull"] is None
    ):  # an isometry: the store's order is the true one
        truth = nearest(carried[:20], carried, 10).indices
        assert torch.equal(nearest(adopted.on_store(carried[:20]), stored.vectors, 10).indices, truth)


def test_training_images_find_their_vectors_by_name(files, tmp_path):
    adopt(files["old"], out=tmp_path / "adopted", way="means", resamples=500, steps=20)
    adopted, stored = read_adopted(tmp_path / "adopted"), read_stored(files["old"])
    names = np.array([stored.ids[7], "a new image", stored.ids[3]])
    table = adopted.reference(names).table
    torch.testing.assert_close(table[[0, 2]], stored.vectors[[7, 3]])
    assert not table[1].any()
    with pytest.raises(HoldfastError, match="none of its ids"):
        adopted.reference(np.array(["nowhere"]))
    moved = tmp_path / "moved.npz"
    moved.write_bytes(files["old"].read_bytes())
    assert torch.equal(adopted.reference(names, features=moved).table, table)
    with pytest.raises(HoldfastError, match="sha256 differs"):
        adopted.reference(names, features=files["new"])


@pytest.mark.parametrize("name", ["adopted.json", "config.json", "model.safetensors", "prototypes.safetensors"])
def test_a_folder_changed_by_hand_is_refused(name, files, tmp_path):
    adopt(files["old"], out=tmp_path / "adopted", way="means", resamples=500, steps=20)
    file = tmp_path / "adopted" / name
    raw = file.read_bytes()
    file.write_bytes(raw.replace(b'"means"', b'"map"', 1) if name.endswith("json") else raw[:-1] + b"?")
    assert file.read_bytes() != raw
    with pytest.raises(HoldfastError, match=f"{name}: changed since the model was written .sha256 differs"):
        read_adopted(tmp_path / "adopted")


def test_an_adopted_model_is_neither_grown_nor_updated(files, tmp_path):
    """Its prototypes lie in its own simplex, and there is no network to go on from."""
    adopt(files["old"], out=tmp_path / "v0", way="projection", resamples=500, steps=20)
    with pytest.raises(HoldfastError, match="adopt it again with --slots 150"):
        grow_models([tmp_path / "v0"], 150)
    read_adopted(tmp_path / "v0")
    own = tmp_path / "own.toml"
    own.write_text('[method]\nname = "simplex_hoc"\n')
    with pytest.raises(HoldfastError, match=r"an adopted model, which has stored vectors but no network.*holdfast run"):
        update(tmp_path / "v0", files["old"], tmp_path / "1", recipe=str(own), device="cpu")
    assert not (tmp_path / "1").exists()


def test_a_new_model_that_did_not_give_the_new_features(files, tmp_path):
    Encoder(build_backbone("linear", in_channels=4, width=5), preprocess=VectorInput(4)).save_pretrained(tmp_path / "m")
    with pytest.raises(HoldfastError, match="m: gives 5 numbers, but its features here have"):
        adopt(files["old"], out=tmp_path / "v0", new=files["new"], new_model=tmp_path / "m", steps=20)
    assert not (tmp_path / "v0").exists()


GOOD = vectors_of(1.0, 1)
LABELS = np.repeat(np.arange(CLASSES), EACH)
WITH_NAN = GOOD.copy()
WITH_NAN[[3, 5]] = np.nan


@pytest.mark.parametrize(
    ("features", "labels", "options", "message"),
    [
        (WITH_NAN, LABELS, {}, "2 vectors are not finite (rows 3, 5); leave them out"),
        (GOOD * (np.arange(480) != 4)[:, None], LABELS, {}, "1 vector is zero (row 4); leave it out"),
        (GOOD, LABELS[:-1], {}, "480 vectors but labels of shape (479,)"),
        (GOOD, LABELS * 0, {}, "one class only (0)"),
        (GOOD, None, {}, "has no labels; give them"),
        (GOOD, LABELS % 5, {}, "5 classes with two vectors or more; at least 8 are needed"),
        (GOOD[:, 0], LABELS, {}, "features must be a matrix of numbers"),
        (GOOD, LABELS, {"new": GOOD[:-1]}, "479 vectors, but 480 in features"),
        (GOOD, LABELS, {"new": WITH_NAN}, "zero or not finite"),
        (GOOD, LABELS, {"way": "magic"}, "unknown way 'magic'; known: map, means, projection"),
        (GOOD, LABELS, {"way": "map"}, "needs a new model's features"),
        (GOOD, LABELS, {"slots": DIM + 1}, "take one more"),
        (GOOD, LABELS, {"slots": 10}, "no slot left for class"),
        (GOOD, LABELS, {"held_out": 1.5}, "between 0 and 1, got 1.5"),
    ],
)
def test_bad_input_is_one_line_and_nothing_is_written(features, labels, options, message, tmp_path):
    with pytest.raises(HoldfastError) as refused:
        adopt(features, labels, out=tmp_path / "adopted", **{"resamples": 500, "steps": 20, **options})
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)
    assert not list(tmp_path.iterdir())
